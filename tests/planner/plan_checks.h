// The rules that every plan of the `cost` strategy keeps, checked on the output alone by counting:
// none of the planner's own code. Each returns the first breach in words, or an empty string.
#ifndef HOTBED_TESTS_PLANNER_PLAN_CHECKS_H_
#define HOTBED_TESTS_PLANNER_PLAN_CHECKS_H_

#include <string>

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Bytes by tier are within every server's, and what the ranges say; draining servers are empty.
std::string CheckCapacities(const PlannerInput& input, const PlannerOutput& plan);

// Primaries tile every table; every replica is of a primary's range; as many as the table wants;
// all on distinct hosts.
std::string CheckOwners(const PlannerInput& input, const PlannerOutput& plan);

// Pins and shardings of the constraints; no column cut where rows must be whole.
std::string CheckConstraints(const PlannerInput& input, const PlannerOutput& plan);

// Shards keep the limits of planner/model/refine.h.
std::string CheckShards(const PlannerInput& input, const PlannerOutput& plan);

// All of these.
std::string CheckPlan(const PlannerInput& input, const PlannerOutput& plan);

// Executes the moves one by one on input.current, whose ranges must be shards: nothing moves twice,
// the target has room while the source still holds it, and at the end primaries and replicas lie
// where `plan` says, but for what is new. A server that is above its capacity at the start may only
// shrink.
std::string CheckMoves(const PlannerInput& input, const PlannerOutput& plan);

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLANNER_PLAN_CHECKS_H_
