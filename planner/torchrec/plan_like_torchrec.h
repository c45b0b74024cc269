// TorchRec's planner in a compatible mode (`strategy: torchrec`): the same seven sharding types,
// estimates, proposals, partitioner and rating, from the same constants. Section "TorchRec mode" of
// docs/planner.md says where it differs and why; the headers of this folder give each rule with its
// source.
//
// Pure and deterministic; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_PLAN_LIKE_TORCHREC_H_
#define HOTBED_PLANNER_TORCHREC_PLAN_LIKE_TORCHREC_H_

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// `input` must have passed ValidateInput. Fills in strategy, tables with perf, servers with perf,
// bytes and elements, and cost. Errors: input, strict_constraints, insufficient_storage, partition.
PlanResult<PlannerOutput> PlanLikeTorchrec(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_TORCHREC_PLAN_LIKE_TORCHREC_H_
