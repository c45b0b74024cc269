#include "planner/torchrec/storage_estimator.h"

#include <cmath>

#include "absl/numeric/bits.h"
#include "planner/model/cost_constants.h"
#include "planner/model/placement.h"
#include "planner/model/table_bytes.h"

namespace hotbed::torchrec {
namespace {

// ceil(storage part / whole), exact while the product fits.
absl::int128 ShareOf(absl::int128 storage, absl::uint128 part, absl::uint128 whole) {
  const auto bytes = static_cast<absl::uint128>(storage);
  const double product = static_cast<double>(bytes) * static_cast<double>(part);
  if (product >= 0x1p126) return CeilingBytes(product / static_cast<double>(whole));
  const absl::uint128 exact = bytes * part;
  return static_cast<absl::int128>(exact / whole + (exact % whole != 0 ? 1 : 0));
}

struct TensorBytes {
  absl::int128 hbm = 0;
  absl::int128 ddr = 0;
};

// The whole table in each tier.
TensorBytes TableBytes(const InputTable& table, Kernel kernel, PlannerDevice device,
                       double caching_ratio) {
  const absl::int128 row = IsQuantised(kernel)
                               ? absl::int128(QuantisedRowBytes(table.dim)) + 4
                               : absl::int128(WeightBytes(table.weight)) * table.dim;
  const absl::int128 bytes = row * table.rows;
  const bool host = device == PlannerDevice::kCpu || kernel == Kernel::kFusedUvm ||
                    kernel == Kernel::kFusedUvmCaching || kernel == Kernel::kQuantUvm ||
                    kernel == Kernel::kQuantUvmCaching;
  TensorBytes tensor;
  (host ? tensor.ddr : tensor.hbm) = bytes;
  if (IsCached(kernel)) {
    // Halves go to the even neighbour.
    tensor.hbm =
        static_cast<absl::int128>(std::nearbyint(static_cast<double>(tensor.ddr) * caching_ratio));
  }
  return tensor;
}

struct Buffers {
  absl::int128 input = 0;
  absl::int128 output = 0;
};

// The buffers of one shard outside of a pipeline.
Buffers BuffersOf(const RankTopology& topology, const InputTable& table, const TableWorkload& load,
                  Sharding sharding, Kernel kernel, const ShardRun& shard) {
  const double world = topology.ranks;
  const bool quantised = IsQuantised(kernel);
  const double element = quantised ? 1 : ElementBytes(table);
  const bool column_cut = sharding != Sharding::kDataParallel && sharding != Sharding::kTableWise;
  const uint32_t dim = column_cut ? shard.columns : table.dim;
  const double columns = quantised ? static_cast<double>(QuantisedRowBytes(dim)) : dim;
  if (sharding == Sharding::kDataParallel) {
    return {CeilingBytes(load.ids * kIdBytes), CeilingBytes(load.outputs() * columns * element)};
  }
  double ids = load.ids;
  double outputs = load.outputs();
  if (sharding == Sharding::kRowWise || sharding == Sharding::kTableRowWise ||
      sharding == Sharding::kGrid) {
    if (shard.units == 0) return {};
    ids = load.ids / (sharding == Sharding::kRowWise ? world : topology.ranks_per_host);
    if (!load.pooled) outputs = ids;
  }
  return {CeilingBytes(ids * world * kIdBytes), CeilingBytes(outputs * world * columns * element)};
}

absl::int128 PipelinedBytes(const Buffers& buffers, const TableWorkload& load, bool cached) {
  const absl::int128 outputs = load.outputs_at_peak ? buffers.output : 0;
  switch (load.pipeline) {
    case TorchrecPipeline::kNone:
      break;
    case TorchrecPipeline::kSparseDist:
      return 2 * buffers.input + outputs;
    case TorchrecPipeline::kPrefetch: {
      // In floating point and cut off, as there.
      const double factor = 1 + 6.0 / load.prefetch_passes;
      const double prefetched = cached ? factor * static_cast<double>(buffers.input) : 0;
      return 3 * buffers.input + static_cast<absl::int128>(prefetched) + outputs;
    }
  }
  return buffers.input + buffers.output;
}

}  // namespace

double ElementBytes(const InputTable& table) {
  return static_cast<double>(WeightBytes(table.weight));
}

uint64_t QuantisedRowBytes(uint32_t columns) { return (uint64_t{columns} + 4 + 15) / 16 * 16; }

double OptimizerFactor(PlannerOptimizer optimizer, uint32_t dim) {
  switch (optimizer) {
    case PlannerOptimizer::kNone:
    case PlannerOptimizer::kSgd:
      return 0;
    case PlannerOptimizer::kAdam:
      return 2;
    case PlannerOptimizer::kRowwiseAdagrad:
      return 1.0 / dim;
    default:
      return 1;
  }
}

uint64_t RowsOfUnits(const InputTable& table, uint64_t units) {
  if (!table.hashed) return units;
  return absl::Uint128Low64((absl::uint128(table.rows) * units + kHashBuckets - 1) / kHashBuckets);
}

Storage EstimateShardStorage(const RankTopology& topology, const InputTable& table,
                             const TableWorkload& load, Sharding sharding, Kernel kernel,
                             const ShardRun& shard) {
  // 0 counts as not given here, though not for bandwidth: so it does there.
  const double given = load.caching_ratio.value_or(0);
  const double caching_ratio = given != 0 ? given : kCachingRatio;
  const TensorBytes tensor = TableBytes(table, kernel, topology.device, caching_ratio);
  const uint64_t rows = RowsOfUnits(table, shard.units);
  const absl::uint128 part = absl::uint128(rows) * shard.columns;
  const absl::uint128 whole = absl::uint128(table.rows) * table.dim;
  const double factor = OptimizerFactor(table.optimizer, table.dim);
  const auto specific = [&](absl::int128 bytes, bool cache) {
    const absl::int128 weights =
        sharding == Sharding::kDataParallel ? bytes : ShareOf(bytes, part, whole);
    if (load.inference) return weights;
    const absl::int128 state = CeilingBytes(static_cast<double>(weights) * factor);
    const double slots = static_cast<double>(rows) * (4 + caching_ratio * 16);
    return weights + state + (cache ? CeilingBytes(slots) : 0);
  };
  Storage storage;
  if (!IsKeyValue(kernel)) {
    storage.hbm = specific(tensor.hbm, IsCached(kernel));
    storage.ddr = specific(tensor.ddr, false);
  }
  const bool cuda = topology.device == PlannerDevice::kCuda;
  if (!load.inference) {
    const Buffers buffers = BuffersOf(topology, table, load, sharding, kernel, shard);
    if (cuda) {
      storage.hbm += PipelinedBytes(buffers, load, IsCached(kernel));
    } else {
      storage.ddr += buffers.input + buffers.output;
    }
  }
  return storage;
}

}  // namespace hotbed::torchrec
