// What has to move to come from one plan to another, by ranges. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_MODEL_PLAN_DIFFERENCES_H_
#define HOTBED_PLANNER_MODEL_PLAN_DIFFERENCES_H_

#include <string>
#include <vector>

#include "planner/model/planner_output.h"

namespace hotbed {

// One move for each rectangle whose primary is on another server (by name) than before: of each
// pair of primaries of both plans, where they meet. In the order of `after`, then of `before`.
// Tables that only one of the plans has are created or dropped, not moved. `from` is empty where
// the server is none of those of `after`. Bytes are the moved part's share of the range in which it
// comes to lie. The order does not look at capacities.
std::vector<PlannedMove> PlanDifferences(const PlannerOutput& before, const PlannerOutput& after,
                                         const std::string& reason);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLAN_DIFFERENCES_H_
