// RankRowsOf: which rows of a run are near to a vector (row_math/nearness.h).
#ifndef HOTBED_ROW_MATH_RANK_ROWS_H_
#define HOTBED_ROW_MATH_RANK_ROWS_H_

#include <cstdint>

#include "row_math/nearness.h"
#include "row_math/rank_batch.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Rows are read in order, faster than the hardware fetches ahead over the ends of pages.
constexpr uint32_t kRankPrefetchBytes = 4096;
HOTBED_ROW_FN void FetchAhead(const uint8_t* row) {
  __builtin_prefetch(row + kRankPrefetchBytes, 0, 3);
}

// `kFromMemory`: the rows are not in the cache yet, and more of them follow.
template <typename Codec, RowMetric kMetric, bool kFromMemory>
void RankRowsBy(RankBatch* batch) {
  // So many that their sums fit into the registers.
  constexpr uint32_t kRows = kMetric == RowMetric::kCosine ? 2 : 4;
  const uint32_t dim = batch->dim;
  const uint64_t stride = batch->stride;
  uint32_t picked = 0;
  const auto pick = [&](uint32_t i, double score) HOTBED_ALWAYS_INLINE {
    batch->scores[picked] = score;
    batch->picks[picked] = i;
    // Written so that a score that is no number is picked.
    const bool behind = SmallerIsNearer(kMetric) ? score > batch->floor : score < batch->floor;
    picked += behind ? 0 : 1;
  };
  double scores[kRows];
  uint32_t i = 0;
  for (; i + kRows <= batch->count; i += kRows) {
    const uint8_t* const rows = batch->rows + stride * i;
    if (kFromMemory) {
      for (uint64_t b = 0; b < stride * kRows; b += 64) FetchAhead(rows + b);
    }
    Nearness<Codec, kMetric, kRows>(rows, stride, batch->vector, dim, batch->norm, scores);
    for (uint32_t r = 0; r < kRows; ++r) pick(i + r, scores[r]);
  }
  for (; i < batch->count; ++i) {
    Nearness<Codec, kMetric, 1>(batch->rows + stride * i, stride, batch->vector, dim, batch->norm,
                                scores);
    pick(i, scores[0]);
  }
  batch->picked = picked;
}

template <typename Codec, bool kFromMemory>
void RankRowsOf(RankBatch* batch) {
  switch (batch->metric) {
    case RowMetric::kDot:
      return RankRowsBy<Codec, RowMetric::kDot, kFromMemory>(batch);
    case RowMetric::kCosine:
      return RankRowsBy<Codec, RowMetric::kCosine, kFromMemory>(batch);
    case RowMetric::kL2:
      return RankRowsBy<Codec, RowMetric::kL2, kFromMemory>(batch);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_RANK_ROWS_H_
