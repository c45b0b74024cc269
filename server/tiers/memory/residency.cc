#include "server/tiers/memory/residency.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"

namespace hotbed {
namespace {

// This part of the budget stays free for shards in use, which grow without asking.
constexpr uint64_t kWarmLeftShare = 16;

}  // namespace

Residency::Residency(RowTableState* state, HotArena* arena, bool huge_pages)
    : state_(state),
      arena_(arena),
      huge_pages_(huge_pages),
      hot_(std::make_unique<HotTier>(state->shard.table, state->shard.range, /*direct=*/false,
                                     huge_pages, arena)) {}

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
  if (reads.flags != nullptr) reads.flags[i] = payload != nullptr ? 1 : 0;
}

// --- rows come in

bool Residency::HasRoom(uint64_t rows) const {
  return hot_->direct() || state_->write_back.HasRoom(rows);
}

uint32_t Residency::MakeSlots(const uint64_t* positions, uint32_t count, Lsn stamp,
                              uint32_t* slots) {
  HOTBED_DCHECK(!state_->update_waits);
  if (hot_->direct()) {
    for (uint32_t k = 0; k < count; ++k) slots[k] = DirectSlot(positions[k]);
    return count;
  }
  const uint32_t free = hot_->TakeSlots(count, slots);
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
  if (evict->count > 0) state_->may_miss = true;
  Count(&state_->counters.evictions, evict->count);
}

uint32_t Residency::EvictRange(uint32_t first, uint32_t limit) {
  if (first >= limit) return 0;
  const uint32_t rows_max = std::min(limit - first, rows());
  const WriteBack::Space space = state_->write_back.Reserve(rows_max);
  std::vector<uint32_t> slots(rows_max);
  EvictBatch evict;
  evict.chosen = false;
  evict.slot_first = first;
  evict.slot_limit = limit;
  evict.slots = slots.data();
  evict.dirty_positions = space.positions;
  evict.out = space.payloads;
  evict.out_stride = space.stride;
  Evict(&evict, state_->applied_lsn);
  return evict.count;
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
  if (state_->update_active || state_->shedding || ids.empty()) return;
  std::vector<uint32_t> slots(ids.size());
  std::vector<uint32_t> missing(ids.size());
  Probe(ids.data(), static_cast<uint32_t>(ids.size()), slots.data(), missing.data());
  for (uint32_t slot : slots) {
    // An id that is named twice has left already.
    if (slot == kNoSlot || (table()->bits[slot] & kRowExists) == 0) continue;
    if (clean_only && (table()->bits[slot] & kRowDirty) != 0) continue;
    TakeRow(slot, taken);
  }
  // Reads in flight may have found older versions of these rows in the spill tier.
  state_->keep_from_fetch = state_->write_back.next_fetch();
  Publish();
}

void Residency::TakeRow(uint32_t slot, ExchangedRows* taken) {
  const bool dirty = (table()->bits[slot] & kRowDirty) != 0;
  uint8_t* const payload = taken->Add(PositionOfSlot(slot), dirty);
  CopyRow(slot, payload);
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
  if (!hot_->direct()) hot_->ReturnSlots(&slot, 1);
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
      state_->may_miss = true;
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

uint32_t Residency::Warm(const RowBlock& block) {
  std::vector<uint32_t> slots(block.rows());
  const uint32_t count = SlotsToWarm(block, slots.data());
  std::vector<uint64_t> positions(count);
  std::vector<const uint8_t*> sources(count);
  for (uint32_t row = 0; row < count; ++row) {
    const auto* const record = reinterpret_cast<const uint8_t*>(block.record(row).data());
    positions[row] = block.position(row);
    sources[row] = SpillTier::PayloadOf(record);
    // The hot tier keeps no LSNs, so rows ahead of the log must be remembered here.
    const Lsn lsn = SpillTier::LsnOf(record);
    if (state_->replaying && lsn > state_->applied_lsn) state_->replay_guard[positions[row]] = lsn;
  }
  Insert(positions.data(), slots.data(), sources.data(), count, /*dirty=*/false);
  Publish();
  return count;
}

uint32_t Residency::SlotsToWarm(const RowBlock& block, uint32_t* slots) {
  const uint32_t count = block.rows();
  if (hot_->direct()) {  // all slots are paid for
    for (uint32_t row = 0; row < count; ++row) slots[row] = DirectSlot(block.position(row));
    return count;
  }
  const uint64_t row_bytes = HotTier::IndexedRowBytes(state_->shard.table, state_->shard.range);
  const uint64_t kept = arena_->taken() + arena_->budget() / kWarmLeftShare;
  if (kept >= arena_->budget()) return 0;
  const uint64_t affordable = (arena_->budget() - kept) / row_bytes;
  return hot_->TakeSlots(static_cast<uint32_t>(std::min<uint64_t>(count, affordable)), slots);
}

// --- the tier as a whole

void Residency::Replace(bool direct, uint64_t quota) {
  HOTBED_CHECK(rows() == 0);
  hot_ = nullptr;  // gives its bytes back first
  hot_ = std::make_unique<HotTier>(state_->shard.table, state_->shard.range, direct, huge_pages_,
                                   arena_);
  hot_->SetQuota(quota);
  hand_ = 0;
  if (state_->shard.hint != nullptr) state_->shard.hint->Set(*table());
}

void Residency::Shrink(uint32_t slots) {
  hot_->Shrink(slots);
  hand_ = 0;
}

void Residency::Publish() {
  const auto set = [](std::atomic<uint64_t>& to, uint64_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  RowCounters& counters = state_->counters;
  const RowTable& rows_of = *table();
  const uint64_t overhead = hot_->OverheadBytes(rows());
  HOTBED_DCHECK(rows_dirty_ >= 0 && rows_dirty_ <= rows()) << rows_dirty_ << " of " << rows();
  set(counters.taken_bytes, hot_->taken());
  set(counters.rows_resident, rows());
  set(counters.rows_dirty, static_cast<uint64_t>(rows_dirty_));
  set(counters.overhead_bytes, overhead);
  set(counters.hot_bytes,
      overhead + uint64_t{rows()} * (rows_of.weight_bytes + rows_of.state_bytes));
  set(counters.writebacks, state_->write_back.rows_written());
}

}  // namespace hotbed
