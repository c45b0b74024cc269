// Two plans side by side, as text of lines of at most 100 columns. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_REPORT_PLAN_DIFF_H_
#define HOTBED_PLANNER_REPORT_PLAN_DIFF_H_

#include <cstddef>
#include <string>

#include "planner/model/planner_output.h"

namespace hotbed {

// What has to move (plan_differences.h), then every number that differs, before and after: of the
// whole, of each server and of each table (which are matched by name). Equal plans say so.
// Of more than `rows_max` rows of a kind the first are shown, and the rest is counted.
std::string PlanDiffText(const PlannerOutput& before, const PlannerOutput& after,
                         size_t rows_max = 60);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_PLAN_DIFF_H_
