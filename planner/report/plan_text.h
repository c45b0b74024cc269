// A plan for people, as text of lines of at most 100 columns. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_REPORT_PLAN_TEXT_H_
#define HOTBED_PLANNER_REPORT_PLAN_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// - for each server: bytes by tier (with the percentage used, if `input` is given), elements,
//   shards, and milliseconds by term if the strategy has a cost model;
// - for each table: sharding, shards, servers, bytes, hotness, cost;
// - the binding limit, the cost and its distance to the bound, the critical path;
// - the imbalance of elements, bytes and milliseconds (imbalance.h);
// - moves, each with its reason.
// Shows the `rows_max` largest servers and tables and the first moves, and counts the rest. `input`
// may be null; capacities and hotness are then left out.
std::string PlanText(const PlannerOutput& plan, const PlannerInput* input, size_t rows_max = 60);

// Kind, table, limit and missing bytes of an error, and its message, wrapped.
std::string PlanErrorText(const PlanError& error);

// The number of moves and their bytes, then `note`; for each of the first `rows_max` moves, a line
// with the moved range and one with source, target, bytes and reason; the number of the rest.
std::string MovesText(const std::vector<PlannedMove>& moves, absl::string_view note,
                      size_t rows_max);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REPORT_PLAN_TEXT_H_
