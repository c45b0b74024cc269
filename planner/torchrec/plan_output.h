// Turns TorchRec's ranks and shards into the planner's output.
//
// In row-wise types each shard is a primary range on its rank; empty shards are left out. With
// data_parallel the first rank has the primary and the others have a replica. Column shards of one
// table on one server are one range, and the widths are laid out over the table's columns in server
// order: column shards are equal in size and cost, so only their names change.
//
// `bytes` of a range and of a server are TorchRec's storage estimate, by which it packs: weights,
// optimizer state, cache and the step's buffers, on both tiers. A table's perf is that of one
// shard, because its shards are equal and work concurrently; a server's perf is the sum of its
// shards'. max_server_ms is the rating of the plan.
//
// lower_bound_ms holds for every plan of this search space: the slowest server takes at least the
// mean of all, (sum over tables of the least sum over shards of any option) / ranks, and at least
// the least time per shard of every table.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_PLAN_OUTPUT_H_
#define HOTBED_PLANNER_TORCHREC_PLAN_OUTPUT_H_

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"
#include "planner/torchrec/plan_search.h"
#include "planner/torchrec/storage_reservation.h"

namespace hotbed::torchrec {

// Strategy, tables, servers (without groups) and cost.
PlannerOutput DescribePlan(const PlannerInput& input, const SearchSpace& space,
                           const RankTopology& topology, const Reserved& reserved,
                           const FoundPlan& plan);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_PLAN_OUTPUT_H_
