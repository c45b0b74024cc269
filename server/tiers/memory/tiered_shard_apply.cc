// Updates: find the rows, fetch those that are in no memory, then, when nothing can fail any more,
// update all of them.
#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "server/tiers/memory/tiered_shard.h"

namespace hotbed {
namespace {

constexpr uint32_t kInsertRows = 256;  // at a time: so many may be evicted for them

}  // namespace

bool TieredShard::Apply(const RowUpdates& updates, Done done) {
  HOTBED_CHECK(!apply_.active) << shard_.shard.ToString() << ": Apply before the last one's done";
  ApplyOp& op = apply_;
  op.active = true;
  op.waits_for_room = false;
  op.fetched = false;
  op.updates = updates;
  if (op.slots.size() < updates.count) op.slots.resize(updates.count);
  op.missing.resize(updates.count);
  hot_->SetQuota(quota_.load(std::memory_order_relaxed));
  op.probe = ProbeBatch();
  op.probe.table = table();
  op.probe.ids = updates.ids;
  op.probe.count = updates.count;
  op.probe.slots = op.slots.data();
  op.probe.missing = op.missing.data();
  const bool probed = kernels_->Submit(&op.probe, [this] {
    if (AfterProbe()) FinishApply(absl::OkStatus());
  });
  op.done = std::move(done);
  if (!probed || !AfterProbe()) return false;
  op.done = nullptr;
  FinishApply(absl::OkStatus());
  return true;
}

// True: finished, all updated.
bool TieredShard::AfterProbe() {
  ApplyOp& op = apply_;
  const size_t missing = op.probe.missing_count;
  op.missing.resize(missing);
  counters_.hits.fetch_add(op.updates.count - missing, std::memory_order_relaxed);
  op.positions.resize(missing);
  op.records.assign(missing, nullptr);
  for (size_t k = 0; k < missing; ++k) op.positions[k] = PositionOf(op.updates.ids[op.missing[k]]);
  return ContinueApply();
}

// Whether a missing row's value is in no memory.
bool TieredShard::NeedsFetch() const {
  const RowTable& rows = std::as_const(*hot_).table();
  for (uint64_t position : apply_.positions) {
    if (rows.direct && (rows.bits[position - rows.first_position] & kRowAbsent)) continue;
    if (write_back_.Find(position) == nullptr) return true;
  }
  return false;
}

// Goes as far as it can; true when the update is done. Called again when a fetch or a write has
// come back.
bool TieredShard::ContinueApply() {
  ApplyOp& op = apply_;
  if (!op.missing.empty()) {
    if (!op.fetched && may_miss_ && NeedsFetch()) {
      FetchForApply();
      return false;
    }
    // Rows that have to make room for these go through WriteBack; a direct tier has room for all.
    if (!hot_->direct() && !write_back_.HasRoom(op.missing.size())) {
      op.waits_for_room = true;
      write_back_.Pump();
      return false;
    }
  }
  if (replaying_) SkipReplayedRows();
  // What is resident first: from then on those rows may be evicted to make room for the missing
  // ones.
  op.resident = ApplyBatch();
  op.resident.table = table();
  op.resident.slots = op.slots.data();
  op.resident.count = op.updates.count;
  op.resident.gradient_type = op.updates.gradient_type;
  op.resident.gradients = op.updates.gradients;
  op.resident.scalars = op.updates.scalars;
  op.resident.assign = op.updates.assign;
  const bool finished = kernels_->Submit(&op.resident, [this] {
    ApplyMissing();
    FinishApply(absl::OkStatus());
  });
  if (finished) ApplyMissing();
  return finished;
}

void TieredShard::FetchForApply() {
  ApplyOp& op = apply_;
  counters_.misses.fetch_add(op.missing.size(), std::memory_order_relaxed);
  // All that are not resident: a row that is in WriteBack now may have left it when this comes
  // back.
  op.fetch_number = write_back_.BeginFetch();
  SpillFetch::Start(spill_shard_, FetchWiring(), op.missing, op.positions,
                    [this, alive = alive_](std::shared_ptr<SpillFetch> fetch) {
                      if (*alive) OnApplyFetched(std::move(fetch));
                    });
}

void TieredShard::OnApplyFetched(std::shared_ptr<SpillFetch> fetch) {
  ApplyOp& op = apply_;
  op.fetched = true;
  op.fetch = std::move(fetch);
  if (const absl::Status status = op.fetch->status(); !status.ok()) {
    FinishApply(status);
    return;
  }
  size_t k = 0;
  for (const SpillFetch::Part& part : op.fetch->parts()) {
    // Sorted by position: the order of the missing rows from here on.
    for (size_t p = 0; p < part.picks.size(); ++p, ++k) {
      op.missing[k] = part.picks[p];
      op.positions[k] = part.positions[part.row_of[p]];
      op.records[k] = part.RecordOf(part.row_of[p], spill_shard_.record_bytes());
    }
  }
  if (ContinueApply()) FinishApply(absl::OkStatus());
}

// Resident rows that are ahead of this record stay as they are.
void TieredShard::SkipReplayedRows() {
  if (replay_guard_.empty()) return;
  for (uint32_t i = 0; i < apply_.updates.count; ++i) {
    if (apply_.slots[i] == kNoSlot) continue;
    const auto it = replay_guard_.find(PositionOf(apply_.updates.ids[i]));
    if (it == replay_guard_.end()) continue;
    if (it->second >= apply_.updates.lsn) {
      apply_.slots[i] = kNoSlot;
    } else {
      replay_guard_.erase(it);
    }
  }
}

void TieredShard::ApplyMissing() {
  rows_dirty_ += apply_.resident.dirtied;
  const uint32_t missing = static_cast<uint32_t>(apply_.missing.size());
  const uint32_t rows = std::min(kInsertRows, slice_rows_);
  for (uint32_t first = 0; first < missing;) {
    first += InsertMissing(first, std::min(rows, missing - first));
  }
}

// Brings up to `count` of the missing rows in, from `first` on, and updates them; returns how many,
// at least one.
uint32_t TieredShard::InsertMissing(uint32_t first, uint32_t count) {
  ApplyOp& op = apply_;
  const Lsn lsn = op.updates.lsn;
  std::array<uint32_t, kInsertRows> slots;
  std::array<const uint8_t*, kInsertRows> sources;
  if (hot_->direct()) {
    for (uint32_t k = 0; k < count; ++k) {
      slots[k] = static_cast<uint32_t>(op.positions[first + k] - table()->first_position);
    }
  } else {
    // Every resident row is at `lsn` by now: this record's are updated, the others it does not
    // touch.
    count = MakeSlots(count, slots.data(), std::max(lsn, applied_lsn_));
  }
  HOTBED_CHECK(count > 0) << "a hot tier without a single slot";
  std::array<uint32_t, kInsertRows> updated = slots;
  for (uint32_t k = 0; k < count; ++k) {
    const uint64_t position = op.positions[first + k];
    sources[k] = write_back_.Find(position);
    const uint8_t* record = op.records[first + k];
    if (sources[k] != nullptr || record == nullptr) continue;
    sources[k] = SpillTier::PayloadOf(record);
    if (replaying_ && SpillTier::LsnOf(record) >= lsn) {
      replay_guard_[position] = SpillTier::LsnOf(record);
      updated[k] = kNoSlot;
    }
  }
  InsertBatch insert;
  insert.table = table();
  insert.positions = op.positions.data() + first;
  insert.slots = slots.data();
  insert.sources = sources.data();
  insert.count = count;
  kernels_->Submit(&insert, nullptr);
  rows_resident_ += count;

  ApplyBatch apply = op.resident;
  apply.slots = updated.data();
  apply.picks = op.missing.data() + first;
  apply.count = count;
  kernels_->Submit(&apply, nullptr);
  rows_dirty_ += apply.dirtied;
  return count;
}

void TieredShard::FinishApply(absl::Status status) {
  ApplyOp& op = apply_;
  if (op.fetched) {
    write_back_.EndFetch(op.fetch_number);
    op.fetch = nullptr;
  }
  if (status.ok()) applied_lsn_ = std::max(applied_lsn_, op.updates.lsn);
  op.active = false;
  op.waits_for_room = false;
  write_back_.Pump();
  if (hot_->TakeRefusal() && ask_for_memory_) ask_for_memory_();
  PublishStats();
  Done done = std::move(op.done);
  op.done = nullptr;
  if (shed_.active) ShedStep();
  if (done) done(std::move(status));
}

// Slots for `wanted` rows that will be inserted, evicting others if need be; fewer when the tier is
// smaller than that. Rows that were dirty go to WriteBack, stamped with `stamp`.
uint32_t TieredShard::MakeSlots(uint32_t wanted, uint32_t* slots, Lsn stamp) {
  uint32_t count = hot_->TakeSlots(wanted, slots);
  if (count == wanted) return count;
  const uint32_t lacking =
      std::min<uint32_t>(wanted - count, static_cast<uint32_t>(rows_resident_));
  if (lacking == 0) return count;
  const WriteBack::Space space = write_back_.Reserve(lacking);
  EvictBatch evict;
  evict.table = table();
  evict.hand = hand_;
  evict.wanted = lacking;
  evict.slots = slots + count;
  evict.dirty_positions = space.positions;
  evict.out = space.payloads;
  evict.out_stride = space.stride;
  kernels_->Submit(&evict, nullptr);
  hand_ = evict.hand;
  write_back_.Commit(evict.dirty_count, stamp);
  rows_dirty_ -= evict.dirty_count;
  rows_resident_ -= evict.count;
  if (evict.count > 0) may_miss_ = true;
  counters_.evictions.fetch_add(evict.count, std::memory_order_relaxed);
  return count + evict.count;
}

}  // namespace hotbed
