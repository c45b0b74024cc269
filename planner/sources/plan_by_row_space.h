// The placements of CachedEmbedding's LoadBalanceManager, whose features are our tables, counted
// from 0 in the input's order:
// - fair: the concatenated rows are cut into equal contiguous ranges, one a server (divide_rows.h).
//   Of a hashed table the cut is made at the nearest bucket.
// - whole_feature: whole tables to servers, in the order that the options name (group_features.h).
// `strict`: refuses fewer tables than servers. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_PLAN_BY_ROW_SPACE_H_
#define HOTBED_PLANNER_SOURCES_PLAN_BY_ROW_SPACE_H_

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Ranges, strategy and what these two strategies alone report, for FinishPlan; `input` must be
// valid, its strategy one of the two. Of each server that takes part: `row_base`, the rows on the
// servers before it; `features`, those whose tables have rows there; `feature_offsets`, where each
// begins in the server's own row space. Errors: strict_constraints.
PlanResult<PlannerOutput> PlanByRowSpace(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_PLAN_BY_ROW_SPACE_H_
