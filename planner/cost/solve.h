// Places a problem from scratch: the greedy, its fall-backs and the searches, in order.
// Deterministic; bounded by options.evaluations_max, apart from the greedy passes, which are near
// linear in units.
//
//   1. Greedy by time. If a unit finds no room, greedy by room. If that fails too and the problem
//      has at most kSmallUnits units, a search over all placements for one that fits.
//   2. Improvement of the slowest server, down to kCloseEnough of the lower bound.
//   3. In small problems, a search over all placements for a better one.
//
// The error (insufficient_storage) names the bytes missing for the unit that found no place. In a
// small problem whose search was complete, it is proven that no placement fits.
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

// Why `unit` has no place in `state`. missing_bytes are those that its pinned servers lack for all
// units pinned within them, if any; else those that the server with the most room lacks for the
// unit.
PlanError NoRoomError(const PlannerInput& input, const PlacementState& state, uint32_t unit);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_SOLVE_H_
