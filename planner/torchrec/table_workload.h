// What one table is asked in a step: the inputs of both estimators, and of the enumerator.
//
// Of a table with constraints, `pooling_factors`, `num_poolings` and `batch_sizes` stand for its
// features, one each; what is missing comes from the features (pooling factor), is 1 (number of
// poolings), or is the workload's batch size. Source: planner/enumerators.py and
// planner/shard_estimators.py at a48cef7; there a table without constraints has one input of
// pooling factor 1, here one for each of its features.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_TABLE_WORKLOAD_H_
#define HOTBED_PLANNER_TORCHREC_TABLE_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"

namespace hotbed::torchrec {

struct TableWorkload {
  double ids = 0;           // a rank and step: sum of pooling factor x poolings x batch size
  double poolings = 0;      // a rank and step: sum of poolings x batch size
  double ids_reserved = 0;  // sum of pooling factor x batch size, as reservations count it
  bool pooled = true;       // combiner other than none
  bool weighted = false;    // any feature of the table is
  bool inference = false;   // forward only; no optimizer, no buffers
  std::optional<double> caching_ratio;
  double cache_misses = 0;  // rows a step over all ranks that the cache must fetch

  // Output vectors a rank and step: poolings, or ids of an unpooled table.
  double outputs() const { return pooled ? poolings : ids; }
};

// The constraint of each table, or none; by table.
std::vector<const TableConstraint*> ConstraintsByTable(const PlannerInput& input);

// By table. An input error where a constraint's three lists differ in length.
//
// `cache_misses` is TorchRec's expected lookups times the expected miss rate, which there come with
// the table's cache statistics: here from a table's measured `hotness` (the accesses that its
// hottest caching_ratio of rows do not get) and `reads_per_step` x trainers (ids x ranks where it
// is 0); 0 without hotness or cache_load_factor, as there without statistics.
PlanResult<std::vector<TableWorkload>> BuildTableWorkloads(const PlannerInput& input,
                                                           uint32_t ranks);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_TABLE_WORKLOAD_H_
