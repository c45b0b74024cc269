// The resident rows of one shard: their slabs and index, and how many there may be.
//
// Confined to the shard's executor; the counters may be read from any thread. Every slot is paid
// for in the arena before it is used: weights, state, and a flat overhead that covers the byte a
// slot and, when indexed, position and index.
//
// direct: the whole range is paid for at once and nothing is ever evicted. indexed: slots are paid
// for as they are needed, up to the quota and, as long as the arena has bytes that nobody uses,
// beyond it.
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

// Bytes charged for one resident row beside weights and state.
constexpr uint32_t kDirectOverhead = 1;
constexpr uint32_t kIndexedOverhead = 18;

class HotTier {
 public:
  // A direct tier's bytes have been taken from the arena by the caller; an indexed one takes what
  // it needs as it grows.
  HotTier(const TableSpec& table, const ShardRange& range, bool direct, bool huge_pages,
          HotArena* arena);
  ~HotTier();
  HotTier(const HotTier&) = delete;

  // What a shard takes as a whole when direct; ~0 where that cannot be.
  static uint64_t DirectBytes(const TableSpec& table, const ShardRange& range);
  // What one resident row takes when indexed.
  static uint64_t IndexedRowBytes(const TableSpec& table, const ShardRange& range);

  RowTable* table() { return &table_; }
  const RowTable& table() const { return table_; }
  bool direct() const { return table_.direct; }

  // Up to `wanted` free slots for rows that will be inserted, growing the tier as far as it may.
  // Direct tiers need none: the slot is the offset of the position.
  uint32_t TakeSlots(uint32_t wanted, uint32_t* slots);
  void ReturnSlots(const uint32_t* slots, uint32_t count);

  // Rows beyond it are borrowed.
  void SetQuota(uint64_t bytes) { quota_ = bytes; }
  uint64_t taken() const { return taken_; }
  bool over_quota() const { return !direct() && taken_ > quota_ && granted_ > 1; }
  // Slots that the quota pays for, at least one.
  uint32_t QuotaSlots() const;
  // Gives back what slots from `slots` on take. They hold no rows.
  void Shrink(uint32_t slots);
  // A grant was refused below the quota since the last call: somebody else has borrowed.
  bool TakeRefusal() { return std::exchange(refused_, false); }

  uint64_t index_bytes() const { return uint64_t{table_.bucket_count} * sizeof(IndexBucket); }
  // All that is not weights and state of a resident row.
  uint64_t OverheadBytes(uint64_t rows_resident) const;

 private:
  void Grow(uint32_t wanted);
  void Reindex(uint32_t slots);

  HotArena* const arena_;
  const bool huge_pages_;
  uint64_t row_bytes_ = 0;  // charged a slot
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
