// The difference of two plans as moves that can be executed one after the other. Pure and
// deterministic; for any two plans over the same tables, by whatever strategy. (The `cost` strategy
// makes its moves while it plans: planner/rebalance/rebalance.h.)
//
// Both plans' ranges are cut at each other's edges, and for each piece the servers that hold it in
// any role are compared by name: a server that no longer holds it gives the piece to one that newly
// does, in the order of the servers. `from` is empty if the piece gets more holders than before, or
// if the former holder is no longer among the input's servers. Pieces and replicas that only
// disappear need no move: they are dropped before the first move. New tables are made after the
// last one.
//
// The moves come in the order of tables, rows and columns, but each is deferred until its target
// has room while its source still holds the piece. Capacities are those of the input: all tiers
// together, device only with cuda. A server that starts above its capacity may only shrink.
#ifndef HOTBED_PLANNER_MODEL_MOVES_H_
#define HOTBED_PLANNER_MODEL_MOVES_H_

#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// The moves from `current` to `wanted`, both plans of the input's tables. Error `partition` if no
// order keeps the capacities without moving a piece twice; it names the piece and the missing
// bytes.
PlanResult<std::vector<PlannedMove>> MovesBetween(const PlannerInput& input,
                                                  const PlannerOutput& current,
                                                  const PlannerOutput& wanted);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_MOVES_H_
