#include "planner/model/refine.h"

#include <algorithm>
#include <utility>

#include "absl/numeric/int128.h"
#include "common/tables/table_spec.h"
#include "planner/model/placement.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

// The range's part of `total` in parts of 2^64: of areas, which don't saturate.
absl::uint128 Area(const PieceRange& range) {
  return absl::uint128(range.row_limit - range.row_first) * range.columns();
}

}  // namespace

uint64_t TableUnits(const InputTable& table) { return table.hashed ? kHashBuckets : table.rows; }

uint64_t StoredBytes(const InputTable& table, const PieceRange& range) {
  const uint64_t row_bytes =
      RowWeightBytes(table, range.columns()) + RowStateBytes(table, range.columns());
  return RangeBytesOf(table, range.row_first, range.row_limit, row_bytes);
}

uint64_t ShardCountByBytes(const InputTable& table, const PieceRange& range) {
  const uint64_t units = range.row_limit - range.row_first;
  const uint64_t bytes = StoredBytes(table, range);
  if (bytes <= kShardBytesMax) return 1;
  // Whole units per shard, so that rounding brings none above the limit.
  const absl::uint128 units_a_shard =
      std::max<absl::uint128>(1, absl::uint128(kShardBytesMax) * units / bytes);
  return absl::Uint128Low64((units + units_a_shard - 1) / units_a_shard);
}

void CutEvenly(const PieceRange& range, uint64_t count, std::vector<PieceRange>& out) {
  const uint64_t units = range.row_limit - range.row_first;
  uint64_t first = range.row_first;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t limit = first + units / count + (i < units % count ? 1 : 0);
    out.push_back({first, limit, range.column_first, range.column_limit});
    first = limit;
  }
}

std::vector<uint64_t> ShardCounts(const InputTable& table, const std::vector<PieceRange>& ranges) {
  std::vector<uint64_t> counts;
  absl::uint128 area = 0;
  absl::uint128 sum = 0;
  absl::uint128 stored = 0;
  for (const PieceRange& range : ranges) {
    const uint64_t units = range.row_limit - range.row_first;
    counts.push_back(std::min(units, ShardCountByBytes(table, range)));
    sum += counts.back();
    area += Area(range);
    stored += StoredBytes(table, range);
  }
  const bool small = stored <= kSmallTableBytes;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const uint64_t units = ranges[i].row_limit - ranges[i].row_first;
    if (!small && sum < kShardsPerTableMin) {
      const absl::uint128 share = (Area(ranges[i]) * kShardsPerTableMin + area - 1) / area;
      counts[i] = std::min(units, std::max(counts[i], absl::Uint128Low64(share)));
    } else if (sum > kShardsPerTableMax) {
      const uint64_t rest =
          kShardsPerTableMax - std::min<uint64_t>(ranges.size(), kShardsPerTableMax);
      counts[i] = std::min(units, absl::Uint128Low64(Area(ranges[i]) * rest / area) + 1);
    }
  }
  return counts;
}

std::vector<PieceRange> RefineRanges(const InputTable& table,
                                     const std::vector<PieceRange>& ranges) {
  std::vector<PieceRange> shards = ranges;
  // Once, but for tables beyond kShardsPerTableMax x kShardBytesMax, where rounding to whole rows
  // can leave a second round something: until nothing changes, so that no later call finds
  // anything.
  for (size_t before = 0; before != shards.size();) {
    before = shards.size();
    const std::vector<uint64_t> counts = ShardCounts(table, shards);
    std::vector<PieceRange> cut;
    for (size_t i = 0; i < shards.size(); ++i) CutEvenly(shards[i], counts[i], cut);
    shards = std::move(cut);
  }
  return shards;
}

}  // namespace hotbed
