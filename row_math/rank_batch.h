// A run of rows that is compared with a vector. C++17; a plain record, which owns nothing.
#ifndef HOTBED_ROW_MATH_RANK_BATCH_H_
#define HOTBED_ROW_MATH_RANK_BATCH_H_

#include <cstdint>

#include "row_math/metric.h"
#include "row_math/types.h"

namespace hotbed {

// A vector as rows of codes are first compared with it (row_math/code_filter.h).
struct CodeQuery {
  const int8_t* codes = nullptr;  // in the order of MakeCodeQuery; null: there is no first look
  double step = 0;                // element j is about step * its code
  double sum = 0;                 // of the elements
  double error = 0;               // bound of a product's error, to C |scale| + |bias|
};

// A vector as rows of floats are first compared with it (row_math/float_filter.h).
struct FloatQuery {
  const float* elements = nullptr;  // and zeros up to the next multiple of sixteen
  float sizes = 0;                  // not less than the sum of their sizes
};

// `elements`: zeros for them to be copied to.
inline FloatQuery MakeFloatQuery(const float* vector, uint32_t dim, float* elements) {
  double sizes = 0;
  for (uint32_t j = 0; j < dim; ++j) {
    elements[j] = vector[j];
    sizes += __builtin_fabs(static_cast<double>(vector[j]));
  }
  return {elements, static_cast<float>(sizes * (1 + 1e-6))};
}

// Compares rows with a vector (row_math/nearness.h): those that lie one after another, or those
// that `at` names.
struct RankBatch {
  const uint8_t* rows = nullptr;  // the weights of the first one
  uint64_t stride = 0;            // bytes from row to row
  uint32_t count = 0;
  uint32_t dim = 0;
  WeightType weight_type = WeightType::kFp32;
  RowMetric metric = RowMetric::kDot;
  const double* vector = nullptr;            // dim, and zeros up to the next multiple of eight
  double norm = 0;                           // of the vector, for cosine
  double floor = 0;                          // rows that are not so near are passed over
  const uint8_t* const* at = nullptr;        // the weights of each row; null: `rows`
  uint32_t at_count = 0;                     // of `at`; those from `count` on are compared soon
  uint32_t row_bytes = 0;                    // likewise
  const CodeQuery* quick = nullptr;          // null: there is none, as for rows without codes
  const FloatQuery* quick_floats = nullptr;  // null: there is none, as for rows of codes
  // Out: the numbers of the other rows, those whose score is no number among them, and their
  // scores. Both have room for `count`.
  uint32_t* picks = nullptr;
  double* scores = nullptr;
  uint32_t picked = 0;
};

// How many rows, which lie anywhere, are fetched before they are compared.
constexpr uint64_t kRankAheadBytes = 8192;
constexpr uint32_t RankAheadRows(uint32_t row_bytes) {
  return static_cast<uint32_t>(kRankAheadBytes / row_bytes) + 4;
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_RANK_BATCH_H_
