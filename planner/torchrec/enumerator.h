// Every way to shard every table: sharding types x kernels that its module offers and its
// constraints allow, with estimates (EmbeddingEnumerator, planner/enumerators.py at a48cef7).
//
// Rules: grid only where a constraint names it; key-value kernels likewise; dense never together
// with fused; `columns_min` sets the least column shard. Tables whose constraint names quantised
// kernels are TorchRec's quantised modules; tables with combiner none are its EmbeddingCollection.
// TorchRec takes constrained types and kernels in the order of a Python set, which changes from run
// to run; here it is always the module's order.
//
// Ours, beyond TorchRec:
//   - pins: a constraint's `servers` are the only ranks the table may use. Types that use all ranks
//     need all of them pinned, table_row_wise and grid a host with all of its servers.
//   - types that would cut the columns of a table that needs whole-row statistics are offered only
//     with row_statistics=slice or if the constraint names the type.
//   - types that would make more than 65,536 shards of a table are left out.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_ENUMERATOR_H_
#define HOTBED_PLANNER_TORCHREC_ENUMERATOR_H_

#include <cstdint>
#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/torchrec/rank_topology.h"
#include "planner/torchrec/sharding_option.h"
#include "planner/torchrec/table_workload.h"

namespace hotbed::torchrec {

// Ranks that each table may use, ascending; empty: all. Error strict_constraints if all servers of
// a pin are draining.
PlanResult<std::vector<std::vector<uint32_t>>> PinnedRanks(const PlannerInput& input,
                                                           const RankTopology& topology);

// Error strict_constraints if a table is left without a choice or asks for backups (replicas),
// which TorchRec does not know; error input for an unknown kernel. `pins` is from PinnedRanks.
PlanResult<SearchSpace> EnumerateOptions(const PlannerInput& input, const RankTopology& topology,
                                         const std::vector<TableWorkload>& loads,
                                         const std::vector<std::vector<uint32_t>>& pins);

// `option` of a table, estimated with another kernel or another load.
ShardingOption WithKernel(const InputTable& table, const TableWorkload& load,
                          const RankTopology& topology, const ShardingOption& option,
                          Kernel kernel);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_ENUMERATOR_H_
