// Which copies change their servers: the planner's moves as what is wanted of each shard. Pure.
#ifndef HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_MOVES_H_
#define HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_MOVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/balance/load_meter.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// What is wanted of a shard: its members, the primary first.
struct WantedShard {
  ShardId shard;
  std::vector<ServerId> servers;
  std::string reason;
};

struct RebalanceWave {
  std::string cause;   // drain, arrival, loss or imbalance
  std::string reason;  // for the event log and for people: the cause, with names and numbers
  std::vector<WantedShard> goals;
  uint64_t bytes = 0;      // to be copied
  uint32_t moves = 0;      // copies that change their server; the other goals only switch primaries
  bool cut_short = false;  // more would have been moved
};

// The first `moves_max` of `moves` (one of several shards counts them all, and is carried out whole
// or not at all), of the problem ClusterProblem(view), as goals, for `reason`. A primary on a
// draining server gives its role to a backup, where there is one that stays; else who takes the
// copy takes the role.
RebalanceWave WaveOf(const ClusterView& view, const std::vector<PlannedMove>& moves,
                     uint32_t moves_max, const std::string& reason);

// The planner's moves for the view, within so many evaluations that the caller may wait for them.
// Errors: of ToStatus.
absl::StatusOr<std::vector<PlannedMove>> MovesFor(const ClusterView& view);

// Primaries change places with backups, the most pulled first, as long as that takes load off a
// server above `aim` times the mean to one that stays below it. At most `switches_max`. `board` is
// left as it will be.
std::vector<WantedShard> SwitchPrimaries(const ClusterView& view, double aim, uint32_t switches_max,
                                         const std::string& reason, LoadBoard* board);

// The view once the goals are reached.
ClusterView After(ClusterView view, const std::vector<WantedShard>& goals);

// Where the copies of draining servers go, and nothing beside that. No goals: there are none there.
// FailedPrecondition: what finds no room or no other failure domain, and how much is missing.
absl::StatusOr<RebalanceWave> PlanDrain(const ClusterView& view);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_MOVES_H_
