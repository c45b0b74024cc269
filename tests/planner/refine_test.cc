#include "planner/model/refine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/numeric/int128.h"
#include "common/random.h"
#include "common/tables/table_spec.h"
#include "planner/model/placement.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace refine_test {

InputTable Table(uint64_t rows, uint32_t dim, bool hashed) {
  InputTable table;
  table.name = "t";
  table.rows = rows;
  table.dim = dim;
  table.hashed = hashed;
  table.optimizer = PlannerOptimizer::kSgd;
  return table;
}

std::vector<PieceRange> Whole(const InputTable& table) {
  return {{0, TableUnits(table), 0, table.dim}};
}

// The cut that the coordinator makes for a new table is the special case of one whole range.
TEST(RefineRanges, AWholeTableIsCutAsAtItsCreation) {
  const TestSeed seed(1);
  Random random(seed.value());
  for (int i = 0; i < 500; ++i) {
    const uint64_t rows = 1 + random.Uniform(uint64_t{1} << (1 + random.Uniform(34)));
    const InputTable table = Table(rows, 1 + random.Uniform(200), random.OneIn(3));
    TableSpec spec;
    spec.name = table.name;
    spec.rows = table.rows;
    spec.dim = table.dim;
    spec.hashed = table.hashed;
    spec.optimizer.kind = OptimizerKind::kSgd;
    const auto expected = CutTable(spec, 0);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const std::vector<PieceRange> shards = RefineRanges(table, Whole(table));
    ASSERT_EQ(shards.size(), expected->size()) << rows << " x " << table.dim;
    for (size_t s = 0; s < shards.size(); ++s) {
      ASSERT_EQ(shards[s].row_first, (*expected)[s].first);
      ASSERT_EQ(shards[s].row_limit, (*expected)[s].limit);
    }
  }
}

std::vector<PieceRange> RandomRanges(Random& random, const InputTable& table) {
  std::vector<PieceRange> ranges;
  uint32_t column = 0;
  while (column < table.dim) {
    const uint32_t width = 1 + static_cast<uint32_t>(random.Uniform(table.dim - column));
    uint64_t row = 0;
    while (row < TableUnits(table)) {
      const uint64_t rows = 1 + random.Uniform(TableUnits(table) - row);
      ranges.push_back({row, row + rows, column, column + width});
      row += rows;
    }
    column += width;
  }
  return ranges;
}

TEST(RefineRanges, KeepsTheEdgesAndTheLimitsAndChangesNothingTwice) {
  const TestSeed seed(2);
  Random random(seed.value());
  for (int i = 0; i < 500; ++i) {
    const uint64_t rows = 1 + random.Uniform(uint64_t{1} << (1 + random.Uniform(32)));
    const InputTable table = Table(rows, 1 + random.Uniform(64), random.OneIn(3));
    const std::vector<PieceRange> ranges = RandomRanges(random, table);
    const std::vector<PieceRange> shards = RefineRanges(table, ranges);
    ASSERT_EQ(RefineRanges(table, shards), shards);
    ASSERT_LE(shards.size(), std::max<size_t>(ranges.size(), kShardsPerTableMax));
    uint64_t bytes = 0;
    for (const PieceRange& shard : shards) bytes += StoredBytes(table, shard);
    if (shards.size() < kShardsPerTableMax / 2 && rows > 8) {
      for (const PieceRange& shard : shards) ASSERT_LE(StoredBytes(table, shard), kShardBytesMax);
    }
    if (bytes > kSmallTableBytes && rows >= 8) {
      ASSERT_GE(shards.size(), kShardsPerTableMin);
    }
    // Every range is tiled by shards of its own, in order.
    size_t next = 0;
    for (const PieceRange& range : ranges) {
      uint64_t row = range.row_first;
      while (row < range.row_limit) {
        ASSERT_LT(next, shards.size());
        ASSERT_EQ(shards[next].row_first, row);
        ASSERT_EQ(shards[next].column_first, range.column_first);
        ASSERT_EQ(shards[next].column_limit, range.column_limit);
        row = shards[next++].row_limit;
      }
      ASSERT_EQ(row, range.row_limit);
    }
    ASSERT_EQ(next, shards.size());
  }
}

}  // namespace refine_test
}  // namespace hotbed
