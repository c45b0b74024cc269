// Which shards the coordinator splits by itself for their load: those of hashed tables whose
// primary has served more than so many rows per second, pulled and pushed, in each of several
// windows of time on end.
//
// A split answers a load that lasts: a burst that is shorter than the windows splits nothing. And
// no load splits a shard twice at once: after a split, or one that did not come about, the parts
// are left alone for some minutes, and for twice as long where a part still has most of the load
// that the whole had, because its rows are few, say. Then a part must be busy over all windows like
// any other shard.
//
// And which neighbours it merges by itself, if it is told to: small ones that serve little. Pure;
// thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_BUSY_SHARDS_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_BUSY_SHARDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"
#include "proto/control.pb.h"

namespace hotbed {

class BusyShards {
 public:
  static constexpr int64_t kWindowNs = 10'000'000'000;
  static constexpr uint32_t kWindows = 6;
  static constexpr int64_t kFirstPauseNs = 180'000'000'000;
  static constexpr int64_t kPauseMaxNs = 86'400'000'000'000;
  // A part with more than this of the whole's load shows that the split has not helped.
  static constexpr double kHelpedShare = 0.75;

  // Merged shards must not be split again at once: together they serve at most a quarter of the
  // load from which shards are split, and are not of one that was split for its load.
  static constexpr double kCalmShare = 0.25;
  static constexpr size_t kShardsMin = 8;  // of a table, whose shards are merged down to that

  explicit BusyShards(uint64_t rows_per_s_max) : rows_per_s_max_(rows_per_s_max) {}

  // To be called often; looks once per window, at the loads of the last heartbeats.
  void Tick(int64_t now_ns, const ClusterState& state, const Leases& leases);
  // The `count` busiest of the shards that are to be split now, the busiest first. They count as
  // split from now on.
  std::vector<v1::CutShardRequest> Take(int64_t now_ns, const ClusterState& state, size_t count);
  // Neighbours that take at most `bytes_max` bytes together, have served little in all windows, and
  // can be merged.
  std::vector<v1::CutShardRequest> SmallNeighbours(int64_t now_ns, const ClusterState& state,
                                                   uint64_t bytes_max) const;
  // The shard is split for its load by somebody else: its parts are not merged within a day.
  void NoteSplit(int64_t now_ns, const ShardRecord& record);

 private:
  // A shard whose primary reported its rows at the end of the last window.
  struct Measured {
    ShardRange range;
    Member primary;
    uint64_t rows = 0;  // pulled and pushed, as counted by `primary`
    uint64_t bytes = 0;
    double rows_per_s = 0;
    uint32_t windows = 0;       // on end with more than rows_per_s_max_
    uint32_t calm_windows = 0;  // on end with little
  };
  struct Split {
    TableId table = 0;
    ShardRange range;  // of the whole
    double rows_per_s = 0;
    int64_t not_before_ns = 0;  // the next one of a part
    int64_t pause_ns = 0;
  };

  // The last split of the shard, or of one that it was a part of; null: none is known.
  const Split* LastOf(const ShardRecord& record) const;
  const Measured* Calm(int64_t now_ns, const ShardRecord& record) const;  // null: it is not
  void NoteSplit(int64_t now_ns, const ShardRecord& record, double rows_per_s);

  const uint64_t rows_per_s_max_;
  int64_t window_ns_ = 0;                             // the present one began
  absl::flat_hash_map<uint64_t, Measured> measured_;  // by packed id
  std::vector<Split> splits_;                         // the newest last
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_BUSY_SHARDS_H_
