#include "server/tiers/memory/tiered_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "server/tiers/memory/memory_ranking.h"

namespace hotbed {
namespace {

constexpr uint64_t kWeightMin = 64ull << 10;  // bytes; of a shard whose size is not known

uint64_t WholeBytes(const TierHost::ShardParams& shard) {
  if (!shard.table->hashed) return HotTier::WholeBytes(shard.table, shard.range);
  const double share = static_cast<double>(shard.range.limit - shard.range.first) / kBuckets;
  const double rows = static_cast<double>(shard.table->rows) * share;
  const double bytes =
      rows * static_cast<double>(HotTier::IndexedRowBytes(shard.table, shard.range));
  return std::max(static_cast<uint64_t>(bytes), kWeightMin);
}

}  // namespace

TieredShard::TieredShard(Params params)
    : state_(std::move(params.shard),
             {params.spill, params.io, params.write_back_budget, params.highest_lsn,
              params.has_spilled_rows, [this] { OnWritten(); }, std::move(params.memory_refused)}),
      before_close_(std::move(params.before_close)),
      highest_lsn_(params.highest_lsn),
      whole_bytes_(WholeBytes(state_.shard)),
      row_bytes_(HotTier::IndexedRowBytes(state_.shard.table, state_.shard.range)),
      began_with_rows_(params.has_spilled_rows),
      arrived_(std::move(params.arrived)),
      arena_(params.arena),
      account_{params.memory_of_table},
      residency_(&state_, params.arena, &account_, params.huge_pages,
                 arrived_ == nullptr ? nullptr : arrived_->hot()),
      pulls_(&state_, &residency_),
      pools_(&state_, &residency_, this),
      update_(
          &state_, &residency_,
          [this](Done done, const absl::Status& status) { AfterUpdate(std::move(done), status); }),
      write_back_all_(&state_, &residency_, std::move(params.meta)),
      shed_(&state_, &residency_),
      pass_(&state_, &residency_) {
  if (state_.filter != nullptr) arena_->TakeAnyway(&account_, state_.filter->bytes());
  if (state_.shard.hint == nullptr) return;
  state_.shard.hint->OpenRows(residency_.table(), state_.kernels.gather, !state_.may_miss());
  state_.shard.hint->SetStore(this);
}

TieredShard::~TieredShard() {
  static_assert(sizeof(TieredStore) + sizeof(void*) + RowTableState::kUpdateBytes <=
                FetchHint::kLineBytes);
  if (state_.shard.hint != nullptr) {
    state_.shard.hint->CloseRows();
    state_.shard.hint->Clear();
    state_.shard.hint->SetStore(nullptr);
  }
  if (before_close_) before_close_(this);
  *state_.alive = false;
  state_.gate->Close();
  if (state_.filter != nullptr) arena_->Give(&account_, state_.filter->bytes());
  arena_->SetCredit(&account_, 0);
}

// --- reads and updates

bool TieredShard::Pull(const RowReads& reads, Done done) {
  return reads.pooling == RowPooling::kNone ? pulls_.Start(reads, std::move(done))
                                            : pools_.Start(reads, std::move(done));
}

bool TieredShard::Apply(const RowUpdates& updates, Done done) {
  if (!update_.Start(updates, std::move(done))) return false;
  AfterUpdate(nullptr, absl::OkStatus());
  return true;
}

// The slots are on the stack, which is in the cache.
bool TieredShard::ApplyAtOnce(const RowUpdates& updates) {
  constexpr uint32_t kRowsMax = 512;
  if (updates.count > kRowsMax || above_ != this || state_.update_active || state_.replaying ||
      updates.deletes) {
    return false;
  }
  uint32_t slots[kRowsMax];
  uint32_t missing[kRowsMax];
  ProbeBatch probe{residency_.table(), updates.ids, updates.count, slots, missing};
  state_.kernels.probe(&probe);
  if (probe.missing_count != 0) return false;
  CountAlone(&state_.counters.hits, updates.count);
  if (state_.filter != nullptr) {
    residency_.CountTouches(updates.ids, updates.count, slots);
  }
  ApplyBatch apply{updates, residency_.table(), slots};
  state_.kernels.apply(&apply);
  state_.applied_lsn = std::max(state_.applied_lsn, updates.lsn);
  if (apply.held > 0) Count(&state_.counters.held, apply.held);
  if (apply.dirtied == 0) return true;
  residency_.AddDirty(apply.dirtied);
  residency_.Publish();
  return true;
}

void TieredShard::AfterUpdate(Done done, const absl::Status& status) {
  state_.write_back.Pump();
  residency_.Publish();
  shed_.Continue();
  if (done) done(status);
}

// A write has ended: operations that waited for room, or for this write, continue.
void TieredShard::OnWritten() {
  update_.OnWritten();
  write_back_all_.OnWritten();
  shed_.Continue();
  residency_.Publish();
  if (above_progress_) above_progress_();
}

void TieredShard::WriteBackAll(Lsn applied_lsn, std::string meta, Done done) {
  write_back_all_.Start(applied_lsn, std::move(meta), std::move(done));
}

std::string TieredShard::SaveTouchFilter() const {
  return state_.filter == nullptr ? "" : state_.filter->Save();
}

absl::Status TieredShard::RestoreTouchFilter(absl::string_view saved) {
  if (state_.filter == nullptr) return absl::OkStatus();
  const absl::Status restored = state_.filter->Restore(saved);
  state_.counters.filter_used.store(state_.filter->used(), std::memory_order_relaxed);
  return restored;
}

void TieredShard::SetAppliedLsn(Lsn lsn) { state_.applied_lsn = std::max(state_.applied_lsn, lsn); }

bool TieredShard::PeekRow(uint64_t id, std::vector<uint8_t>* row) {
  row->resize(payload_bytes());
  uint32_t slot = kNoSlot;
  uint32_t missing = 0;
  if (residency_.Probe(&id, 1, &slot, &missing) == 0) {
    residency_.CopyRow(slot, row->data());
    return true;
  }
  const WriteBack::Kept kept = state_.write_back.Find(PositionOf(id));
  if (kept.payload == nullptr) return false;
  std::memcpy(row->data(), kept.payload, payload_bytes());
  return true;
}

// --- recovery

void TieredShard::BeginReplay() {
  state_.replaying = true;
  state_.replay_guard.clear();
  evictions_before_replay_ = state_.counters.evictions.load(std::memory_order_relaxed);
}

void TieredShard::EndReplay() {
  state_.replaying = false;
  state_.replay_guard = {};
  shed_.Continue();
}

absl::StatusOr<bool> TieredShard::Warm(absl::string_view bytes) {
  HOTBED_CHECK(!state_.update_active) << state_.shard.shard.ToString() << ": Warm during an Apply";
  HOTBED_ASSIGN_OR_RETURN(const RowBlock block,
                          RowBlock::Parse(bytes, state_.spill_shard.record_bytes()));
  return residency_.Warm(block);
}

// Without evictions since, no row is in the spill tier alone. The mark of a deleted row is, and it
// guards against older records of the log.
void TieredShard::WarmedAll() {
  const uint64_t evictions = state_.counters.evictions.load(std::memory_order_relaxed);
  if (state_.replaying && above_ == this && evictions == evictions_before_replay_ &&
      !residency_.found_deleted()) {
    state_.SetMayMiss(false);
  }
}

bool TieredShard::TakeArrived() {
  const std::unique_ptr<ArrivingRows> arrived = std::move(arrived_);
  if (arrived == nullptr) return false;
  for (const auto& [position, lsn] : arrived->ahead()) {
    if (state_.replaying && lsn > state_.applied_lsn) state_.replay_guard[position] = lsn;
  }
  Count(&state_.counters.inserted, residency_.rows());
  residency_.Publish();
  if (arrived->complete()) WarmedAll();
  return true;
}

// --- snapshot transfers

// A tier above has rows that memory here does not: then the rows have to be written back.
bool TieredShard::BeginPass(bool further, std::vector<uint64_t>* positions) {
  return above_ == this && pass_.Begin(further, positions);
}

void TieredShard::ReadPass(absl::Span<const uint64_t> positions, LiveRows* out) {
  pass_.Read(positions, out);
}

bool TieredShard::RankMemory(RowRanking* ranking, MemoryWalk* walk) {
  if (above_ != this) return false;
  RankMemoryStep(state_, &residency_, ranking, walk);
  return true;
}

bool TieredShard::VisitMemory(uint32_t rows_max, MemoryWalk* walk, RowVisitor visit) {
  if (above_ != this) return false;
  VisitMemoryStep(state_, &residency_, rows_max, walk, visit);
  return true;
}

// --- a faster tier above

void TieredShard::SetAbove(TieredStore* above, std::function<void()> progress) {
  if (state_.shard.hint != nullptr) state_.shard.hint->CloseRows();
  above_ = above;
  above_progress_ = std::move(progress);
  pools_.set_source(above);
}

void TieredShard::TakeRows(const std::vector<uint64_t>& ids, bool clean_only,
                           ExchangedRows* taken) {
  residency_.Take(ids, clean_only, taken);
}

void TieredShard::WriteRows(const ExchangedRows& rows) {
  if (rows.size() == 0) return;
  WriteBack& write_back = state_.write_back;
  const WriteBack::Space space = write_back.Reserve(rows.size());
  for (uint32_t k = 0; k < rows.size(); ++k) {
    space.positions[k] = rows.positions[k];
    std::memcpy(space.payloads + uint64_t{space.stride} * k, rows.payload(k), rows.payload_bytes);
  }
  write_back.Commit(rows.size(), state_.applied_lsn);
  write_back.Pump();
}

bool TieredShard::HasRoomFor(uint64_t rows) {
  if (state_.write_back.HasRoom(rows)) return true;
  state_.write_back.Pump();
  return false;
}

absl::Status TieredShard::WriteError() const {
  const WriteBack& write_back = state_.write_back;
  return write_back.written() < write_back.committed() ? write_back.error() : absl::OkStatus();
}

bool TieredShard::PoolBags(const RowReads& reads, const std::vector<uint32_t>& bags, Done done) {
  return pools_.StartWindows(reads, bags, std::move(done));
}

StoreStats TieredShard::Stats() const {
  const auto get = [](const std::atomic<uint64_t>& from) {
    return from.load(std::memory_order_relaxed);
  };
  const RowCounters& counters = state_.counters;
  StoreStats stats;
  stats.rows_resident = get(counters.rows_resident);
  stats.rows_dirty = get(counters.rows_dirty);
  stats.hot_bytes = get(counters.hot_bytes);
  stats.overhead_bytes = get(counters.overhead_bytes);
  stats.hits = hits();
  stats.misses = get(counters.misses);
  stats.evictions = get(counters.evictions);
  stats.writebacks = get(counters.writebacks);
  stats.rows_made = get(counters.made);
  stats.rows_deleted = get(counters.deleted);
  stats.rows_held = get(counters.held);
  if (state_.filter != nullptr) {
    stats.filter_bytes = state_.filter->bytes();
    stats.filter_counters = state_.filter->counters();
    stats.filter_used = get(counters.filter_used);
  }
  stats.began_with_rows = began_with_rows_;
  return stats;
}

}  // namespace hotbed
