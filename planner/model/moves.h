// The difference of two plans as moves that can be executed one after the other. Pure and
// deterministic; for any two plans over the same tables, by whatever strategy. (The `cost` strategy
// makes its moves while it plans: planner/rebalance/rebalance.h.)
//
// Both plans' ranges are cut at each other's edges, and for each piece the servers that hold it (in
// any role) are compared by name: one that no longer does gives the piece to one that newly does,
// in the order of the servers. Where more hold it than before, or a holder isn't among the input's
// servers any more, `from` is empty. Pieces, and copies, that only go away need no move: they are
// dropped before the first one. New tables are made after the last one.
//
// Order: the moves in the order of tables, rows and columns, each put off until its target has room
// while its source still holds the piece; capacities are the input's (all tiers together; device
// only with cuda). A server that is above its capacity at the start may only shrink.
#ifndef HOTBED_PLANNER_MODEL_MOVES_H_
#define HOTBED_PLANNER_MODEL_MOVES_H_

#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// From `current` to `wanted`, both plans of the input's tables. `partition` where no order keeps
// the capacities without moving a piece twice: the error names the piece and the bytes that are
// missing.
PlanResult<std::vector<PlannedMove>> MovesBetween(const PlannerInput& input,
                                                  const PlannerOutput& current,
                                                  const PlannerOutput& wanted);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_MOVES_H_
