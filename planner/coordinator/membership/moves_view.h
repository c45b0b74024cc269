// Moves as people see them, and what operations on moves share. Pure functions of the state and of
// what servers report.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MOVES_VIEW_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MOVES_VIEW_H_

#include <cstdint>
#include <vector>

#include "planner/coordinator/membership/membership.h"
#include "planner/coordinator/membership/replica_placement.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"

namespace hotbed {

// Shards whose goal can be taken back: some copy that it wants is no member yet. Nothing wants the
// copy then any more, and the rules of membership drop it. Of request `number`, 0: of all; at most
// `limit`.
std::vector<uint64_t> GoalsToTakeBack(const ClusterState& state, uint64_t number, size_t limit);

// Goals, and copies under way without one (refills, read copies); nothing of rebalancing.
v1::ListMovesReply ListMoves(const ClusterState& state, const Membership& membership,
                             const Leases& leases, const v1::ListMovesRequest& request);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_MOVES_VIEW_H_
