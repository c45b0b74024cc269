// Moves from a current plan to one that keeps the rules under the new input and is fast enough,
// with few bytes moved. Pure and deterministic; safe from any thread.
//
// Executing the moves in order gives the result: each target has room while the source still holds
// the shard, and nothing moves twice, so the order of `moves` breaks no capacity. Tables and
// replicas that the input no longer has are dropped before the first move; new tables are made
// after the last one. A primary whose server is gone passes to a backup without a move.
//
// 1. Must move, largest first: units on a draining server, outside of their pins, above a server's
//    capacity, on a host with another replica, or apart although the constraint wants them
//    together; and replicas that are missing, because their server is gone (`from` is then empty)
//    or the table wants more. Each goes where the greedy would put it; if there is no room, a
//    smaller unit moves first.
// 2. May move, in the order of time relieved per byte: units off the slowest server to the fastest
//    ones; where none can, two units change places, if one of them has room at both ends first.
//    This begins only if the slowest server's time exceeds the lower bound times kGoodEnough.
//    It continues until kAimedAt of the bound, until move_bytes_max is reached, or until nothing
//    helps. It is left out unless it brings the slowest server below kWorthMoving of its time.
//
// Units on an unreachable server stay there. No bound is known then (lower_bound 0), and step 2
// continues until nothing helps.
//
// Errors, in addition to those of BuildProblem: insufficient_storage if a unit of step 1 or of a
// new table finds no room, with the missing bytes; strict_constraints if step 1 needs more than
// move_bytes_max, with the difference in missing_bytes. So a draining server ends empty, or there
// is no plan.
#ifndef HOTBED_PLANNER_REBALANCE_REBALANCE_H_
#define HOTBED_PLANNER_REBALANCE_REBALANCE_H_

#include <cstdint>
#include <vector>

#include "planner/cost/placement_state.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

constexpr double kGoodEnough = 1.05;
constexpr double kAimedAt = 1.02;
constexpr double kWorthMoving = 0.98;

// `input.current` must be set; `state` must be empty and of the input's problem, and holds the new
// placement afterwards.
PlanResult<std::vector<PlannedMove>> Rebalance(const PlannerInput& input, PlacementState& state,
                                               int64_t lower_bound);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REBALANCE_REBALANCE_H_
