// How many copies a hot table is to have (docs/serving.md, "Hot tables"): the rows per second that
// lookups ask of each copy, and the number of copies that follows from them.
//
// Both are pure and thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_SERVING_COPY_DEMAND_H_
#define HOTBED_PLANNER_COORDINATOR_SERVING_COPY_DEMAND_H_

#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"
#include "common/ids.h"
#include "proto/served_part.h"
#include "proto/serving.pb.h"

namespace hotbed {

// The rates of the copies of one serving server.
class CopyRates {
 public:
  // Averages over `average_ns`. Copies that the report does not name are forgotten; one whose
  // counter is less than before, or of another process, has begun again.
  void Note(int64_t now_ns, int64_t average_ns, const v1::ServingReport& report);
  double RowsPerS(TableId table, const ServedPart& part) const;

 private:
  struct Rate {
    uint64_t rows_total = 0;
    int64_t since_ns = 0;  // of the last report
    double rows_per_s = 0;
  };
  uint64_t run_ = 0;
  using Key = std::tuple<TableId, uint32_t, uint32_t>;  // a part of how many
  absl::btree_map<Key, Rate> rates_;
};

class CopyDemand {
 public:
  struct Options {
    double rows_per_s_max = 1e6;              // of a copy; above it, one more is wanted
    int64_t raise_after_ns = 30'000'000'000;  // above it for so long
    int64_t lower_after_ns =
        600'000'000'000;  // the others would have been well below it for so long
  };
  // A table's copies now, of the part that lookups ask most of.
  struct Load {
    double rows_per_s = 0;   // of all copies together
    bool may_raise = false;  // as many as are wanted are ready, and a server has room for another
    bool may_lower = false;  // the fewest that the table may have are ready
  };
  explicit CopyDemand(const Options& options) : options_(options) {}

  void Begin() { tables_.clear(); }
  // Forgets tables that are not served any more, or have a fixed number of copies.
  void KeepOnly(const absl::btree_map<TableId, v1::ServedTable>& tables);
  // The number of copies of each part that `table` is to have, one more or less than it wants now
  // at most, and within its limits. Asked for regularly; the same again until the table has it.
  uint32_t Wanted(int64_t now_ns, const v1::ServedTable& table, const Load& load);

 private:
  struct Window {
    int64_t above_since_ns = -1;  // -1: it is not
    int64_t calm_since_ns = -1;
    uint32_t replicas = 0;  // for which they were measured
  };
  const Options options_;
  absl::btree_map<TableId, Window> tables_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SERVING_COPY_DEMAND_H_
