#include "server/tiers/memory/residency.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {
namespace {

// With less than this part of the budget left, a direct tier may have to evict at any time.
constexpr uint64_t kTightShare = 32;

}  // namespace

Residency::Residency(RowTableState* state, HotArena* arena, HotArena::Account* account,
                     bool huge_pages, HotTier* arrived)
    : state_(state),
      arena_(arena),
      hot_(arrived != nullptr ? HotTier(arrived, state->shard.table, account)
                              : HotTier(state->shard.table, state->shard.range,
                                        HotTier::CanBeDirect(state->shard.table, state->shard.range,
                                                             arena->unused()),
                                        huge_pages, arena, account)) {
  if (state_->shard.hint != nullptr) state_->shard.hint->Set(*table());
}

uint64_t Residency::PositionOfSlot(uint32_t slot) const {
  const RowTable& rows = table();
  return rows.direct ? rows.first_position + slot : rows.positions[slot];
}

uint32_t Residency::DirectSlot(uint64_t position) const {
  return static_cast<uint32_t>(position - table().first_position);
}

uint32_t Residency::Probe(const uint64_t* ids, uint32_t count, uint32_t* slots, uint32_t* missing) {
  ProbeBatch probe;
  probe.table = table();
  probe.ids = ids;
  probe.count = count;
  probe.slots = slots;
  probe.missing = missing;
  state_->kernels.probe(&probe);
  return probe.missing_count;
}

void Residency::CopyRow(uint32_t slot, uint8_t* payload) const {
  const RowTable& rows = table();
  std::memcpy(payload, rows.weights + uint64_t{rows.weight_stride} * slot, rows.weight_bytes);
  if (rows.state_bytes == 0) return;
  std::memcpy(payload + rows.weight_bytes, rows.state + uint64_t{rows.state_bytes} * slot,
              rows.state_bytes);
}

void Residency::AnswerRow(const RowReads& reads, uint32_t i, const uint8_t* payload,
                          uint64_t position) {
  const RowTable& rows = *table();
  uint8_t* out = reads.rows + uint64_t{RowWireBytes(reads.type, rows.dim)} * i;
  if (payload != nullptr) {
    state_->kernels.encode_row(rows, payload, reads.type, out);
  } else {
    uint8_t weights[4 * kDimMax];
    state_->kernels.first_value(rows, position, weights, nullptr);
    state_->kernels.encode_row(rows, weights, reads.type, out);
  }
  if (reads.flags == nullptr) return;
  reads.flags[i] = payload != nullptr ? 1 : 0;
  if (payload == nullptr || !rows.admission.HasCandidates()) return;
  const uint8_t* const touches = payload + state_->spill_shard.payload_bytes - kTouchBytes;
  if (LoadTouches(touches).count < rows.admission.Needed()) reads.flags[i] = 0;
}

// Touches of rows whose counts are full change nothing, and are not looked up.
const uint8_t* Residency::CountTouches(const uint64_t* ids, uint32_t count, const uint32_t* slots) {
  uint8_t* const bits = table()->bits;
  enough_.assign(count, 1);
  uncounted_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    if (slots[i] == kNoSlot || (bits[slots[i]] & kRowCounted) == 0) uncounted_.push_back(i);
  }
  if (uncounted_.empty()) return enough_.data();
  state_->filter->Touch(ids, uncounted_, enough_.data());
  for (const uint32_t i : uncounted_) {
    if (slots[i] != kNoSlot && enough_[i] != 0) bits[slots[i]] |= kRowCounted;
  }
  state_->counters.filter_used.store(state_->filter->used(), std::memory_order_relaxed);
  return enough_.data();
}

// --- rows come in

bool Residency::HasRoom(uint64_t rows) const {
  if (hot_.direct() && arena_->unused() > arena_->budget() / kTightShare) return true;
  return state_->write_back.HasRoom(rows);
}

uint32_t Residency::MakeSlots(const uint64_t* positions, uint32_t count, Lsn stamp,
                              uint32_t* slots) {
  HOTBED_DCHECK(!state_->update_waits);
  if (hot_.direct()) {
    const uint32_t made = MakeDirectSlots(positions, count, slots);
    if (made > 0) return made;
    BecomeIndexed();
  }
  const uint32_t free = hot_.TakeSlots(count, slots);
  if (free < count && hot_.can_grow()) NoteRefusal(positions + free, count - free);
  const uint32_t lacking = std::min(count - free, rows());
  HOTBED_CHECK(free + lacking > 0) << "a hot tier without a single slot";
  if (lacking == 0) return free;
  const WriteBack::Space space = state_->write_back.Reserve(lacking);
  EvictBatch evict;
  evict.hand = hand_;
  evict.wanted = lacking;
  evict.slots = slots + free;
  evict.dirty_positions = space.positions;
  evict.out = space.payloads;
  evict.out_stride = space.stride;
  Evict(&evict, stamp);
  hand_ = evict.hand;
  return free + evict.count;
}

// Fewer than `count`: the arena has nothing left for the chunk of the next row.
uint32_t Residency::MakeDirectSlots(const uint64_t* positions, uint32_t count, uint32_t* slots) {
  for (uint32_t k = 0; k < count; ++k) {
    slots[k] = DirectSlot(positions[k]);
    if (!hot_.PayForSlot(slots[k])) return k;
  }
  return count;
}

void Residency::BecomeIndexed() {
  if (state_->shard.hint != nullptr) state_->shard.hint->Clear();
  hot_.BecomeIndexed();
}

// The host hears of rows that found no free slot, and of those among them that were here a moment
// ago: more memory would have kept them.
void Residency::NoteRefusal(const uint64_t* positions, uint32_t count) {
  uint64_t again = 0;
  for (uint32_t k = 0; k < count; ++k) again += recent_misses_.Note(positions[k]) ? 1 : 0;
  Count(&state_->counters.refused_bytes, hot_.row_bytes() * count);
  Count(&state_->counters.wanted_bytes, hot_.row_bytes() * again);
  if (state_->memory_refused && !state_->replaying) state_->memory_refused();
}

void Residency::Insert(const uint64_t* positions, const uint32_t* slots,
                       const uint8_t* const* sources, uint32_t count, bool dirty) {
  HOTBED_DCHECK(!state_->update_waits);
  InsertBatch insert;
  insert.table = table();
  insert.positions = positions;
  insert.slots = slots;
  insert.sources = sources;
  insert.count = count;
  insert.dirty = dirty;
  state_->kernels.insert(&insert);
  Count(&state_->counters.inserted, count);
  if (dirty) rows_dirty_ += count;
}

// --- rows leave

// Takes rows out whose dirty values have been written to memory that WriteBack has reserved.
void Residency::Evict(EvictBatch* evict, Lsn stamp) {
  HOTBED_DCHECK(!state_->update_waits);
  evict->table = table();
  state_->kernels.evict(evict);
  state_->write_back.Commit(evict->dirty_count, stamp);
  rows_dirty_ -= evict->dirty_count;
  if (evict->count > 0) state_->SetMayMiss(true);
  Count(&state_->counters.evictions, evict->count);
}

uint32_t Residency::EvictSome(uint32_t rows, bool unvisited_only) {
  if (rows == 0) return 0;
  const WriteBack::Space space = state_->write_back.Reserve(rows);
  std::vector<uint32_t> slots(rows);
  EvictBatch evict;
  evict.unvisited_only = unvisited_only;
  evict.hand = hand_;
  evict.wanted = rows;
  evict.slots = slots.data();
  evict.dirty_positions = space.positions;
  evict.out = space.payloads;
  evict.out_stride = space.stride;
  Evict(&evict, state_->applied_lsn);
  hand_ = evict.hand;
  hot_.ReturnSlots(slots.data(), evict.count);
  return evict.count;
}

uint32_t Residency::GiveBack(uint32_t slots, bool forced) {
  HOTBED_DCHECK(!state_->update_active);
  if (hot_.direct()) BecomeIndexed();
  // The first chunk stays: without a slot, no row could come in.
  slots = std::min(slots, hot_.paid_slots() - std::min(hot_.paid_slots(), hot_.chunk_slots()));
  if (slots == 0) return 0;
  if (hot_.free_slots() < slots) {
    EvictSome(std::min(slots - hot_.free_slots(), rows()), /*unvisited_only=*/!forced);
  }
  const uint32_t tail = hot_.TailOf(std::min(slots, hot_.free_slots()));
  std::vector<uint32_t> from;
  const uint32_t before = hot_.paid_slots();
  hot_.ForEachPaid([&](uint32_t first, uint32_t limit) {
    for (uint32_t slot = std::max(first, tail); slot < limit; ++slot) {
      if (table()->bits[slot] & kRowExists) from.push_back(slot);
    }
  });
  if (state_->collecting) CleanFrom(tail);
  hot_.CloseTail(tail);
  std::vector<uint32_t> to(from.size());
  MoveBatch move;
  move.table = table();
  move.count = hot_.TakeFree(static_cast<uint32_t>(from.size()), to.data());
  move.from = from.data();
  move.to = to.data();
  HOTBED_CHECK(move.count == from.size()) << "the tail has more rows than there are free slots";
  state_->kernels.move(&move);
  hot_.FreeTail(tail);
  Publish();
  return before - hot_.paid_slots();
}

// WriteBackAll walks over the slots once: dirty rows that move behind its back are written first.
void Residency::CleanFrom(uint32_t slot) {
  while (slot < table()->slots) CollectDirty(&slot);
}

void Residency::Age() {
  uint64_t unvisited = 0;
  hot_.ForEachPaid([&](uint32_t first, uint32_t limit) {
    AgeBatch age;
    age.table = table();
    age.slot_first = first;
    age.slot_limit = limit;
    state_->kernels.age(&age);
    unvisited += age.unvisited;
  });
  recent_misses_.NextWindow();
  state_->counters.cold_bytes.store((unvisited + hot_.free_slots()) * hot_.row_bytes(),
                                    std::memory_order_relaxed);
}

void Residency::NoteAbsent(uint64_t position) {
  if (!hot_.direct() || !hot_.PayForBits(DirectSlot(position))) return;
  table()->bits[DirectSlot(position)] |= kRowAbsent;
}

void Residency::CollectDirty(uint32_t* cursor) {
  const WriteBack::Space space = state_->write_back.Reserve(state_->slice_rows);
  CollectBatch collect;
  collect.table = table();
  collect.slot_first = *cursor;
  collect.wanted = state_->slice_rows;
  collect.positions = space.positions;
  collect.out = space.payloads;
  collect.out_stride = space.stride;
  state_->kernels.collect(&collect);
  state_->write_back.Commit(collect.count, state_->applied_lsn);
  rows_dirty_ -= collect.count;
  *cursor = collect.slot_first;
}

// --- rows of a faster tier above

void Residency::Take(const std::vector<uint64_t>& ids, bool clean_only, ExchangedRows* taken) {
  taken->payload_bytes = state_->spill_shard.payload_bytes;
  if (state_->update_active || ids.empty()) return;
  std::vector<uint32_t> slots(ids.size());
  std::vector<uint32_t> missing(ids.size());
  Probe(ids.data(), static_cast<uint32_t>(ids.size()), slots.data(), missing.data());
  for (uint32_t slot : slots) {
    // An id that is named twice has left already.
    if (slot == kNoSlot || (table()->bits[slot] & kRowExists) == 0) continue;
    if (clean_only && (table()->bits[slot] & kRowDirty) != 0) continue;
    TakeRow(slot, taken);
    state_->lends_rows = true;
  }
  // Reads in flight may have found older versions of these rows in the spill tier.
  state_->keep_from_fetch = state_->write_back.next_fetch();
  Publish();
}

void Residency::TakeRow(uint32_t slot, ExchangedRows* taken) {
  const bool dirty = (table()->bits[slot] & kRowDirty) != 0;
  uint8_t* const payload = taken->Add(PositionOfSlot(slot), dirty);
  CopyRow(slot, payload);
  Free(slot, payload);
}

void Residency::Drop(uint32_t slot) {
  dropped_.resize(state_->spill_shard.payload_bytes);
  Free(slot, dropped_.data());
}

// `payload` has room for the row, which is written there if it is dirty.
void Residency::Free(uint32_t slot, uint8_t* payload) {
  uint32_t freed = slot;
  uint64_t dirty_position = 0;
  EvictBatch evict;
  evict.table = table();
  evict.chosen = false;
  evict.slot_first = slot;
  evict.slot_limit = slot + 1;
  evict.slots = &freed;
  evict.dirty_positions = &dirty_position;
  evict.out = payload;
  evict.out_stride = state_->spill_shard.payload_bytes;
  state_->kernels.evict(&evict);
  HOTBED_DCHECK(evict.count == 1);
  if (!hot_.direct()) hot_.ReturnSlots(&slot, 1);
  rows_dirty_ -= evict.dirty_count;
}

void Residency::Put(const ExchangedRows& rows) {
  HOTBED_CHECK(!state_->update_active)
      << state_->shard.shard.ToString() << ": rows come in during an Apply";
  std::array<uint32_t, kInsertRows> slots;
  const uint32_t rows_max = std::min(kInsertRows, state_->slice_rows);
  for (const bool dirty : {true, false}) {
    std::vector<uint64_t> positions;
    std::vector<const uint8_t*> sources;
    for (uint32_t k = 0; k < rows.size(); ++k) {
      if ((rows.dirty[k] != 0) != dirty) continue;
      positions.push_back(rows.positions[k]);
      sources.push_back(rows.payload(k));
    }
    const uint32_t count = static_cast<uint32_t>(positions.size());
    if (count > 0 && !dirty && !HasRoom(count)) {
      state_->SetMayMiss(true);
      break;
    }
    for (uint32_t first = 0; first < count;) {
      const uint32_t placed = MakeSlots(&positions[first], std::min(rows_max, count - first),
                                        state_->applied_lsn, slots.data());
      Insert(&positions[first], slots.data(), &sources[first], placed, dirty);
      first += placed;
    }
  }
  state_->write_back.Pump();
  Publish();
}

// --- rows of a snapshot transfer

bool Residency::Warm(const RowBlock& block) {
  std::vector<uint64_t> positions;
  std::vector<const uint8_t*> records;
  for (uint32_t row = 0; row < block.rows(); ++row) {
    const auto* const record = reinterpret_cast<const uint8_t*>(block.record(row).data());
    if (IsDeleted(record)) {
      found_deleted_ = true;
      continue;
    }
    positions.push_back(block.position(row));
    records.push_back(record);
  }
  std::vector<uint32_t> slots(positions.size());
  const uint32_t count =
      hot_.TakeUnused(positions.data(), static_cast<uint32_t>(positions.size()), slots.data());
  std::vector<const uint8_t*> sources(count);
  for (uint32_t row = 0; row < count; ++row) {
    sources[row] = SpillTier::PayloadOf(records[row]);
    // The hot tier keeps no LSNs, so rows ahead of the log must be remembered here.
    const Lsn lsn = SpillTier::LsnOf(records[row]);
    if (state_->replaying && lsn > state_->applied_lsn) state_->replay_guard[positions[row]] = lsn;
  }
  Insert(positions.data(), slots.data(), sources.data(), count, /*dirty=*/false);
  Publish();
  return count == positions.size();
}

// --- the tier as a whole

void Residency::Publish() {
  const auto set = [](std::atomic<uint64_t>& to, uint64_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  RowCounters& counters = state_->counters;
  const RowTable& rows_of = *table();
  const uint64_t overhead = hot_.OverheadBytes(rows());
  HOTBED_DCHECK(rows_dirty_ >= 0 && rows_dirty_ <= rows()) << rows_dirty_ << " of " << rows();
  set(counters.rows_resident, rows());
  set(counters.rows_dirty, static_cast<uint64_t>(rows_dirty_));
  set(counters.overhead_bytes, overhead);
  set(counters.hot_bytes,
      overhead + uint64_t{rows()} * (rows_of.weight_bytes + rows_of.state_bytes));
  set(counters.writebacks, state_->write_back.rows_written());
}

}  // namespace hotbed
