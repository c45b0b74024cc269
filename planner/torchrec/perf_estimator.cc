#include "planner/torchrec/perf_estimator.h"

#include <algorithm>
#include <cmath>

#include "planner/model/cost_constants.h"

namespace hotbed::torchrec {
namespace {

constexpr double kColumnsOfAWarp = 32;
constexpr double kFullBlockColumns = 128;
constexpr double kHalfBlockPenalty = 1.15;
constexpr double kQuarterBlockPenalty = 1.75;
constexpr double kBackwardFactor = 2;
constexpr double kWeightedBackwardFactor = 1;
constexpr double kWeightedKernelFactor = 1.1;
constexpr double kBatchedCopyFactor = 2.455;
constexpr double kOptimizerKernelsFactor = 9.22;

double IdBytes(double ids, double ranks, bool weighted) {
  const double bytes = std::ceil(ids * ranks * kIdBytes);
  return weighted ? bytes * 2 : bytes;
}

double BackwardCompute(double forward, bool weighted) {
  double backward = forward * kBackwardFactor;
  if (!weighted) return backward + 0;
  backward = backward * kWeightedBackwardFactor;
  return backward + forward * kWeightedKernelFactor;
}

double BlockPenalty(double columns) {
  if (columns >= kFullBlockColumns) return 1;
  return columns >= 64 ? kHalfBlockPenalty : kQuarterBlockPenalty;
}

// Bytes of an element of an output vector.
struct WireBytes {
  double all_to_all = 0;
  double reduce_scatter = 0;
};

double BytesOfWire(TorchrecWire wire) {
  switch (wire) {
    case TorchrecWire::kFp32:
      return 4;
    case TorchrecWire::kFp16:
    case TorchrecWire::kBf16:
      return 2;
    case TorchrecWire::kFp8:
    case TorchrecWire::kInt8:
    case TorchrecWire::kMx4:
      return 1;
  }
  return 4;
}

WireBytes WireOf(const TableWorkload& load, TorchrecWire wire, double element_bytes) {
  if (load.forward_wire == TorchrecWire::kFp32 && load.backward_wire == TorchrecWire::kFp32) {
    return {element_bytes, element_bytes};
  }
  const bool wider = wire == TorchrecWire::kFp8 || wire == TorchrecWire::kMx4;
  const double bytes = BytesOfWire(wire);
  return {bytes, !load.pooled ? element_bytes : wider ? 2 : bytes};
}

struct Estimate {
  const RankTopology& topology;
  const double bandwidth;
  const TableWorkload& load;
  const ShardShape& shape;
  const double world;
  const double local;
  const WireBytes forward = WireOf(load, load.forward_wire, shape.element_bytes);
  const WireBytes backward = WireOf(load, load.backward_wire, shape.element_bytes);

  double PrefetchMs(double misses) const {
    return misses * shape.columns * shape.element_bytes / topology.memory.hbm_to_ddr;
  }

  TablePerf TableWise() const;
  TablePerf RowWise() const;
  TablePerf TableRowWise() const;
  TablePerf DataParallel() const;
};

TablePerf Estimate::TableWise() const {
  const double id_bytes = IdBytes(load.ids, world, load.weighted);
  const double lookup =
      load.ids * world * std::max(shape.columns, kColumnsOfAWarp) * shape.element_bytes;
  const double written = load.outputs() * world * shape.columns * forward.all_to_all;
  const double gradients = load.outputs() * world * shape.columns * backward.all_to_all;
  const double comms =
      topology.CollectiveBandwidth(topology.ranks, topology.ranks_per_host, Collective::kAllToAll);
  TablePerf perf;
  perf.forward_comms_ms = written / comms;
  perf.forward_compute_ms = (id_bytes + lookup + written) * BlockPenalty(shape.columns) / bandwidth;
  if (load.inference) return perf;
  perf.backward_comms_ms = gradients / comms;
  perf.backward_compute_ms = BackwardCompute(perf.forward_compute_ms, load.weighted);
  perf.prefetch_ms = PrefetchMs(load.cache_misses);
  return perf;
}

TablePerf Estimate::RowWise() const {
  const double ids = load.ids / world;
  const double outputs = load.pooled ? load.poolings : ids;
  const double id_bytes = IdBytes(ids, world, load.weighted);
  const double lookup = ids * world * shape.columns * shape.element_bytes;
  const double written =
      outputs * world * shape.columns * (load.pooled ? forward.reduce_scatter : forward.all_to_all);
  const double gradients = outputs * world * shape.columns *
                           (load.pooled ? backward.reduce_scatter : backward.all_to_all);
  TablePerf perf;
  perf.forward_comms_ms =
      written / topology.CollectiveBandwidth(topology.ranks, topology.ranks_per_host,
                                             Collective::kReduceScatter);
  perf.forward_compute_ms = (id_bytes + lookup + written) / bandwidth;
  if (load.inference) return perf;
  const double gather =
      gradients /
      topology.CollectiveBandwidth(topology.ranks, topology.ranks_per_host, Collective::kAllGather);
  perf.backward_comms_ms = gather + gradients * kBatchedCopyFactor / bandwidth;
  perf.backward_compute_ms = BackwardCompute(perf.forward_compute_ms, load.weighted);
  perf.prefetch_ms = PrefetchMs(load.cache_misses / world);
  return perf;
}

TablePerf Estimate::TableRowWise() const {
  const double ids = load.ids / local;
  const double outputs = load.pooled ? load.poolings : ids;
  const double id_bytes = IdBytes(ids, world, load.weighted);
  const double lookup = ids * world * shape.columns * shape.element_bytes;
  const double written = outputs * world * shape.columns * forward.reduce_scatter;
  const double gradients = outputs * world * shape.columns * backward.reduce_scatter;
  const uint32_t host = topology.ranks_per_host;
  TablePerf perf;
  perf.forward_comms_ms =
      written / topology.CollectiveBandwidth(host, host, Collective::kReduceScatter);
  double backward_comms =
      gradients / topology.CollectiveBandwidth(host, host, Collective::kAllGather);
  if (topology.ranks > host) {
    const double between = outputs * (world / local) * shape.columns;
    const double bw = topology.CollectiveBandwidth(topology.hosts(), 1, Collective::kAllToAll);
    perf.forward_comms_ms += between * forward.all_to_all / bw;
    backward_comms += between * backward.all_to_all / bw;
  }
  perf.forward_compute_ms = (id_bytes + lookup + written) / bandwidth;
  perf.backward_comms_ms = backward_comms + gradients * kBatchedCopyFactor / bandwidth;
  perf.backward_compute_ms = BackwardCompute(perf.forward_compute_ms, load.weighted);
  perf.prefetch_ms = PrefetchMs(load.cache_misses / local);
  return perf;
}

TablePerf Estimate::DataParallel() const {
  const double id_bytes = IdBytes(load.ids, 1, load.weighted);
  const double lookup = load.ids * shape.columns * shape.element_bytes;
  const double written = load.outputs() * shape.columns * shape.element_bytes;
  const double table = shape.rows * shape.columns * shape.element_bytes;
  TablePerf perf;
  perf.forward_compute_ms = (id_bytes + lookup + written) / bandwidth;
  const double nodes = std::min(world / local, 2.0);
  double all_reduce =
      table * (2 * nodes - 1) / nodes /
      topology.CollectiveBandwidth(topology.ranks, topology.ranks_per_host, Collective::kAllReduce);
  if (topology.ranks > 2 * uint64_t{topology.ranks_per_host}) all_reduce *= 2;
  perf.backward_compute_ms = BackwardCompute(perf.forward_compute_ms, load.weighted);
  perf.backward_comms_ms = all_reduce + table * kOptimizerKernelsFactor / bandwidth;
  return perf;
}

}  // namespace

TablePerf EstimateShardPerf(const RankTopology& topology, Sharding sharding,
                            double kernel_bandwidth, const TableWorkload& load,
                            const ShardShape& shape) {
  const Estimate estimate{.topology = topology,
                          .bandwidth = kernel_bandwidth,
                          .load = load,
                          .shape = shape,
                          .world = static_cast<double>(topology.ranks),
                          .local = static_cast<double>(topology.ranks_per_host)};
  switch (sharding) {
    case Sharding::kTableWise:
    case Sharding::kColumnWise:
    case Sharding::kTableColumnWise:
      return estimate.TableWise();
    case Sharding::kRowWise:
      return estimate.RowWise();
    case Sharding::kTableRowWise:
    case Sharding::kGrid:
      return estimate.TableRowWise();
    case Sharding::kDataParallel:
      return estimate.DataParallel();
  }
  return {};
}

}  // namespace hotbed::torchrec
