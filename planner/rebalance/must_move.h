// The units of a current plan that break the rules of the new input, and why. Pure.
#ifndef HOTBED_PLANNER_REBALANCE_MUST_MOVE_H_
#define HOTBED_PLANNER_REBALANCE_MUST_MOVE_H_

#include <string>
#include <vector>

#include "planner/cost/placement_state.h"
#include "planner/model/planner_input.h"
#include "planner/rebalance/current_placement.h"

namespace hotbed {

// By unit: why it must move or be placed; empty if it may stay, and for units of new tables.
// `state` holds the current placement. Of a host group, the part on the host with the most bytes
// stays. From a server above its capacity, the smallest unit as large as the excess leaves, or else
// the largest, until the rest fits.
std::vector<std::string> MustMove(const PlannerInput& input, const PlacementState& state,
                                  const std::vector<CurrentUnit>& current);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REBALANCE_MUST_MOVE_H_
