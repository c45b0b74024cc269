// The rows of a shard that is on its way here from another server, in memory: each block of the
// transfer is placed where the shard will have its rows, while the spill tier writes the block. So
// nothing is read back when the shard opens. As many rows come into memory as memory that nobody
// has taken lasts for; none is evicted for them.
//
// The rows serve nobody before the shard is opened with them (TieredShard). With this object they
// leave memory. Thread-compatible.
#ifndef HOTBED_SERVER_TIERS_MEMORY_ARRIVING_ROWS_H_
#define HOTBED_SERVER_TIERS_MEMORY_ARRIVING_ROWS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/shared_value.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/kernels/cpu_kernels.h"
#include "server/tiers/memory/hot_arena.h"
#include "server/tiers/memory/hot_tier.h"
#include "server/tiers/spill/row_block.h"

namespace hotbed {

class ArrivingRows {
 public:
  // Outlives the rows.
  struct Memory {
    HotArena* arena = nullptr;
    HotArena::Table* table = nullptr;
    bool huge_pages = true;
    const std::atomic<bool>* wanted = nullptr;  // shards in use want it: no more rows come in
  };
  // The shard's log will continue above an LSN that is not below `log_from`.
  ArrivingRows(SharedValue<TableSpec> table, const ShardRange& range, Lsn log_from,
               const Memory& memory);
  ~ArrivingRows();

  // The next block, of which the spill tier has found that it is sound.
  void Place(const RowBlock& block);

  const ShardRange& range() const { return range_; }
  HotTier* hot() { return &hot_; }
  // The LSNs of the rows in memory that are above log_from, by position.
  const absl::flat_hash_map<uint64_t, Lsn>& ahead() const { return ahead_; }
  // Every row that has come is in memory, and none was deleted: the marks of deleted rows are in
  // the spill tier alone.
  bool complete() const { return complete_; }

 private:
  void DropRows(const std::vector<uint64_t>& positions);
  void PayForAhead();

  const SharedValue<TableSpec> table_;
  const ShardRange range_;
  const Lsn log_from_;
  const Memory memory_;
  const CpuKernelSet& kernels_ = CpuKernels();
  HotArena::Account account_;
  HotTier hot_;
  absl::flat_hash_map<uint64_t, Lsn> ahead_;
  uint64_t ahead_bytes_ = 0;       // that are paid for
  uint64_t highest_position_ = 0;  // so far
  bool began_ = false;
  bool complete_ = true;
  // Reused from block to block.
  std::vector<uint64_t> positions_;
  std::vector<const uint8_t*> records_;
  std::vector<uint32_t> slots_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_ARRIVING_ROWS_H_
