// Checks what the sources' strategies ignore while they place: the servers' capacities and the
// tables' constraints. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_CHECK_PLAN_H_
#define HOTBED_PLANNER_SOURCES_CHECK_PLAN_H_

#include <optional>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// The first fault of a finished plan, if any:
// - strict_constraints: a table's constraint (sharding, servers, columns_min) that the strategy's
//   rules break, or replicas, which they do not make;
// - insufficient_storage: the server with the most bytes above its host_bytes or device_bytes,
//   with the largest table there.
std::optional<PlanError> CheckSourcePlan(const PlannerInput& input, const PlannerOutput& plan);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_CHECK_PLAN_H_
