// How a bag of rows becomes one row (docs/tables.md, "Batches, pooling and bounds").
//
//   sum   out = 0; then for each row of the bag, in order: out += row, or out += weight * row
//   max   by element: the first row of the bag; then for each further row, in order, the larger.
//         NaN counts as the largest; among equals (also 0 and -0) the first stays
//
// in fp32, each operation rounded by itself. PyTorch's embedding_bag has the same formulas. This
// header has the rule of max for one pair of values; kernels and clients do the sums in loops of
// their own.
#ifndef HOTBED_ROW_MATH_POOLING_H_
#define HOTBED_ROW_MATH_POOLING_H_

#include <cstdint>

#include "row_math/isa.h"

namespace hotbed {
inline namespace HOTBED_ISA {

constexpr uint32_t kNoArgMax = 0xffffffffu;  // the arg_max of an empty bag

// Whether `value`, which follows `largest` in its bag, replaces it.
HOTBED_ROW_FN bool IsLarger(float value, float largest) {
  return value > largest || (value != value && largest == largest);
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_POOLING_H_
