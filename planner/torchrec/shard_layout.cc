#include "planner/torchrec/shard_layout.h"

#include <algorithm>

#include "planner/model/placement.h"

namespace hotbed::torchrec {
namespace {

void Append(uint32_t count, uint64_t units, uint32_t columns, std::vector<ShardRun>* runs) {
  if (count == 0) return;
  if (!runs->empty() && runs->back().units == units && runs->back().columns == columns) {
    runs->back().count += count;
  } else {
    runs->push_back({.count = count, .units = units, .columns = columns});
  }
}

std::vector<ShardRun> Grid(uint64_t units, uint32_t columns, uint32_t block,
                           const LayoutRanks& ranks) {
  if (uint64_t{columns / block} * ranks.ranks_per_host > kColumnShardsMax) return {};
  const std::vector<ShardRun> rows = EvenRows(units, ranks.ranks_per_host, block);
  std::vector<ShardRun> runs;
  for (uint32_t left = columns / block; left > 0; --left) {
    for (const ShardRun& run : rows) Append(run.count, run.units, run.columns, &runs);
  }
  return runs;
}

}  // namespace

uint32_t ColumnBlock(uint32_t columns, std::optional<uint32_t> columns_min) {
  // 0 counts as not given, as it does there.
  const uint32_t least = columns_min.value_or(0) != 0 ? *columns_min : kColumnsMin;
  uint32_t block = columns;
  const auto consider = [&](uint32_t width) {
    if (width >= least && width % 4 == 0) block = std::min(block, width);
  };
  for (uint64_t width = 1; width * width <= columns; ++width) {
    if (columns % width != 0) continue;
    consider(static_cast<uint32_t>(width));
    consider(static_cast<uint32_t>(columns / width));
  }
  return block;
}

std::vector<ShardRun> EvenRows(uint64_t units, uint32_t ranks, uint32_t columns) {
  const uint64_t block = units / ranks + (units % ranks != 0 ? 1 : 0);
  const auto full = static_cast<uint32_t>(units / block);
  std::vector<ShardRun> runs;
  Append(full, block, columns, &runs);
  if (full < ranks) {
    Append(1, units - block * full, columns, &runs);
    Append(ranks - full - 1, 0, columns, &runs);
  }
  return runs;
}

std::vector<ShardRun> BucketRows(uint64_t buckets, uint32_t ranks, uint32_t columns) {
  const auto longer = static_cast<uint32_t>(buckets % ranks);
  std::vector<ShardRun> runs;
  Append(longer, buckets / ranks + 1, columns, &runs);
  Append(ranks - longer, buckets / ranks, columns, &runs);
  return runs;
}

std::vector<ShardRun> UnevenRows(uint64_t units, std::span<const double> memory, uint32_t columns) {
  double sum = 0;
  for (const double rank : memory) sum += rank;
  std::vector<ShardRun> runs;
  uint64_t taken = 0;
  for (size_t i = 0; i + 1 < memory.size(); ++i) {
    // Rounding up of the product must not take more than there is.
    const double share = static_cast<double>(units) * (memory[i] / sum);
    const uint64_t rows = std::min(static_cast<uint64_t>(share), units - taken);
    Append(1, rows, columns, &runs);
    taken += rows;
  }
  Append(1, units - taken, columns, &runs);
  return runs;
}

std::vector<ShardRun> LayOut(const InputTable& table, Sharding sharding,
                             std::optional<uint32_t> columns_min, const LayoutRanks& ranks) {
  const uint64_t units = table.hashed ? kHashBuckets : table.rows;
  switch (sharding) {
    case Sharding::kDataParallel:
      return {{.count = ranks.ranks, .units = units, .columns = table.dim}};
    case Sharding::kTableWise:
      return {{.count = 1, .units = units, .columns = table.dim}};
    case Sharding::kRowWise:
      if (!ranks.uneven_memory.empty()) return UnevenRows(units, ranks.uneven_memory, table.dim);
      if (table.hashed) return BucketRows(units, ranks.ranks, table.dim);
      return EvenRows(units, ranks.ranks, table.dim);
    case Sharding::kTableRowWise:
      return EvenRows(units, ranks.ranks_per_host, table.dim);
    case Sharding::kColumnWise:
    case Sharding::kTableColumnWise: {
      const uint32_t block = ColumnBlock(table.dim, columns_min);
      if (table.dim / block > kColumnShardsMax) return {};
      return {{.count = table.dim / block, .units = units, .columns = block}};
    }
    case Sharding::kGrid:
      return Grid(units, table.dim, ColumnBlock(table.dim, columns_min), ranks);
  }
  return {};
}

}  // namespace hotbed::torchrec
