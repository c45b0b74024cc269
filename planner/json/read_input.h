// The planner's input from JSON as docs/planner.md describes it. Strict: an unknown key is an
// error that names the nearest known one; every error is of kind input and begins with the path of
// what is wrong, as in tables[3].zipf. Names are resolved to indices here; what needs a look at the
// whole (equal names, order of the hotness, a current plan that does not tile) is ValidateInput's.
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_JSON_READ_INPUT_H_
#define HOTBED_PLANNER_JSON_READ_INPUT_H_

#include "absl/strings/string_view.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// A table of which the text names neither optimizer nor row_statistics, nor int8, is read with
// row_statistics "slice" under the strategies basic, memory_balanced, memory_optimized and
// column_even: the systems that they come from slice the columns of any table (DECISIONS P5 is
// about tables that say what they need).
PlanResult<PlannerInput> ReadPlannerInput(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_JSON_READ_INPUT_H_
