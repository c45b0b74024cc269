// Which of its allowed shardings a table gets under the `cost` strategy (the order of preference is
// problem.h's), and how many column slices. Pure.
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

// `constraint` may be null; `usable` is the number of servers that aren't draining.
// strict_constraints where all that is allowed cuts columns and the table needs whole rows; a
// constraint's column_slices stands whatever is allowed.
PlanResult<ModeChoice> ChooseMode(const InputTable& table, const TableConstraint* constraint,
                                  const PlannerOptions& options, uint32_t usable);

// What the output calls a table: its mode where a constraint named it, else what became of it.
Sharding ShardingLabel(const ProblemTable& table, bool one_server, bool columns_cut,
                       bool slices_whole);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_TABLE_MODE_H_
