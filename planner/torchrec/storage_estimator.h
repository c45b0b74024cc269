// TorchRec's estimate of what a shard stores, by tier (EmbeddingStorageEstimator,
// planner/shard_estimators.py at a48cef7). Bytes.
//
// With T the table's bytes, a = shard elements / table elements (1 for data_parallel), n ids and o
// output vectors per rank and step as in perf_estimator.h:
//   weights    ceil(T a): on the device for dense, fused and quant kernels (host memory on a cpu),
//              in host memory for *_uvm, in both for *_uvm_caching: there the device's T is
//              round(T r), r = cache_load_factor or 0.2
//   optimizer  ceil(weights m), in each tier: m = 0 (none, sgd), 2 (adam), 1/D (row-wise Adagrad),
//              else 1
//   cache      ceil(rows (4 + 16 r)) on the device, for *_uvm_caching
//   key-value  nothing of the three, as there
//   buffers    input + output on the device (cpu: in host memory):
//              data_parallel                 ceil(n 8) + ceil(o D s)
//              table_wise                    ceil(n W 8) + ceil(o W D s)
//              column_wise, table_column_wise  the same with the shard's columns
//              row_wise; table_row_wise, grid  the same with n/W; n/L; none for an empty shard
//   pipelines  on cuda, in place of input + output: 2 input for sparse_dist; 3 input for prefetch,
//              and (1 + 6 / prefetch_passes) input more where the kernel caches rows. Outputs live
//              only for a moment and count only with run_embedding_at_peak_memory.
//   inference  weights only
// Quantised kernels hold 8-bit rows: D + 4 bytes rounded up to 16, plus 4 bytes per row.
// Rows of a hashed table's shard are its share of the expected rows, rounded up.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_STORAGE_ESTIMATOR_H_
#define HOTBED_PLANNER_TORCHREC_STORAGE_ESTIMATOR_H_

#include <cstdint>

#include "planner/model/planner_input.h"
#include "planner/torchrec/compute_kernel.h"
#include "planner/torchrec/estimate.h"
#include "planner/torchrec/rank_topology.h"
#include "planner/torchrec/shard_layout.h"
#include "planner/torchrec/table_workload.h"

namespace hotbed::torchrec {

// Bytes of a table's element as TorchRec's tensor has them: 4, 2 or 1.
double ElementBytes(const InputTable& table);

// Bytes of a row of `columns` quantised elements.
uint64_t QuantisedRowBytes(uint32_t columns);

// The optimizer's bytes over the weights' bytes.
double OptimizerFactor(PlannerOptimizer optimizer, uint32_t dim);

// Rows that `units` of a table stand for (units of a hashed table are buckets).
uint64_t RowsOfUnits(const InputTable& table, uint64_t units);

Storage EstimateShardStorage(const RankTopology& topology, const InputTable& table,
                             const TableWorkload& load, Sharding sharding, Kernel kernel,
                             const ShardRun& shard);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_STORAGE_ESTIMATOR_H_
