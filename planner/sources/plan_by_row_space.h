// The placements of CachedEmbedding's LoadBalanceManager, whose features are our tables, counted
// from 0 in the input's order:
// - fair: the concatenated rows are cut into equal contiguous ranges, one per server
//   (divide_rows.h). A hashed table is cut at the nearest bucket.
// - whole_feature: whole tables to servers, in the order that the options name (group_features.h).
// `strict`: refuses fewer tables than servers. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_PLAN_BY_ROW_SPACE_H_
#define HOTBED_PLANNER_SOURCES_PLAN_BY_ROW_SPACE_H_

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Fills in ranges, strategy and the fields of these two strategies, for FinishPlan. `input` must be
// valid, and its strategy one of the two. The fields of each server that takes part are `row_base`,
// the rows on the servers before it; `features`, those whose tables have rows there;
// `feature_offsets`, where each begins in the server's own row space. Errors: strict_constraints.
PlanResult<PlannerOutput> PlanByRowSpace(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_PLAN_BY_ROW_SPACE_H_
