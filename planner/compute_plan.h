// The planner: a pure function from a problem to a plan, under any strategy. Deterministic: the
// same input gives the same output, to the bit, on every machine; it reads no clock, no random
// device and no file. Safe from any thread.
#ifndef HOTBED_PLANNER_COMPUTE_PLAN_H_
#define HOTBED_PLANNER_COMPUTE_PLAN_H_

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Validates, plans with the input's strategy, and fills in the fields that every plan has: bytes,
// fused groups, outputs, the context hash and, if the input has a current plan, the moves. Shapes
// that no table of a cluster may have (dim, replicas) are refused with kind input.
PlanResult<PlannerOutput> ComputePlan(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COMPUTE_PLAN_H_
