// Refines ranges into a table's immutable shards (docs/decisions.md, "Identity and placement").
// Pure functions.
//
// Each range becomes as many shards of equal rows (or buckets; the first ones are one longer) as
// keep each at or under kShardBytesMax of weights and optimizer state, and at most one per row or
// bucket. If all ranges of a table above 1 MiB together gave fewer than kShardsPerTableMin shards,
// each gives its share of those, rounded up. If they gave more than kShardsPerTableMax, each range
// gets one shard and its share by bytes of the rest, and shards grow beyond the limit.
//
// A single range that is the whole table gives the shards of placement.h (tested). Ranges that keep
// the rules already are their own shards, so the edges of a plan that lists its shards are kept,
// and refining twice changes nothing.
#ifndef HOTBED_PLANNER_MODEL_REFINE_H_
#define HOTBED_PLANNER_MODEL_REFINE_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_input.h"

namespace hotbed {

constexpr uint64_t kSmallTableBytes = 1ull << 20;  // one shard is enough up to this size

// Half-open; for a hashed table the rows are buckets.
struct PieceRange {
  uint64_t row_first = 0;
  uint64_t row_limit = 0;
  uint32_t column_first = 0;
  uint32_t column_limit = 0;
  uint32_t columns() const { return column_limit - column_first; }
  friend bool operator==(const PieceRange&, const PieceRange&) = default;
};

// Rows of a bounded table, buckets of a hashed one.
uint64_t TableUnits(const InputTable& table);

// Bytes of weights and optimizer state of `range`, which the limits count; without index overhead.
// Saturates at 2^64 - 1.
uint64_t StoredBytes(const InputTable& table, const PieceRange& range);

// The number of shards of whole units that keeps each at or under kShardBytesMax; at least 1.
uint64_t ShardCountByBytes(const InputTable& table, const PieceRange& range);

// Cuts `range` into `count` parts of equal rows, the first ones one longer; 1 <= count <= its rows.
void CutEvenly(const PieceRange& range, uint64_t count, std::vector<PieceRange>& out);

// The number of shards of each of `ranges` by the rules above.
std::vector<uint64_t> ShardCounts(const InputTable& table, const std::vector<PieceRange>& ranges);

// The shards of `ranges`, which must tile the table; in the order of the ranges.
std::vector<PieceRange> RefineRanges(const InputTable& table,
                                     const std::vector<PieceRange>& ranges);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_REFINE_H_
