// The shards into which each of TorchRec's seven sharding types cuts a table.
//
// Rules (torchrec/distributed/sharding_plan.py at a48cef7), for E rows, D columns, W ranks, L ranks
// per host:
//   data_parallel       W shards, each the whole table
//   table_wise          one shard
//   row_wise            W shards of block = ceil(E/W) rows: the first floor(E/block) take a block,
//                       the next one what remains, the rest nothing. Where the ranks' memory m_r
//                       differs: floor(E (m_r / sum m)) rows each, the last takes what remains.
//   table_row_wise      as row_wise over the L ranks of one host
//   column_wise, table_column_wise   D/block shards of `block` columns: the smallest divisor of D
//                       that is a multiple of 4 and at least columns_min (128 where not given),
//                       or D
//   grid                per column block, row shards as table_row_wise; by block, then by row
//
// A hashed table is cut in its 65,536 buckets instead of rows: row_wise gives each rank
// floor(65,536/W) buckets and the first 65,536 mod W ranks one more (TorchRec's rule for buckets);
// its other types follow the rules above.
//
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_TORCHREC_SHARD_LAYOUT_H_
#define HOTBED_PLANNER_TORCHREC_SHARD_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed::torchrec {

// TorchRec's least width of a column shard where a table names none.
constexpr uint32_t kColumnsMin = 128;

// `count` consecutive shards of equal size. Units are rows, of a hashed table buckets. Runs keep a
// layout over a thousand ranks small.
struct ShardRun {
  uint32_t count = 0;
  uint64_t units = 0;
  uint32_t columns = 0;
  friend bool operator==(const ShardRun&, const ShardRun&) = default;
};

struct LayoutRanks {
  uint32_t ranks = 0;
  uint32_t ranks_per_host = 0;
  std::span<const double> uneven_memory;  // by rank; empty: even
};

// The width of a column shard.
uint32_t ColumnBlock(uint32_t columns, std::optional<uint32_t> columns_min);

// Rows of `units` over `ranks` ranks, as runs.
std::vector<ShardRun> EvenRows(uint64_t units, uint32_t ranks, uint32_t columns);
// Extra buckets to the first ranks.
std::vector<ShardRun> BucketRows(uint64_t buckets, uint32_t ranks, uint32_t columns);
std::vector<ShardRun> UnevenRows(uint64_t units, std::span<const double> memory, uint32_t columns);

// Beyond what a cluster would keep by far: a table of 2^32 columns is no reason to hang.
constexpr uint64_t kColumnShardsMax = 65536;

// The shards of `table` under `sharding`, in TorchRec's order; nothing where columns would be cut
// into more than kColumnShardsMax shards.
std::vector<ShardRun> LayOut(const InputTable& table, Sharding sharding,
                             std::optional<uint32_t> columns_min, const LayoutRanks& ranks);

}  // namespace hotbed::torchrec

#endif  // HOTBED_PLANNER_TORCHREC_SHARD_LAYOUT_H_
