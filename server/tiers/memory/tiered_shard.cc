#include "server/tiers/memory/tiered_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint64_t kSliceBytes = 1ull << 20;
constexpr uint32_t kSliceRowsMax = 2048;
constexpr uint64_t kWeightMin = 64ull << 10;  // of a shard whose size is not known

uint64_t WholeBytes(const TierHost::ShardParams& shard) {
  if (!shard.table.hashed) return HotTier::DirectBytes(shard.table, shard.range);
  const double share = static_cast<double>(shard.range.limit - shard.range.first) / kBuckets;
  const double rows = static_cast<double>(shard.table.rows) * share;
  const double bytes =
      rows * static_cast<double>(HotTier::IndexedRowBytes(shard.table, shard.range));
  return std::max(static_cast<uint64_t>(bytes), kWeightMin);
}

}  // namespace

TieredShard::TieredShard(Params params)
    : shard_(std::move(params.shard)),
      spill_shard_(shard_.table, shard_.range, shard_.shard),
      spill_(params.spill),
      io_(params.io),
      executor_(shard_.executor),
      arena_(params.arena),
      kernels_(params.kernels),
      huge_pages_(params.huge_pages),
      ask_for_memory_(std::move(params.ask_for_memory)),
      before_close_(std::move(params.before_close)),
      whole_bytes_(WholeBytes(shard_)),
      direct_bytes_(HotTier::DirectBytes(shard_.table, shard_.range)),
      slice_rows_(static_cast<uint32_t>(
          std::clamp<uint64_t>(kSliceBytes / spill_shard_.record_bytes(), 8, kSliceRowsMax))),
      meta_(std::move(params.meta)),
      highest_lsn_(params.highest_lsn),
      may_miss_(params.has_spilled_rows),
      hot_(std::make_unique<HotTier>(shard_.table, shard_.range, /*direct=*/false, huge_pages_,
                                     arena_, kernels_)),
      write_back_(spill_shard_,
                  {spill_, io_, executor_, gate_, params.write_back_budget, highest_lsn_,
                   shard_.before_write_back, [this] { OnProgress(); }}) {}

TieredShard::~TieredShard() {
  if (shard_.hint != nullptr) shard_.hint->Clear();
  if (before_close_) before_close_(this);
  *alive_ = false;
  gate_->Close();
}

void TieredShard::StartWithQuota(uint64_t bytes) {
  quota_.store(bytes, std::memory_order_relaxed);
  OnQuota();
}

uint64_t TieredShard::PositionOf(uint64_t id) const { return shard_.table.hashed ? Mix64(id) : id; }

SpillFetch::Wiring TieredShard::FetchWiring() const { return {spill_, io_, executor_, gate_}; }

void TieredShard::Fail(Done done, absl::Status status) {
  executor_->Run(
      [done = std::move(done), status = std::move(status)]() mutable { done(std::move(status)); });
}

void TieredShard::BeginReplay() {
  replaying_ = true;
  replay_guard_.clear();
  evictions_before_replay_ = counters_.evictions.load(std::memory_order_relaxed);
}

void TieredShard::EndReplay() {
  replaying_ = false;
  replay_guard_ = {};
}

// A write has ended: whoever waited for room, or for it, goes on.
void TieredShard::OnProgress() {
  if (apply_.active && apply_.waits_for_room) {
    if (!write_back_.error().ok()) {
      FinishApply(write_back_.error());
    } else {
      apply_.waits_for_room = false;
      if (ContinueApply()) FinishApply(absl::OkStatus());
    }
  }
  if (sweep_.active) SweepStep();
  if (shed_.active) ShedStep();
  PublishStats();
  if (above_progress_) above_progress_();
}

void TieredShard::PublishStats() {
  const auto set = [](std::atomic<uint64_t>& to, uint64_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  const uint64_t rows = static_cast<uint64_t>(rows_resident_);
  const RowTable& rows_of = *table();
  const uint64_t overhead = hot_->OverheadBytes(rows);
  set(taken_, hot_->taken());
  set(counters_.rows_resident, rows);
  set(counters_.rows_dirty, static_cast<uint64_t>(rows_dirty_));
  set(counters_.overhead_bytes, overhead);
  set(counters_.hot_bytes, overhead + rows * (rows_of.weight_bytes + rows_of.state_bytes));
  set(counters_.writebacks, write_back_.rows_written());
}

bool TieredShard::PeekRow(uint64_t id, std::vector<uint8_t>* row) {
  const RowTable& rows = *table();
  row->resize(spill_shard_.payload_bytes);
  uint32_t slot = kNoSlot;
  uint32_t missing = 0;
  ProbeBatch probe;
  probe.table = &rows;
  probe.ids = &id;
  probe.count = 1;
  probe.slots = &slot;
  probe.missing = &missing;
  if (!kernels_->Submit(&probe, nullptr)) return false;
  if (probe.missing_count == 0) {
    std::memcpy(row->data(), rows.weights + uint64_t{rows.weight_stride} * slot, rows.weight_bytes);
    if (rows.state_bytes > 0) {
      std::memcpy(row->data() + rows.weight_bytes, rows.state + uint64_t{rows.state_bytes} * slot,
                  rows.state_bytes);
    }
    return true;
  }
  const uint8_t* const payload = write_back_.Find(PositionOf(id));
  if (payload == nullptr) return false;
  std::memcpy(row->data(), payload, spill_shard_.payload_bytes);
  return true;
}

StoreStats TieredShard::Stats() const {
  const auto get = [](const std::atomic<uint64_t>& from) {
    return from.load(std::memory_order_relaxed);
  };
  StoreStats stats;
  stats.rows_resident = get(counters_.rows_resident);
  stats.rows_dirty = get(counters_.rows_dirty);
  stats.hot_bytes = get(counters_.hot_bytes);
  stats.overhead_bytes = get(counters_.overhead_bytes);
  stats.hits = get(counters_.hits);
  stats.misses = get(counters_.misses);
  stats.evictions = get(counters_.evictions);
  stats.writebacks = get(counters_.writebacks);
  return stats;
}

}  // namespace hotbed
