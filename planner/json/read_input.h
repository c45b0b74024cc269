// Reads the planner's input from JSON as docs/planner.md describes it. Strict: an unknown key is an
// error that names the nearest known one; every error is of kind input and begins with the path of
// the bad value, as in tables[3].zipf. Names are resolved to indices here; ValidateInput makes the
// checks that need the whole input (equal names, order of the hotness, a current plan that does not
// tile). Pure; safe from any thread.
#ifndef HOTBED_PLANNER_JSON_READ_INPUT_H_
#define HOTBED_PLANNER_JSON_READ_INPUT_H_

#include "absl/strings/string_view.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// Under the strategies basic, memory_balanced, memory_optimized and column_even, a table whose text
// names neither optimizer nor row_statistics nor int8 gets row_statistics "slice", because the
// systems of these strategies slice the columns of any table.
PlanResult<PlannerInput> ReadPlannerInput(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_JSON_READ_INPUT_H_
