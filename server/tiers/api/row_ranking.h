// A search of a shard's rows for the k nearest to each of some vectors (row_math/nearness.h): the
// tiers offer rows as they lie, and the nearest are kept.
//
// A row may be offered more than once, also with different values if it is updated meanwhile; it
// counts once. Used by one thread at a time.
#ifndef HOTBED_SERVER_TIERS_API_ROW_RANKING_H_
#define HOTBED_SERVER_TIERS_API_ROW_RANKING_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/top_rows.h"
#include "row_math/line_vectors.h"
#include "row_math/metric.h"
#include "row_math/rank_batch.h"
#include "row_math/types.h"

namespace hotbed {

struct RankQuery {
  RowMetric metric = RowMetric::kDot;
  uint32_t k = 1;                   // per vector
  absl::Span<const float> vectors;  // one after another, each of the table's dim
  uint64_t first_id = 0;            // other rows are passed over
  uint64_t last_id = std::numeric_limits<uint64_t>::max();
};

// Rows that lie one after another, by their weights.
struct StoredRun {
  const uint8_t* weights = nullptr;
  uint64_t stride = 0;
  uint32_t count = 0;
};

class RowRanking {
 public:
  // The position of row number `row` of a run; false: there is no row.
  using PositionOf = absl::FunctionRef<bool(uint32_t row, uint64_t* position)>;

  RowRanking(const RankQuery& query, WeightType weight_type, uint32_t dim, bool hashed);

  void Offer(const StoredRun& run, PositionOf position_of);
  // The rows of the run that an offer would take, by their numbers, ascending.
  std::vector<uint32_t> Wanted(const StoredRun& run, PositionOf position_of);

  // No position outside of these is wanted; only a bounded table has such a limit.
  uint64_t first_position() const { return hashed_ ? 0 : first_id_; }
  uint64_t last_position() const { return hashed_ ? ~uint64_t{0} : last_id_; }
  bool WantsId(uint64_t id) const { return id >= first_id_ && id <= last_id_; }
  // So many rows keep a processor busy for some tens of microseconds.
  uint32_t rows_per_step() const { return rows_per_step_; }
  uint64_t rows_read() const { return rows_read_; }
  // Per vector, the nearest rows in order; none are left.
  std::vector<std::vector<ScoredRow>> Take();

 private:
  // picked(number of the vector, number of the row, row).
  template <typename Picked>
  void Rank(const StoredRun& run, PositionOf position_of, Picked picked);

  const RowMetric metric_;
  const WeightType weight_type_;
  const uint32_t dim_;
  const bool hashed_;
  const uint64_t first_id_;
  const uint64_t last_id_;
  uint32_t rows_per_step_;
  uint64_t rows_read_ = 0;
  LineVectors<double> vectors_;
  LineVectors<float> floats_;      // of quick_
  std::vector<FloatQuery> quick_;  // one per vector
  std::vector<double> norms_;
  std::vector<TopRows> tops_;
};

// How far a walk over the rows in memory has come (TieredStore::RankMemory).
struct MemoryWalk {
  uint32_t slots_left = std::numeric_limits<uint32_t>::max();  // 0: it has ended
  // At the end: the positions of rows that are on their way to the spill tier.
  std::vector<uint64_t> leaving;
  // At the end: a row that was not in memory exists nowhere.
  bool all = false;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_API_ROW_RANKING_H_
