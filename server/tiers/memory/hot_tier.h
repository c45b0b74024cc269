// The resident rows of one shard: their slabs and index, and how many there may be.
//
// Confined to the shard's executor. Slots are paid for in the arena by the chunk, before they are
// used: the pages of weights, state, bits and positions that the chunk is the first to reach into,
// and a flat charge for its part of the index. Pages become huge ones where all are paid for.
//
// direct: the slot is the offset of the position, and a chunk is paid for with its first row. Rows
// leave only for a faster tier above. indexed: any row in any paid slot. A direct tier that must
// give memory back, or gets none for a chunk, becomes indexed where it stands: its rows keep their
// slots.
#ifndef HOTBED_SERVER_TIERS_MEMORY_HOT_TIER_H_
#define HOTBED_SERVER_TIERS_MEMORY_HOT_TIER_H_

#include <cstdint>
#include <vector>

#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/kernels/row_table.h"
#include "server/tiers/memory/hot_arena.h"

namespace hotbed {

// Bytes of one resident row in addition to weights and state, about: bits, position and index. A
// direct tier pays for positions and index, too, so that it can become indexed at any time.
constexpr uint32_t kRowOverhead = 19;

class HotTier {
 public:
  // `direct` only where CanBeDirect. Both pointers outlive the tier.
  HotTier(const TableSpec& table, const ShardRange& range, bool direct, bool huge_pages,
          HotArena* arena, HotArena::Account* account);
  // Takes over the rows of `from`, a tier of an equal table and range over the same arena. The only
  // thing left to do with `from` is to destroy it.
  HotTier(HotTier* from, const TableSpec& table, HotArena::Account* account);
  ~HotTier();
  HotTier(const HotTier&) = delete;

  // Whether the whole range fits into `bytes`, also if it becomes indexed later.
  static bool CanBeDirect(const TableSpec& table, const ShardRange& range, uint64_t bytes);
  // Bytes of all rows of the range; ~0 if that is not known.
  static uint64_t WholeBytes(const TableSpec& table, const ShardRange& range);
  // Bytes of one resident row.
  static uint64_t IndexedRowBytes(const TableSpec& table, const ShardRange& range);

  RowTable* table() { return &table_; }
  const RowTable& table() const { return table_; }
  bool direct() const { return table_.direct; }
  uint64_t row_bytes() const { return row_bytes_; }
  uint32_t chunk_slots() const { return chunk_slots_; }
  uint32_t paid_slots() const { return paid_slots_; }
  uint32_t free_slots() const { return paid_slots_ - table_.rows; }

  // Slots for the first of `count` rows, which are not resident and whose positions ascend; for how
  // many of them there were some. Takes memory alone that nobody else has, and leaves a part of it
  // for shards in use, which grow without asking.
  uint32_t TakeUnused(const uint64_t* positions, uint32_t count, uint32_t* slots);

  // --- direct
  // Pays for the chunk of `slot`; false: the arena gives nothing.
  bool PayForSlot(uint32_t slot);
  // Pays for the bits of the slot's chunk alone, which then may say that rows are absent.
  bool PayForBits(uint32_t slot);
  // Rows keep their slots. No slot may be in the hands of a caller that has not filled it.
  void BecomeIndexed();

  // --- indexed
  // Takes up to `wanted` free slots for rows that will be inserted and returns how many; grows the
  // tier as far as it may. A tier without any slot gets one chunk anyway.
  uint32_t TakeSlots(uint32_t wanted, uint32_t* slots);
  // Whether more memory would give it more slots.
  bool can_grow() const { return paid_slots_ < slots_max_; }
  // The same without growing.
  uint32_t TakeFree(uint32_t wanted, uint32_t* slots);
  void ReturnSlots(const uint32_t* slots, uint32_t count);
  // The first slot of as many chunks at the end as have at most `slots_max` slots; the end if
  // there are none. The first chunk never counts.
  uint32_t TailOf(uint32_t slots_max) const;
  // Slots from `first` on, a result of TailOf, are no longer handed out.
  void CloseTail(uint32_t first);
  // Gives the memory of a closed tail back. It holds no rows.
  void FreeTail(uint32_t first);

  // Calls f(first, limit) for the slots of each paid chunk.
  template <typename F>
  void ForEachPaid(F f) const {
    for (uint32_t chunk = 0; chunk < paid_.size(); ++chunk) {
      if (paid_[chunk] == kRowsPaid) f(FirstOf(chunk), FirstOf(chunk + 1));
    }
  }

  // Whether the slot's memory is paid for: other slots hold no row.
  bool paid(uint32_t slot) const {
    const uint32_t chunk = slot / chunk_slots_;
    return chunk < paid_.size() && paid_[chunk] == kRowsPaid;
  }
  uint32_t ChunkFirst(uint32_t slot) const { return slot / chunk_slots_ * chunk_slots_; }

  uint64_t index_bytes() const { return uint64_t{table_.bucket_count} * sizeof(IndexBucket); }
  // All bytes that are not weights or state of a resident row.
  uint64_t OverheadBytes(uint64_t rows_resident) const;

 private:
  enum Paid : uint8_t { kUnpaid, kBitsPaid, kRowsPaid };

  HotSlab NewSlab(uint64_t slot_bytes) const;
  uint32_t FirstOf(uint32_t chunk) const;
  uint64_t BytesToPay(uint32_t chunk) const;
  bool Pay(uint32_t chunk, bool anyway);
  void Unpay(uint32_t chunk);
  void MarkPaid(uint32_t chunk);
  void FillUnit(HotSlab* slab, uint64_t byte);
  void FillAhead(uint32_t first_slot, uint32_t last_slot);
  void FillUnitsAhead(HotSlab* slab, uint64_t slot_bytes, uint32_t first_slot, uint32_t last_slot);
  bool MemoryIsPlenty() const;
  bool Grow();
  bool GrowByChunk();
  void Reindex(uint32_t slots);

  HotArena* const arena_;
  HotArena::Account* const account_;
  const bool huge_pages_;
  uint64_t row_bytes_ = 0;  // of a resident row, about
  uint32_t slots_max_ = 0;
  uint32_t chunk_slots_ = 1;
  std::vector<uint8_t> paid_;  // Paid, of the chunks so far
  uint32_t unpaid_ = 0;        // indexed: chunks below are paid
  uint32_t paid_slots_ = 0;
  uint32_t granted_ = 0;  // indexed: slots from table_.slots to here are paid and were never used
  uint64_t taken_ = 0;
  RowTable table_;
  HotSlab weights_;
  HotSlab state_;
  HotSlab bits_;
  HotSlab positions_;  // not touched while direct
  HotSlab buckets_;
  std::vector<uint32_t> free_;  // indexed: of the slots below table_.slots
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_HOT_TIER_H_
