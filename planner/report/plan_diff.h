// Two plans side by side, as text of lines of at most 100 columns. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_REPORT_PLAN_DIFF_H_
#define HOTBED_PLANNER_REPORT_PLAN_DIFF_H_

#include <cstddef>
#include <string>

#include "planner/model/planner_output.h"

namespace hotbed {

// The moves (plan_differences.h), then every number that differs, before and after: for the whole
// plan, for each server and for each table (matched by name). Says so if the plans are equal. Shows
// the first `rows_max` rows of a kind and counts the rest.
std::string PlanDiffText(const PlannerOutput& before, const PlannerOutput& after,
                         size_t rows_max = 60);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_PLAN_DIFF_H_
