#include "server/tiers/memory/update_op.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "server/tiers/spill/spill_record.h"

namespace hotbed {

bool UpdateOp::Start(const RowUpdates& updates, TieredStore::Done done) {
  HOTBED_CHECK(!state_->update_active)
      << state_->shard.shard.ToString() << ": Apply before the last one's done";
  state_->update_active = true;
  waits_for_room_ = false;
  updates_ = updates;
  done_ = std::move(done);
  if (slots_.size() < updates.count) slots_.resize(updates.count);
  missing_.resize(updates.count);
  const uint32_t missing =
      residency_->Probe(updates.ids, updates.count, slots_.data(), missing_.data());
  Count(&state_->counters.hits, updates.count - missing);
  missing_.resize(missing);
  positions_.resize(missing);
  records_.assign(missing, nullptr);
  for (uint32_t k = 0; k < missing; ++k) {
    positions_[k] = state_->PositionOf(updates.ids[missing_[k]]);
  }
  if (!Continue()) {
    state_->update_waits = true;
    return false;
  }
  done_ = nullptr;
  Finish(absl::OkStatus());
  return true;
}

void UpdateOp::OnWritten() {
  if (!state_->update_active || !waits_for_room_) return;
  if (const absl::Status error = state_->write_back.error(); !error.ok()) return End(error);
  waits_for_room_ = false;
  state_->update_waits = false;
  if (Continue()) return End(absl::OkStatus());
  state_->update_waits = true;
}

// Whether a missing row's value is in no memory.
bool UpdateOp::NeedsFetch() const {
  const RowTable& rows = std::as_const(*residency_).table();
  for (uint64_t position : positions_) {
    if (rows.direct && (rows.bits[position - rows.first_position] & kRowAbsent)) continue;
    if (!state_->write_back.Find(position).here) return true;
  }
  return false;
}

// Goes as far as it can; true: all rows are updated. Runs again after a fetch or a write.
bool UpdateOp::Continue() {
  if (!missing_.empty()) {
    if (fetch_ == nullptr && state_->may_miss() && NeedsFetch()) {
      Fetch();
      return false;
    }
    if (!updates_.deletes && !residency_->HasRoom(missing_.size())) {
      waits_for_room_ = true;
      state_->write_back.Pump();
      return false;
    }
  }
  if (updates_.deletes && !state_->write_back.HasRoom(updates_.count)) {
    waits_for_room_ = true;
    state_->write_back.Pump();
    return false;
  }
  if (state_->replaying) SkipReplayedRows();
  if (updates_.deletes) {
    Delete();
    return true;
  }
  if (state_->filter != nullptr) {
    enough_ = residency_->CountTouches(updates_.ids, updates_.count, slots_.data());
  }
  // Resident rows first: afterwards they may be evicted to make room for the missing ones.
  resident_ = ApplyBatch{updates_, residency_->table(), slots_.data()};
  state_->kernels.apply(&resident_);
  residency_->AddDirty(resident_.dirtied);
  if (resident_.held > 0) Count(&state_->counters.held, resident_.held);
  const AdmissionParams& admission = state_->shard.table->life.admission;
  if (admission.probability < 1 || state_->filter != nullptr) PassOverUnadmitted();
  UpdateMissing();
  return true;
}

// Whether a row that is nowhere is made: by its touches so far, or by chance. Both are the same on
// each replica.
bool UpdateOp::Admits(uint32_t number) const {
  if (state_->filter != nullptr) return enough_[number] != 0;
  const TableSpec& table = *state_->shard.table;
  return AdmittedByChance(table.life.admission.probability, table.seed, updates_.ids[number],
                          updates_.scalars.step);
}

// A push that assigns makes all its rows.
void UpdateOp::PassOverUnadmitted() {
  if (updates_.assign) return;
  size_t kept = 0;
  for (size_t k = 0; k < missing_.size(); ++k) {
    const WriteBack::Kept here = state_->write_back.Find(positions_[k]);
    const bool there =
        here.here ? here.payload != nullptr : records_[k] != nullptr && !IsDeleted(records_[k]);
    if (!there && !Admits(missing_[k])) continue;
    missing_[kept] = missing_[k];
    positions_[kept] = positions_[k];
    records_[kept++] = records_[k];
  }
  Count(&state_->counters.held, missing_.size() - kept);
  missing_.resize(kept);
  positions_.resize(kept);
  records_.resize(kept);
}

// Rows that exist leave memory, and marks of their deletion go to the spill tier, where they
// replace what it has of the rows. A row that exists nowhere needs no mark; where a faster tier is
// above, this one does not know.
void UpdateOp::Delete() {
  WriteBack& write_back = state_->write_back;
  const WriteBack::Space space = write_back.Reserve(updates_.count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < updates_.count; ++i) {
    if (slots_[i] == kNoSlot) continue;
    residency_->Drop(slots_[i]);
    space.positions[count++] = state_->PositionOf(updates_.ids[i]);
  }
  for (size_t k = 0; k < missing_.size(); ++k) {
    const WriteBack::Kept kept = write_back.Find(positions_[k]);
    const bool spilled = records_[k] != nullptr && !IsDeleted(records_[k]) &&
                         !(state_->replaying && SpillTier::LsnOf(records_[k]) >= updates_.lsn);
    const bool lent = state_->lends_rows && !state_->replaying;
    if (lent || (kept.here ? kept.payload != nullptr : spilled)) {
      space.positions[count++] = positions_[k];
    }
  }
  Count(&state_->counters.deleted, count);
  write_back.Commit(count, std::max(updates_.lsn, state_->applied_lsn), /*deleted=*/true);
  // Passes of transfers and saves, which look for marks, read the spill tier too. A read or an
  // update need not: if memory holds all rows, one that it does not hold exists nowhere, as before.
  if (count > 0) state_->has_marks = true;
}

// Fetches all rows that are not resident: one that WriteBack holds now may have left it when the
// fetch returns.
void UpdateOp::Fetch() {
  Count(&state_->counters.misses, missing_.size());
  fetch_number_ = state_->write_back.BeginFetch();
  SpillFetch::Start(
      state_->spill_shard, state_->FetchWiring(), missing_, positions_,
      state_->Guarded([this](std::shared_ptr<SpillFetch> fetch) { OnFetched(std::move(fetch)); }));
}

void UpdateOp::OnFetched(std::shared_ptr<SpillFetch> fetch) {
  fetch_ = std::move(fetch);
  state_->update_waits = false;
  if (const absl::Status status = fetch_->status(); !status.ok()) return End(status);
  size_t k = 0;
  for (const SpillFetch::Part& part : fetch_->parts()) {
    // Sorted by position, which is the order of the missing rows from here on.
    for (size_t p = 0; p < part.picks.size(); ++p, ++k) {
      missing_[k] = part.picks[p];
      positions_[k] = part.positions[part.row_of[p]];
      records_[k] = part.RecordOf(part.row_of[p], state_->spill_shard.record_bytes());
    }
  }
  HOTBED_DCHECK(k == missing_.size());
  if (state_->replaying) PassOverDeleted();
  if (Continue()) return End(absl::OkStatus());
  state_->update_waits = true;
}

// Rows that were deleted by a later record stay deleted: they must not come into memory for this
// one.
void UpdateOp::PassOverDeleted() {
  size_t kept = 0;
  for (size_t k = 0; k < missing_.size(); ++k) {
    const bool later = records_[k] != nullptr && IsDeleted(records_[k]) &&
                       SpillTier::LsnOf(records_[k]) >= updates_.lsn &&
                       !state_->write_back.Find(positions_[k]).here;
    if (later) continue;
    missing_[kept] = missing_[k];
    positions_[kept] = positions_[k];
    records_[kept++] = records_[k];
  }
  missing_.resize(kept);
  positions_.resize(kept);
  records_.resize(kept);
}

// Resident rows that are ahead of this record stay as they are.
void UpdateOp::SkipReplayedRows() {
  if (state_->replay_guard.empty()) return;
  for (uint32_t i = 0; i < updates_.count; ++i) {
    if (slots_[i] == kNoSlot) continue;
    const auto it = state_->replay_guard.find(state_->PositionOf(updates_.ids[i]));
    if (it == state_->replay_guard.end()) continue;
    if (it->second >= updates_.lsn) {
      slots_[i] = kNoSlot;
    } else {
      state_->replay_guard.erase(it);
    }
  }
}

void UpdateOp::UpdateMissing() {
  const uint32_t missing = static_cast<uint32_t>(missing_.size());
  const uint32_t rows = std::min(Residency::kInsertRows, state_->slice_rows);
  for (uint32_t first = 0; first < missing;) {
    first += InsertMissing(first, std::min(rows, missing - first));
  }
}

// Makes up to `count` of the missing rows resident, from `first` on, and updates them; returns how
// many, at least one.
uint32_t UpdateOp::InsertMissing(uint32_t first, uint32_t count) {
  const Lsn lsn = updates_.lsn;
  std::array<uint32_t, Residency::kInsertRows> slots;
  std::array<const uint8_t*, Residency::kInsertRows> sources;
  // Evicted rows are stamped with this record's LSN: its resident rows are updated by now, and it
  // does not touch the others.
  count = residency_->MakeSlots(&positions_[first], count, std::max(lsn, state_->applied_lsn),
                                slots.data());
  std::array<uint32_t, Residency::kInsertRows> updated = slots;
  uint32_t made = 0;
  for (uint32_t k = 0; k < count; ++k) {
    const uint64_t position = positions_[first + k];
    const WriteBack::Kept kept = state_->write_back.Find(position);
    sources[k] = kept.payload;
    const uint8_t* record = records_[first + k];
    made += kept.payload == nullptr && (kept.here || record == nullptr || IsDeleted(record));
    if (kept.here || record == nullptr || IsDeleted(record)) continue;
    sources[k] = SpillTier::PayloadOf(record);
    if (state_->replaying && SpillTier::LsnOf(record) >= lsn) {
      state_->replay_guard[position] = SpillTier::LsnOf(record);
      updated[k] = kNoSlot;
    }
  }
  residency_->Insert(&positions_[first], slots.data(), sources.data(), count, /*dirty=*/false);
  ApplyBatch apply = resident_;
  apply.slots = updated.data();
  apply.picks = missing_.data() + first;
  apply.count = count;
  state_->kernels.apply(&apply);
  residency_->AddDirty(apply.dirtied);
  for (uint32_t k = 0; state_->filter != nullptr && k < count; ++k) {
    if (sources[k] == nullptr) SetFirstTouches(slots[k]);
    if (enough_[missing_[first + k]] != 0) residency_->table()->bits[slots[k]] |= kRowCounted;
  }
  Count(&state_->counters.made, made);
  if (apply.held > 0) Count(&state_->counters.held, apply.held);
  return count;
}

// A row that the filter admitted begins with the touches that were counted there.
void UpdateOp::SetFirstTouches(uint32_t slot) {
  const RowTable& rows = std::as_const(*residency_).table();
  uint8_t* const at = rows.state + uint64_t{rows.state_bytes} * (slot + 1) - kTouchBytes;
  RowTouches touches = LoadTouches(at);
  touches.count = rows.admission.after;
  StoreTouches(touches, at);
}

void UpdateOp::Finish(const absl::Status& status) {
  if (fetch_ != nullptr) {
    state_->write_back.EndFetch(fetch_number_);
    fetch_ = nullptr;
  }
  if (status.ok()) state_->applied_lsn = std::max(state_->applied_lsn, updates_.lsn);
  waits_for_room_ = false;
  state_->update_active = false;
  state_->update_waits = false;
}

void UpdateOp::End(const absl::Status& status) {
  Finish(status);
  ended_(std::exchange(done_, nullptr), status);
}

}  // namespace hotbed
