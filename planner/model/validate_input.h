// Checks a planner's input before any strategy sees it. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_MODEL_VALIDATE_INPUT_H_
#define HOTBED_PLANNER_MODEL_VALIDATE_INPUT_H_

#include <optional>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// The first defect of the input, if any: no tables or servers, zero rows, dim 0, equal names,
// indices out of range, numbers that are not finite or beyond 2^63, hotness that does not ascend, a
// current plan that does not tile its tables.
std::optional<PlanError> ValidateInput(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_VALIDATE_INPUT_H_
