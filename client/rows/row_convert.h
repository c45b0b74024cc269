// Converts rows between their wire form and fp32, whole rows at a time. There are scalar loops, and
// loops with AVX2 and F16C for processors that have them; the choice is made once. Both give the
// same bits: conversions round to nearest even, and int8 is q * scale + bias with two roundings (no
// fused multiply-add). Thread-safe.
#ifndef HOTBED_CLIENT_ROWS_ROW_CONVERT_H_
#define HOTBED_CLIENT_ROWS_ROW_CONVERT_H_

#include <cstdint>

#include "row_math/types.h"

namespace hotbed {

struct RowConverters {
  // to_floats[type]: `row` in wire form (unaligned) to `dim` floats (unaligned).
  void (*to_floats[4])(const uint8_t* row, uint32_t dim, float* out);
  // The same with stores that bypass the cache, for results that are not read soon. The caller
  // fences before it publishes them.
  void (*to_floats_streaming[4])(const uint8_t* row, uint32_t dim, float* out);
  void (*copy_streaming)(const uint8_t* from, uint32_t bytes, uint8_t* to);
  // sum[i] += row[i]; both may be unaligned.
  void (*add)(const float* row, uint32_t dim, float* sum);
  // from_floats[type], type != kInt8: writes the wire form (unaligned). False if one of its
  // elements is NaN or infinite.
  bool (*from_floats[3])(const float* values, uint32_t dim, uint8_t* row);
};

const RowConverters& ScalarRowConverters();
const RowConverters& BestRowConverters();  // of this processor

namespace internal {
// Null where the build has no AVX2.
extern const RowConverters* const kAvx2RowConverters;
}  // namespace internal

}  // namespace hotbed

#endif  // HOTBED_CLIENT_ROWS_ROW_CONVERT_H_
