// The planner: a pure function from a problem to a plan. Deterministic: the same input gives the
// same output, to the bit, on every machine; no clock (DECISIONS T2), no random device, no files.
// Safe from any thread.
#ifndef HOTBED_PLANNER_COMPUTE_PLAN_H_
#define HOTBED_PLANNER_COMPUTE_PLAN_H_

#include <optional>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// The first thing that is wrong with the input, if any: no tables or servers, zero rows, dim 0,
// equal names, indices out of range, numbers that are not finite or beyond 2^63, hotness that does
// not ascend, a current plan that does not tile its tables.
std::optional<PlanError> ValidateInput(const PlannerInput& input);

// Validates, plans with the input's strategy, and fills in what every plan has: bytes, fused
// groups, outputs, the context hash and, where the input has a current plan, the moves.
PlanResult<PlannerOutput> ComputePlan(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COMPUTE_PLAN_H_
