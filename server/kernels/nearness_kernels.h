// RankRows: how near rows are to a vector (see kernel_body.h for how these files are compiled).
#ifndef HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_
#define HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_

#include <cstdint>

#include "row_math/nearness.h"
#include "server/kernels/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Rows are read in order, faster than the hardware fetches ahead over the ends of pages.
constexpr uint32_t kRankPrefetchBytes = 4096;
HOTBED_ROW_FN void FetchAhead(const uint8_t* row) {
  __builtin_prefetch(row + kRankPrefetchBytes, 0, 3);
}

template <typename Codec, RowMetric kMetric>
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
    for (uint64_t b = 0; b < stride * kRows; b += 64) FetchAhead(rows + b);
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

template <typename Codec>
void RankRowsOf(RankBatch* batch) {
  switch (batch->metric) {
    case RowMetric::kDot:
      return RankRowsBy<Codec, RowMetric::kDot>(batch);
    case RowMetric::kCosine:
      return RankRowsBy<Codec, RowMetric::kCosine>(batch);
    case RowMetric::kL2:
      return RankRowsBy<Codec, RowMetric::kL2>(batch);
  }
}

inline void RunRankRows(RankBatch* batch) {
  switch (batch->weight_type) {
    case WeightType::kFp32:
      return RankRowsOf<Fp32Codec>(batch);
    case WeightType::kFp16:
      return RankRowsOf<Fp16Codec>(batch);
    case WeightType::kBf16:
      return RankRowsOf<Bf16Codec>(batch);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_NEARNESS_KERNELS_H_
