// Ranges refined into a table's immutable shards (DECISIONS P1, P2). Pure functions.
//
// Of each range as many shards of equal rows (or buckets), the first ones one longer, as keep each
// at or under kShardBytesMax of weights and optimizer state; where all ranges together would give
// fewer than kShardsPerTableMin of a table above 1 MiB, each gives its share of those, rounded up;
// never more than one a row or bucket. Where they would be more than kShardsPerTableMax, each
// range keeps one and has its share by bytes of the rest, and shards grow beyond the limit.
//
// One whole range gives what planner/model/placement.h gives for a new table (tested). Ranges that keep
// the rules already are their own shards: so the edges of a plan that lists its shards are kept,
// and refining twice changes nothing.
#ifndef HOTBED_PLANNER_MODEL_REFINE_H_
#define HOTBED_PLANNER_MODEL_REFINE_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_input.h"

namespace hotbed {

constexpr uint64_t kSmallTableBytes = 1ull << 20;  // up to here one shard is enough

// Half-open; of a hashed table the rows are buckets.
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

// Weights and optimizer state of `range` without index overhead, which is what the limits count;
// saturates at 2^64 - 1.
uint64_t StoredBytes(const InputTable& table, const PieceRange& range);

// How many shards of whole units keep `range` at or under kShardBytesMax each; 1 of what is small.
uint64_t ShardCountByBytes(const InputTable& table, const PieceRange& range);

// `range` cut into `count` parts of equal rows, the first ones one longer; 1 <= count <= its rows.
void CutEvenly(const PieceRange& range, uint64_t count, std::vector<PieceRange>& out);

// How many shards each of `ranges` gives by the rules above.
std::vector<uint64_t> ShardCounts(const InputTable& table, const std::vector<PieceRange>& ranges);

// The shards of `ranges`, which must tile the table; in the order of the ranges.
std::vector<PieceRange> RefineRanges(const InputTable& table,
                                     const std::vector<PieceRange>& ranges);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_REFINE_H_
