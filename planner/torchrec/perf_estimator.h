// TorchRec's wall-time estimate of one shard, formula by formula and in its order of floating
// operations (EmbeddingPerfEstimator, planner/shard_estimators.py at a48cef7). Milliseconds.
//
// W ranks, L ranks per host, n ids per rank and step, o output vectors per rank and step (n when
// unpooled), d columns of the shard, s bytes per element (of output vectors: on the wire, which may
// differ forward and backward), bw the kernel's bandwidth, r = ceil(n' W
// 8) bytes of ids (twice that when weighted).
//   table_wise, column_wise, table_column_wise (n' = n)
//     forward   (r + n W max(d, 32) s + o W d s) p / bw, p = 1 (d >= 128), 1.15 (>= 64), 1.75
//     comms     o W d s / bw(all-to-all), the same backward
//   row_wise (n' = n/W; o too when unpooled)
//     forward   (r + n' W d s + o W d s) / bw
//     comms     o W d s / bw(reduce-scatter); backward over all-gather, + o W d s 2.455 / bw
//   table_row_wise, grid (n' = n/L)
//     forward   as row_wise
//     comms     o W d s / bw(reduce-scatter in a host) + o (W/L) d s / bw(all-to-all between hosts)
//               if there are several hosts; backward the same + o W d s 2.455 / bw
//   data_parallel (r without W)
//     forward   (r + n d s + o d s) / bw
//     backward comms: all-reduce E d s (2k - 1) / k / bw(all-reduce), k = min(W/L, 2), twice that
//               when W > 2L; + E d s 9.22 / bw for the optimizer's kernels
//   backward = 2 forward, + 1.1 forward when weighted. Prefetch = misses d s / bw(HBM to DDR), with
//   misses/W for row_wise, misses/L for table_row_wise, and none for data_parallel.
//   Wire types (distributed/fbgemm_qcomm_codec.py): 4 bytes an element for fp32, 2 for fp16 and
//   bf16, 1 for fp8, int8 and mx4; the last and fp8 are 2 in a reduce-scatter, which no collective
//   supports. An unpooled table has its own type there. data_parallel has its own type always.
//   Inference keeps the forward terms of the first two groups, as in TorchRec.
//
// All shards of one layout have equal columns and therefore equal times, even empty ones.
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_PERF_ESTIMATOR_H_
#define HOTBED_PLANNER_TORCHREC_PERF_ESTIMATOR_H_

#include <cstdint>

#include "planner/model/planner_output.h"
#include "planner/torchrec/compute_kernel.h"
#include "planner/torchrec/rank_topology.h"
#include "planner/torchrec/table_workload.h"

namespace hotbed::torchrec {

struct ShardShape {
  double rows = 0;           // for data_parallel, which exchanges all gradients
  double columns = 0;        // of the shard
  double element_bytes = 0;  // of an element of the table, in memory and on the wire
};

// `kernel_bandwidth` is that of KernelBandwidth for the option's kernel.
TablePerf EstimateShardPerf(const RankTopology& topology, Sharding sharding,
                            double kernel_bandwidth, const TableWorkload& load,
                            const ShardShape& shape);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_PERF_ESTIMATOR_H_
