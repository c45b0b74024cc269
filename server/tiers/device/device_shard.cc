#include "server/tiers/device/device_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace hotbed {

DeviceShard::DeviceShard(DeviceTier* device, std::unique_ptr<TieredShard> below,
                         const TierHost::ShardParams& shard)
    : device_(device),
      below_(std::move(below)),
      spec_(shard.table),
      range_(shard.range),
      executor_(shard.executor),
      dim_(shard.range.column_limit - shard.range.column_first) {
  below_->SetAbove(this, [this] { NextStep(/*background_first=*/false); });
}

DeviceShard::~DeviceShard() {
  *alive_ = false;
  gate_->Close();
  // After all that was asked for: the job that makes the table too, if it has begun.
  auto job = std::make_shared<DeviceJob>();
  job->call = [table = table_](device::DeviceRows* rows) {
    if (table->exists) rows->RemoveTable(table->number);
    table->exists = false;
    return device::Status();
  };
  device_->Submit(std::move(job));
}

std::shared_ptr<DeviceJob> DeviceShard::NewJob(DeviceJob::Kind kind) const {
  auto job = std::make_shared<DeviceJob>();
  job->kind = kind;
  job->table = table_->number;
  job->dim = dim_;
  job->gate = gate_;
  job->executor = executor_;
  return job;
}

void DeviceShard::Fail(Done done, absl::Status status) {
  executor_->Run(
      [done = std::move(done), status = std::move(status)]() mutable { done(std::move(status)); });
}

// Rows that only the device had are gone with it.
absl::Status DeviceShard::Lost() const {
  return has_table() && device_->failed() ? device_->error() : absl::OkStatus();
}

void DeviceShard::BeginReplay() {
  HOTBED_CHECK(!table_known_ && step_ == Step::kNone) << "a replay over rows on the device";
  replaying_ = true;
  below_->BeginReplay();
}

void DeviceShard::EndReplay() {
  replaying_ = false;
  below_->EndReplay();
}

// Only what was updated below, or is just coming up from there, is at hand.
bool DeviceShard::PeekRow(uint64_t id, std::vector<uint8_t>* row) {
  if (!has_table()) return below_->PeekRow(id, row);
  if (const auto it = moving_at_.find(below_->PositionOf(id)); it != moving_at_.end()) {
    row->assign(moving_.payload(it->second), moving_.payload(it->second) + moving_.payload_bytes);
    return true;
  }
  const std::vector<uint64_t>& below = apply_.ids_below;
  return std::find(below.begin(), below.end(), id) != below.end() && below_->PeekRow(id, row);
}

StoreStats DeviceShard::Stats() const {
  StoreStats stats = below_->Stats();
  stats.device_rows = static_cast<uint64_t>(rows_.load(std::memory_order_relaxed));
  stats.device_bytes = stats.device_rows * below_->payload_bytes();
  stats.device_hits = hits_.load(std::memory_order_relaxed);
  stats.rows_resident += stats.device_rows;
  stats.hits += stats.device_hits;
  return stats;
}

// Without a table of its own yet, an id counts for one soon; else for itself, as soon as there is
// room, or when it is asked for again.
void DeviceShard::NoteMiss(uint64_t id) {
  const bool paced = has_table() && full_;
  if (paced && heat_.Miss(below_->PositionOf(id)) < HeatFilter::kMissesToComeUp) return;
  if (candidates_.size() < kCandidatesMax) candidates_.push_back(id);
}

void DeviceShard::NoteMisses(const uint64_t* ids, uint32_t count) {
  if (replaying_ || device_->failed()) return;
  if (!has_table()) {
    misses_since_table_ += count;
    if (misses_since_table_ < misses_to_table_) return;
  }
  for (uint32_t k = 0; k < count; ++k) NoteMiss(ids[k]);
}

void DeviceShard::NoteMisses(const uint64_t* ids, const std::vector<uint32_t>& missing) {
  if (replaying_ || device_->failed()) return;
  for (uint32_t k : missing) NoteMiss(ids[k]);
}

}  // namespace hotbed
