// The moves from one plan to another, by ranges. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_MODEL_PLAN_DIFFERENCES_H_
#define HOTBED_PLANNER_MODEL_PLAN_DIFFERENCES_H_

#include <string>
#include <vector>

#include "planner/model/planner_output.h"

namespace hotbed {

// One move per rectangle whose primary is on another server (by name) than before; the rectangles
// are the intersections of the primary ranges of both plans. In the order of `after`, then of
// `before`. Tables that only one of the plans has are created or dropped, not moved. `from` is
// empty if that server is not in `after`. The bytes are the rectangle's share of its range in
// `after`. The order ignores capacities.
std::vector<PlannedMove> PlanDifferences(const PlannerOutput& before, const PlannerOutput& after,
                                         const std::string& reason);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLAN_DIFFERENCES_H_
