// Chooses among a table's allowed shardings under the `cost` strategy (in the order of preference
// of problem.h), and its number of column slices. Pure.
#ifndef HOTBED_PLANNER_COST_TABLE_MODE_H_
#define HOTBED_PLANNER_COST_TABLE_MODE_H_

#include <cstdint>

#include "planner/cost/problem.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"

namespace hotbed {

struct ModeChoice {
  TableMode mode = TableMode::kRows;
  bool constrained = false;
  uint32_t slices = 1;
  bool slices_fixed = false;  // by the constraint's column_slices
};

// `constraint` may be null; `usable` is the number of servers that are not draining. Error
// strict_constraints if the table needs whole rows and every allowed sharding cuts columns. A
// constraint's column_slices holds whatever is allowed.
PlanResult<ModeChoice> ChooseMode(const InputTable& table, const TableConstraint* constraint,
                                  const PlannerOptions& options, uint32_t usable);

// The sharding in the output: the mode if a constraint named it, else the one that resulted.
Sharding ShardingLabel(const ProblemTable& table, bool one_server, bool columns_cut,
                       bool slices_whole);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_TABLE_MODE_H_
