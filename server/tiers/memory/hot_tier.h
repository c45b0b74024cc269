// The resident rows of one shard: their slabs and index, and how many there may be.
//
// Confined to the shard's executor. Every slot is paid for in the arena before it is used: weights,
// state, and a flat overhead for the byte of bits and, when indexed, for position and index.
//
// direct: the whole range is paid for at once, and no row is ever evicted. indexed: slots are paid
// for as they are needed, up to the quota, and beyond it as long as the arena has unused bytes.
#ifndef HOTBED_SERVER_TIERS_MEMORY_HOT_TIER_H_
#define HOTBED_SERVER_TIERS_MEMORY_HOT_TIER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/shard_record.h"
#include "common/table_spec.h"
#include "server/kernels/row_table.h"
#include "server/tiers/memory/hot_arena.h"

namespace hotbed {

// Bytes charged for one resident row in addition to weights and state.
constexpr uint32_t kDirectOverhead = 1;
constexpr uint32_t kIndexedOverhead = 18;

class HotTier {
 public:
  // The caller has taken a direct tier's bytes from the arena; an indexed tier takes bytes as it
  // grows.
  HotTier(const TableSpec& table, const ShardRange& range, bool direct, bool huge_pages,
          HotArena* arena);
  ~HotTier();
  HotTier(const HotTier&) = delete;

  // Bytes of a direct tier; ~0 if the shard cannot have one.
  static uint64_t DirectBytes(const TableSpec& table, const ShardRange& range);
  // Bytes of one resident row when indexed.
  static uint64_t IndexedRowBytes(const TableSpec& table, const ShardRange& range);

  RowTable* table() { return &table_; }
  const RowTable& table() const { return table_; }
  bool direct() const { return table_.direct; }

  // Takes up to `wanted` free slots for rows that will be inserted and returns how many; grows the
  // tier as far as it may. Not for direct tiers, where the slot is the offset of the position.
  uint32_t TakeSlots(uint32_t wanted, uint32_t* slots);
  void ReturnSlots(const uint32_t* slots, uint32_t count);

  // Memory beyond the quota is borrowed.
  void SetQuota(uint64_t bytes) { quota_ = bytes; }
  uint64_t taken() const { return taken_; }
  bool over_quota() const { return !direct() && taken_ > quota_ && granted_ > 1; }
  // Slots that the quota pays for, at least one.
  uint32_t QuotaSlots() const;
  // Gives the memory of slots from `slots` on back. They hold no rows.
  void Shrink(uint32_t slots);
  // Whether a grant below the quota was refused since the last call: another shard has borrowed it.
  bool TakeRefusal() { return std::exchange(refused_, false); }

  uint64_t index_bytes() const { return uint64_t{table_.bucket_count} * sizeof(IndexBucket); }
  // All bytes that are not weights or state of a resident row.
  uint64_t OverheadBytes(uint64_t rows_resident) const;

 private:
  void Grow(uint32_t wanted);
  void Reindex(uint32_t slots);

  HotArena* const arena_;
  const bool huge_pages_;
  uint64_t row_bytes_ = 0;  // charged per slot
  uint32_t slots_max_ = 0;
  uint64_t quota_ = 0;
  uint64_t taken_ = 0;
  uint32_t granted_ = 0;  // slots paid for
  bool refused_ = false;
  RowTable table_;
  HotSlab weights_;
  HotSlab state_;
  HotSlab bits_;
  HotSlab positions_;
  HotSlab buckets_;
  std::vector<uint32_t> free_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_HOT_TIER_H_
