// The strategy `cost`, the default of a cluster: minimises the time per step of the slowest server
// that is not draining, within every capacity. The model: planner/cost/cost_model.h, access_curve.h
// and tier_load.h; the searches: solve.h; the bound that the reported gap is measured against:
// lower_bound.h; with a current plan: planner/rebalance/rebalance.h.
//
// Pure and deterministic to the bit; safe from any thread. Time near linear in shards and servers.
#ifndef HOTBED_PLANNER_PLAN_BY_COST_H_
#define HOTBED_PLANNER_PLAN_BY_COST_H_

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Fills strategy, tables (each shard a range, in the order of planner_output.h), servers (without
// groups), cost and moves. The input must have passed ValidateInput. Errors: those of BuildProblem,
// and insufficient_storage with the bytes that are missing; with a current plan those of Rebalance.
PlanResult<PlannerOutput> PlanByCost(const PlannerInput& input);

// Validates the input, plans by cost whatever strategy the input names, and fills in the fields
// that every plan has (FinishPlan). This is ComputePlan for the strategy `cost`.
PlanResult<PlannerOutput> PlanCluster(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_PLAN_BY_COST_H_
