// What of a current plan breaks the rules of the new input, and why. Pure.
#ifndef HOTBED_PLANNER_REBALANCE_MUST_MOVE_H_
#define HOTBED_PLANNER_REBALANCE_MUST_MOVE_H_

#include <string>
#include <vector>

#include "planner/cost/placement_state.h"
#include "planner/model/planner_input.h"
#include "planner/rebalance/current_placement.h"

namespace hotbed {

// By unit: the reason for which it must move, or have a place at all; empty where it may stay and
// for units of new tables. `state` holds the current placement. Of a host group what stays is the
// part on the host with the most bytes; of a server above its capacity the smallest unit that is as
// large as the excess leaves, or else the largest, until the rest fits.
std::vector<std::string> MustMove(const PlannerInput& input, const PlacementState& state,
                                  const std::vector<CurrentUnit>& current);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REBALANCE_MUST_MOVE_H_
