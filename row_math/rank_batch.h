// A run of rows that is compared with a vector. C++17; a plain record, which owns nothing.
#ifndef HOTBED_ROW_MATH_RANK_BATCH_H_
#define HOTBED_ROW_MATH_RANK_BATCH_H_

#include <cstdint>

#include "row_math/metric.h"
#include "row_math/types.h"

namespace hotbed {

// Compares rows that lie one after another with a vector (row_math/nearness.h).
struct RankBatch {
  const uint8_t* rows = nullptr;  // the weights of the first one
  uint64_t stride = 0;            // bytes from row to row
  uint32_t count = 0;
  uint32_t dim = 0;
  WeightType weight_type = WeightType::kFp32;
  RowMetric metric = RowMetric::kDot;
  const double* vector = nullptr;  // dim, and zeros up to the next multiple of eight
  double norm = 0;                 // of the vector, for cosine
  double floor = 0;                // rows that are not so near are passed over
  // Out: the numbers of the other rows, those whose score is no number among them, and their
  // scores. Both have room for `count`.
  uint32_t* picks = nullptr;
  double* scores = nullptr;
  uint32_t picked = 0;
};

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_RANK_BATCH_H_
