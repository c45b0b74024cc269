// Why TorchRec's search found no plan, with its taxonomy (planner/planners.py at a48cef7):
// insufficient_storage when the smallest proposal is larger than all ranks together,
// strict_constraints when it would fit in sum but no shard layout found room; ours: partition when
// evaluations_max ended the search before a proposal was placed, or grid shards cannot be dealt out
// to hosts. Names the table, what it needs, what there is, and what would help.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_SEARCH_ERROR_H_
#define HOTBED_PLANNER_TORCHREC_SEARCH_ERROR_H_

#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/torchrec/plan_search.h"
#include "planner/torchrec/storage_reservation.h"

namespace hotbed::torchrec {

// `result` must be without a plan.
PlanError ExplainFailure(const PlannerInput& input, const SearchSpace& space,
                         const RankTopology& topology, const Reserved& reserved,
                         const SearchResult& result);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_SEARCH_ERROR_H_
