// RankRowsOf: which rows are near to a vector (row_math/nearness.h).
#ifndef HOTBED_ROW_MATH_RANK_ROWS_H_
#define HOTBED_ROW_MATH_RANK_ROWS_H_

#include <cstdint>

#include "row_math/nearness.h"
#include "row_math/rank_batch.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Where the rows of a batch are. FetchAhead is told of rows before they are compared.
//
// One after another in memory. The processor's own prefetcher ends at the ends of pages, and lags
// behind where little is computed per row. Rows are fetched to the second-level cache, which waits
// for more lines at once than the first.
struct RowsInOrder {
  explicit RowsInOrder(const RankBatch& batch) : first(batch.rows), stride(batch.stride) {}
  HOTBED_ROW_FN const uint8_t* At(uint32_t i) const { return first + stride * i; }
  HOTBED_ROW_FN void FetchAhead(uint32_t i, uint32_t rows) const {
    const uint8_t* const from = At(i) + kAheadBytes;
    for (uint64_t b = 0; b < stride * rows; b += 64) __builtin_prefetch(from + b, 0, 2);
  }
  static constexpr uint64_t kAheadBytes = 16 << 10;
  const uint8_t* const first;
  const uint64_t stride;
};

// Anywhere. Nobody fetches the first rows of the first batch ahead.
struct RowsAt {
  explicit RowsAt(const RankBatch& batch)
      : at(batch.at),
        row_bytes(batch.row_bytes),
        ahead(RankAheadRows(batch.row_bytes)),
        count(batch.at_count) {}
  HOTBED_ROW_FN const uint8_t* At(uint32_t i) const { return at[i]; }
  HOTBED_ROW_FN void FetchAhead(uint32_t i, uint32_t rows) const {
    for (uint32_t r = i + ahead; r < i + ahead + rows && r < count; ++r) {
      // The bytes behind a row's last whole line come with the row that lies behind it.
      for (uint64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(at[r] + b, 0, 3);
    }
  }
  const uint8_t* const* const at;
  const uint64_t row_bytes;
  const uint32_t ahead;  // rows
  const uint32_t count;
};

template <typename Codec, RowMetric kMetric, typename Rows>
void RankRowsBy(RankBatch* batch) {
  // So many that their sums fit into the registers, of which AVX-512 has twice as many.
#if defined(__AVX512F__)
  constexpr uint32_t kRows = 4;
#else
  constexpr uint32_t kRows = kMetric == RowMetric::kCosine ? 2 : 4;
#endif
  const Rows rows(*batch);
  const uint32_t dim = batch->dim;
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
    const uint8_t* some[kRows];
    rows.FetchAhead(i, kRows);
    for (uint32_t r = 0; r < kRows; ++r) some[r] = rows.At(i + r);
    Nearness<Codec, kMetric, kRows>(some, batch->vector, dim, batch->norm, scores);
    for (uint32_t r = 0; r < kRows; ++r) pick(i + r, scores[r]);
  }
  for (; i < batch->count; ++i) {
    Nearness<Codec, kMetric, 1>({rows.At(i)}, batch->vector, dim, batch->norm, scores);
    pick(i, scores[0]);
  }
  batch->picked = picked;
}

// Ranks those rows that a first look has left in `picks`, `count` of them.
template <typename Codec, typename Rows>
void RankPicked(const Rows& rows, uint32_t count, RankBatch* batch) {
  uint32_t picked = 0;
  for (uint32_t n = 0; n < count; ++n) {
    const uint32_t row = batch->picks[n];
    double score;
    Nearness<Codec, RowMetric::kDot, 1>({rows.At(row)}, batch->vector, batch->dim, 0, &score);
    batch->scores[picked] = score;
    batch->picks[picked] = row;
    picked += score < batch->floor ? 0 : 1;
  }
  batch->picked = picked;
}

template <typename Codec, typename Rows = RowsInOrder>
void RankRowsOf(RankBatch* batch) {
  switch (batch->metric) {
    case RowMetric::kDot:
      return RankRowsBy<Codec, RowMetric::kDot, Rows>(batch);
    case RowMetric::kCosine:
      return RankRowsBy<Codec, RowMetric::kCosine, Rows>(batch);
    case RowMetric::kL2:
      return RankRowsBy<Codec, RowMetric::kL2, Rows>(batch);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_RANK_ROWS_H_
