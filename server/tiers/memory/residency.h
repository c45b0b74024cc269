// Which rows of one shard are in its hot tier: rows come in, leave by CLOCK, by range or for a
// faster tier above, and go through WriteBack when the spill tier does not have them yet.
//
// Confined to the shard's executor. While an update waits for I/O (RowTableState::update_waits) no
// row enters or leaves, so that what the update found stays found.
#ifndef HOTBED_SERVER_TIERS_MEMORY_RESIDENCY_H_
#define HOTBED_SERVER_TIERS_MEMORY_RESIDENCY_H_

#include <cstdint>
#include <vector>

#include "server/tiers/api/exchanged_rows.h"
#include "server/tiers/memory/hot_arena.h"
#include "server/tiers/memory/hot_tier.h"
#include "server/tiers/memory/recent_misses.h"
#include "server/tiers/memory/row_table_state.h"
#include "server/tiers/spill/row_block.h"

namespace hotbed {

class Residency {
 public:
  // Rows that come in together, at most: as many may have to be evicted for them.
  static constexpr uint32_t kInsertRows = 256;

  // `arrived`: a tier with rows to take over (ArrivingRows), or null. An empty tier is direct if
  // its whole range fits into memory that nobody has taken.
  Residency(RowTableState* state, HotArena* arena, HotArena::Account* account, bool huge_pages,
            HotTier* arrived);
  Residency(const Residency&) = delete;

  HotTier* hot() { return &hot_; }
  RowTable* table() { return hot_.table(); }
  const RowTable& table() const { return hot_.table(); }
  uint32_t rows() const { return table().rows; }
  uint64_t PositionOfSlot(uint32_t slot) const;

  // Slots of resident rows, kNoSlot for others, whose numbers `missing` lists; returns how many are
  // missing. Both arrays have room for `count`.
  uint32_t Probe(const uint64_t* ids, uint32_t count, uint32_t* slots, uint32_t* missing);
  // Weights, then state, of the row in `slot`.
  void CopyRow(uint32_t slot, uint8_t* payload) const;
  // The answer for id i of `reads` from weights as they are stored; null: the row exists nowhere.
  void AnswerRow(const RowReads& reads, uint32_t i, const uint8_t* payload, uint64_t position);
  // Counts the touches of a record, once, as it is applied, where the table filters; by number of
  // id whether it has the touches that its row needs. Valid until the next call.
  const uint8_t* CountTouches(const uint64_t* ids, uint32_t count, const uint32_t* slots);

  // Whether `rows` rows may come in now: rows evicted for them go through WriteBack. A direct tier
  // evicts none while memory is left.
  bool HasRoom(uint64_t rows) const;
  // Slots for the first of `count` rows that are not resident, evicting others if need be; returns
  // for how many rows there are slots, at least one of them. Evicted rows are stamped with `stamp`.
  uint32_t MakeSlots(const uint64_t* positions, uint32_t count, Lsn stamp, uint32_t* slots);
  // Fills slots that MakeSlots or HotTier::TakeUnused gave; `dirty`: the spill tier does not have
  // these values.
  void Insert(const uint64_t* positions, const uint32_t* slots, const uint8_t* const* sources,
              uint32_t count, bool dirty);
  // Rows that were clean and have been updated in place.
  void AddDirty(uint32_t rows) { rows_dirty_ += rows; }

  // Gives the memory of up to `slots` slots back to the arena; returns of how many. Free slots go
  // first, then rows without visits leave, and with `forced` any. The rows at the end of the slabs
  // move into the slots that have become free.
  uint32_t GiveBack(uint32_t slots, bool forced);
  // Takes one visit from each row that has some, and starts the next window of misses. Publishes
  // the bytes of rows without visits and of free slots.
  void Age();
  // The row in `slot` leaves, and its values with it.
  void Drop(uint32_t slot);
  // The row at `position` exists in no tier. Remembered where that costs no more than a byte.
  void NoteAbsent(uint64_t position);
  // Copies dirty rows to WriteBack and marks them clean, one slice of them at most, from slot
  // *cursor on, which is where the next call continues. WriteBack has room for a slice.
  void CollectDirty(uint32_t* cursor);

  // --- for a faster tier above (device_shard.h)
  // Moves resident rows of `ids` out; ids that are not resident are passed over, and so are dirty
  // rows if `clean_only`. Moves none while an update is active.
  void Take(const std::vector<uint64_t>& ids, bool clean_only, ExchangedRows* taken);
  // Rows come in that are not resident. Clean ones may be dropped where WriteBack has no room for
  // the rows they would evict: the spill tier has them.
  void Put(const ExchangedRows& rows);

  // Puts rows of a block that the spill tier has into unused memory, the first ones of the block.
  // False: there was not enough memory for all.
  bool Warm(const RowBlock& block);
  // A block that was warmed had marks of deleted rows, which stay in the spill tier alone.
  bool found_deleted() const { return found_deleted_; }

  // Brings the counters up to date.
  void Publish();

 private:
  uint32_t DirectSlot(uint64_t position) const;
  void TakeRow(uint32_t slot, ExchangedRows* taken);
  void Free(uint32_t slot, uint8_t* payload);
  uint32_t MakeDirectSlots(const uint64_t* positions, uint32_t count, uint32_t* slots);
  void BecomeIndexed();
  void NoteRefusal(const uint64_t* positions, uint32_t count);
  uint32_t EvictSome(uint32_t rows, bool unvisited_only);
  void CleanFrom(uint32_t slot);
  void Evict(EvictBatch* evict, Lsn stamp);

  RowTableState* const state_;
  HotArena* const arena_;
  HotTier hot_;
  RecentMisses recent_misses_;  // of rows for which there was no free slot
  uint32_t hand_ = 0;           // of the CLOCK
  int64_t rows_dirty_ = 0;
  bool found_deleted_ = false;
  std::vector<uint8_t> dropped_;     // Drop's
  std::vector<uint32_t> uncounted_;  // CountTouches': numbers of ids to look up in the filter
  std::vector<uint8_t> enough_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_MEMORY_RESIDENCY_H_
