// From a current plan to one that keeps the rules under the new input and is fast enough, with few
// bytes moved. Pure and deterministic; safe from any thread.
//
// The result is made by executing its moves on the current plan one after the other: each target
// has room while the source still holds the shard, nothing moves twice, and so the order of `moves`
// breaks no capacity. Before the first move, tables and copies that the input no longer has are
// dropped; after the last one, new tables are made. A primary whose server is gone goes to a backup
// without a move.
//
// 1. Must move, largest first: what lies on a draining server, outside of its pins, above a
// server's
//    capacity, beside another copy on its host, or apart where the constraint wants it together;
//    and copies that are missing, because their server is gone (their `from` is empty) or the table
//    wants more. Each goes where the greedy would put it; where there is no room, a smaller unit
//    moves first.
// 2. May move, in the order of time relieved a byte: units off the slowest server to the fastest
// ones.
//    Nothing of this happens while the slowest server's time is within kGoodEnough of the lower
//    bound; it goes on until kAimedAt of it, until move_bytes_max is reached or nothing helps; and
//    is left out altogether unless it makes the slowest server faster by kWorthMoving.
//
// What lies on an unreachable server stays there; no bound is known then (lower_bound 0), and 2.
// goes on until nothing helps.
//
// Errors, beside those of BuildProblem: insufficient_storage where something of 1 or a new table
// finds no room, with what is missing; strict_constraints where 1 needs more than move_bytes_max,
// with the difference in missing_bytes. So a draining server ends empty, or there is no plan.
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

// `input.current` must be there; `state` must be empty and of the input's problem, and holds the
// new placement afterwards.
PlanResult<std::vector<PlannedMove>> Rebalance(const PlannerInput& input, PlacementState& state,
                                               int64_t lower_bound);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REBALANCE_REBALANCE_H_
