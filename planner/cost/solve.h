// A placement of a problem from nothing: the greedy, its fall-backs and the searches in order.
// Deterministic; bounded by options.evaluations_max, apart from the greedy passes, which are near
// linear in units.
//
//   1. Greedy by time; where a unit finds no room, greedy by room; where that fails too, in
//   problems of
//      at most kSmallUnits units, a search over all placements for one that fits.
//   2. Improvement of the slowest server down to kCloseEnough of the lower bound.
//   3. In small problems, a search over all placements for a better one.
// An error (insufficient_storage) says what is missing for the unit that found no place; in a small
// problem whose search was complete, that no placement fits is proven.
#ifndef HOTBED_PLANNER_COST_SOLVE_H_
#define HOTBED_PLANNER_COST_SOLVE_H_

#include <cstdint>

#include "planner/cost/local_search.h"
#include "planner/cost/placement_state.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"

namespace hotbed {

constexpr uint32_t kSmallUnits = 48;
constexpr double kCloseEnough = 1.0005;

// `state` must be empty, and holds the placement afterwards.
std::optional<PlanError> SolveFromNothing(const PlannerInput& input, PlacementState& state,
                                          int64_t lower_bound);

// Why `unit` has no place in `state`. missing_bytes: what its pinned servers lack for all units
// that are pinned inside of them, where they lack any; else what the server with the most room
// lacks for it.
PlanError NoRoomError(const PlannerInput& input, const PlacementState& state, uint32_t unit);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_SOLVE_H_
