// Moves as people see them, and helpers of the operations on moves. Pure functions of the state and
// the reports of servers.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MOVES_VIEW_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MOVES_VIEW_H_

#include <cstdint>
#include <vector>

#include "planner/coordinator/membership/membership.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"

namespace hotbed {

// At most `limit` shards whose goal can be withdrawn, because a replica that the goal wants is no
// member yet; the rules of membership then drop that replica. Only goals of request `number`; 0:
// all goals.
std::vector<uint64_t> GoalsToTakeBack(const ClusterState& state, uint64_t number, size_t limit);

// Lists goals, and snapshot transfers without a goal (refills, read replicas). Leaves out
// rebalancing.
v1::ListMovesReply ListMoves(const ClusterState& state, const Membership& membership,
                             const Leases& leases, const v1::ListMovesRequest& request);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MOVES_VIEW_H_
