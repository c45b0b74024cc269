// Which large shards the coordinator splits by itself, and when it tries one again. A split that
// did not come about, because the shard never stood still, say, is asked for again after ten
// minutes, then twenty, and so on up to a day. Pure; thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SPLIT_TRIES_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SPLIT_TRIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "planner/coordinator/state/cluster_state.h"
#include "proto/control.pb.h"

namespace hotbed {

class SplitTries {
 public:
  static constexpr int64_t kFirstPauseNs = 600'000'000'000;
  static constexpr int64_t kPauseMaxNs = 86'400'000'000'000;

  // Leaves the first `count` of the shards that may be tried now, and notes these tries. Shards
  // that are not in `large` are forgotten.
  void Choose(const ClusterState& state, int64_t now_ns, size_t count,
              std::vector<v1::CutShardRequest>* large);

 private:
  struct Try {
    uint64_t range_limit = 0;  // of the shard then: another one since the cut
    int64_t not_before_ns = 0;
    int64_t pause_ns = 0;
  };
  std::map<uint64_t, Try> tries_;  // by packed id
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_SPLIT_TRIES_H_
