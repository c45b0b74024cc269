// The planner's moves as goals: the placement wanted of each shard that changes. Pure functions.
#ifndef HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_MOVES_H_
#define HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_MOVES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/balance/load_meter.h"
#include "planner/model/planner_output.h"
#include "planner/plan_on_cluster.h"

namespace hotbed {

struct RebalanceWave {
  std::string cause;   // drain, arrival, loss or imbalance
  std::string reason;  // for the event log: the cause, with names and numbers
  std::vector<WantedShard> goals;
  std::optional<ShardId> split;  // in place of goals: first this shard is to be cut in two
  uint64_t bytes = 0;            // to be sent
  uint32_t moves = 0;      // replicas that change servers; the other goals only switch primaries
  bool cut_short = false;  // the limit left out further moves
};

// The servers that hold a replica of any shard.
std::set<ServerId> HoldersIn(const ClusterView& view);

// The first `moves_max` of `moves` as goals with `reason`. The moves are those of the problem
// ClusterProblem(view). A move of several shards counts each of them and is carried out whole or
// not at all. A primary on a draining server gives its role to a backup that stays, if there is
// one, else to the server that takes the replica.
RebalanceWave WaveOf(const ClusterView& view, const std::vector<PlannedMove>& moves,
                     uint32_t moves_max, const std::string& reason);

// The planner's moves for the view, with the number of evaluations bounded to some tens of
// milliseconds. Errors as in ToStatus.
absl::StatusOr<std::vector<PlannedMove>> MovesFor(const ClusterView& view);

// Exchanges primaries with their backups, the most pulled first, as long as that takes load off a
// server above `aim` times the mean and the other stays below. At most `switches_max`. Updates
// `board` to the result.
std::vector<WantedShard> SwitchPrimaries(const ClusterView& view, double aim, uint32_t switches_max,
                                         const std::string& reason, LoadBoard* board);

// The goals that empty the draining servers, and no others; none if those servers hold nothing.
// FailedPrecondition names the shard that fits nowhere and the bytes or failure domain missing.
absl::StatusOr<RebalanceWave> PlanDrain(const ClusterView& view);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_REBALANCE_MOVES_H_
