// The load of one table per step: the input of both estimators and of the enumerator.
//
// For a table with constraints, `pooling_factors`, `num_poolings` and `batch_sizes` have one entry
// per feature. Missing lists default to the features' pooling factors, 1 pooling, and the
// workload's batch size. Source: planner/enumerators.py and planner/shard_estimators.py at a48cef7.
// TorchRec gives a table without constraints one input of pooling factor 1; here it has one input
// per feature.
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
  double ids = 0;           // per rank and step: sum of pooling factor x poolings x batch size
  double poolings = 0;      // per rank and step: sum of poolings x batch size
  double ids_reserved = 0;  // sum of pooling factor x batch size, as reservations count it
  bool pooled = true;       // combiner other than none
  bool weighted = false;    // any feature of the table is weighted
  bool inference = false;   // forward only; no optimizer, no buffers
  std::optional<double> caching_ratio;
  // Cache statistics, 0 without `hotness`. Of all ranks, per step:
  double lookups = 0;
  double cacheability = 0;  // the area under the curve of misses over the share of rows cached
  double cache_misses = 0;  // rows that the cache must fetch; 0 without caching_ratio
  TorchrecPipeline pipeline = TorchrecPipeline::kNone;
  uint32_t prefetch_passes = 1;
  bool outputs_at_peak = false;                     // TorchrecOptions::run_embedding_at_peak_memory
  TorchrecWire forward_wire = TorchrecWire::kFp32;  // both fp32: the table's own type
  TorchrecWire backward_wire = TorchrecWire::kFp32;

  // Output vectors per rank and step: poolings, or ids for an unpooled table.
  double outputs() const { return pooled ? poolings : ids; }
};

// The constraint of each table, or none; by table.
std::vector<const TableConstraint*> ConstraintsByTable(const PlannerInput& input);

// By table. Error input if a constraint's three lists differ in length.
//
// `cache_misses` is the expected lookups times the expected miss rate. TorchRec takes both from the
// table's cache statistics. Here the miss rate is the share of accesses outside of the hottest
// caching_ratio of rows (measured `hotness`), and the lookups are `reads_per_step` x trainers, or
// ids x ranks if that is 0. It is 0 without hotness or cache_load_factor.
PlanResult<std::vector<TableWorkload>> BuildTableWorkloads(const PlannerInput& input,
                                                           uint32_t ranks);

// `load` with another share of the table's rows in the cache; absent: no cache.
TableWorkload WithCache(TableWorkload load, const InputTable& table, std::optional<double> ratio);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_TABLE_WORKLOAD_H_
