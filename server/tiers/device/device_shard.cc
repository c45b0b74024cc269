#include "server/tiers/device/device_shard.h"

#include <algorithm>
#include <cstring>
#include <numeric>
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
  // Runs after all earlier jobs, including one that makes the table.
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

// The error of every call once the device has failed: rows that only the device had are lost.
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

// Rows that were updated below, or that are coming up from there, can be read without waiting.
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

// Every missed row is a candidate while the device has free slots, or no table for this shard yet;
// later only a row that misses again before long.
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

// --- pulls

std::shared_ptr<DeviceJob> DeviceShard::NewReadJob(DeviceJob::Kind kind,
                                                   const RowReads& reads) const {
  std::shared_ptr<DeviceJob> job = NewJob(kind);
  static_cast<RowReads&>(*job) = reads;
  return job;
}

bool DeviceShard::Pull(const RowReads& reads, Done done) {
  HOTBED_DCHECK(reads.picks == nullptr);
  if (const absl::Status lost = Lost(); !lost.ok()) {
    Fail(std::move(done), lost);
    return false;
  }
  if (!has_table()) {
    // Note misses first: rows that come up while the pull waits do not change what it reads.
    NoteMisses(reads.ids, reads.count);
    const bool finished = below_->Pull(reads, std::move(done));
    NextStep(/*background_first=*/false);
    return finished;
  }
  if (!device_->HasRoomForPull()) {
    Fail(std::move(done),
         absl::ResourceExhaustedError(absl::StrCat(
             DeviceTier::kPullJobsMax, " pulls wait for the device; send fewer at a time")));
    return false;
  }
  if (reads.pooling != RowPooling::kNone) return PullPooled(reads, std::move(done));
  auto op = std::make_shared<PullOp>();
  op->reads = reads;
  op->done = std::move(done);
  const std::shared_ptr<DeviceJob> job = NewReadJob(DeviceJob::Kind::kPull, reads);
  job->done = Guarded([this, op, job = job.get()] { OnPulled(op, job); });
  device_->Submit(job);
  return false;
}

void DeviceShard::OnPulled(const std::shared_ptr<PullOp>& op, DeviceJob* job) {
  if (!job->status.ok()) return op->done(job->status);
  const RowReads& reads = op->reads;
  hits_.fetch_add(reads.count - job->missing.size(), std::memory_order_relaxed);
  for (uint32_t i : job->missing) {
    const uint64_t position = below_->PositionOf(reads.ids[i]);
    // The row left the tier below while the pull was in flight, and the pull passed it.
    if (const auto it = moving_at_.find(position); it != moving_at_.end()) {
      below_->AnswerRow(reads, i, moving_.payload(it->second), position);
    } else {
      op->picks.push_back(i);
    }
  }
  const bool finished = op->picks.empty() || PullBelow(op);
  NoteMisses(reads.ids, op->picks);
  NextStep(/*background_first=*/false);
  if (finished) op->done(absl::OkStatus());
}

bool DeviceShard::PullBelow(const std::shared_ptr<PullOp>& op) {
  RowReads below = op->reads;
  below.picks = op->picks.data();
  below.count = static_cast<uint32_t>(op->picks.size());
  return below_->Pull(below, [op](absl::Status status) { op->done(std::move(status)); });
}

// Bags with rows that are not on the device are incomplete; if one message has no room for the
// whole pull, all bags are.
bool DeviceShard::PullPooled(const RowReads& reads, Done done) {
  auto op = std::make_shared<PullOp>();
  op->reads = reads;
  op->done = std::move(done);
  const std::shared_ptr<DeviceJob> job = NewReadJob(DeviceJob::Kind::kPooled, reads);
  if (!device_->FitsPooled(*job)) {
    job->missing.resize(reads.bags);
    std::iota(job->missing.begin(), job->missing.end(), 0u);
    executor_->Run(Guarded([this, op, job] { OnPooled(op, job->missing); }));
    return false;
  }
  job->done = Guarded([this, op, job = job.get()] {
    if (!job->status.ok()) return op->done(job->status);
    OnPooled(op, job->missing);
  });
  device_->Submit(job);
  return false;
}

void DeviceShard::OnPooled(const std::shared_ptr<PullOp>& op,
                           const std::vector<uint32_t>& incomplete) {
  const RowReads& reads = op->reads;
  // Every row on the device exists. Windows overwrite the flags of incomplete bags.
  if (reads.flags != nullptr) std::memset(reads.flags, 1, reads.count);
  uint64_t hits = reads.count;  // incomplete bags count when their windows are pulled
  for (uint32_t bag : incomplete) hits -= reads.bag_lengths[bag];
  hits_.fetch_add(hits, std::memory_order_relaxed);
  const auto done = [op](absl::Status status) { op->done(std::move(status)); };
  if (incomplete.empty() || below_->PoolBags(reads, incomplete, done)) op->done(absl::OkStatus());
}

// --- updates

bool DeviceShard::Apply(const RowUpdates& updates, Done done) {
  HOTBED_CHECK(step_ != Step::kApply && !apply_waits_) << "Apply before the last one's done";
  if (const absl::Status lost = Lost(); !lost.ok()) {
    Fail(std::move(done), lost);
    return false;
  }
  apply_.updates = updates;
  if (step_ != Step::kNone) {
    apply_.done = std::move(done);
    apply_waits_ = true;
    return false;
  }
  if (has_table()) {
    apply_.done = std::move(done);
    StartApply();
    return false;
  }
  step_ = Step::kApply;
  if (!ApplyBelowOnly()) {
    apply_.done = std::move(done);
    return false;
  }
  FinishApply(absl::OkStatus());
  return true;
}

bool DeviceShard::ApplyBelowOnly() {
  apply_.ids_below.clear();
  return below_->Apply(apply_.updates, [this](absl::Status status) { FinishApply(status); });
}

// Starts an update that has waited, or that needs a device probe.
void DeviceShard::StartApply() {
  step_ = Step::kApply;
  if (const absl::Status lost = Lost(); !lost.ok()) return FinishApply(lost);
  if (!has_table()) {
    if (ApplyBelowOnly()) FinishApply(absl::OkStatus());
    return;
  }
  const std::shared_ptr<DeviceJob> job = NewJob(DeviceJob::Kind::kProbe);
  job->ids = apply_.updates.ids;
  job->count = apply_.updates.count;
  job->done = Guarded([this, job = job.get()] { OnProbed(job); });
  device_->Submit(job);
}

void DeviceShard::OnProbed(DeviceJob* job) {
  if (!job->status.ok()) return FinishApply(job->status);
  const RowUpdates& updates = apply_.updates;
  apply_.ids_below.clear();
  apply_.gradients_below.clear();
  apply_.ids_above.clear();
  apply_.gradients_above.clear();
  hits_.fetch_add(updates.count - job->missing.size(), std::memory_order_relaxed);
  if (job->missing.empty() && !updates.deletes) return ApplyAbove();
  size_t next = 0;
  for (uint32_t i = 0; i < updates.count; ++i) {
    const bool below = next < job->missing.size() && job->missing[next] == i;
    next += below;
    (below ? apply_.ids_below : apply_.ids_above).push_back(updates.ids[i]);
    if (updates.deletes) continue;
    (below ? apply_.gradients_below : apply_.gradients_above).push_back(updates.gradients[i]);
  }
  updates.deletes ? DeleteRows() : ApplyBelow();
}

// Below first, all of them: the spill tier may have older versions of rows that are on the device,
// and a read finds the row on the device until no other version can be found.
void DeviceShard::DeleteRows() {
  const auto then = [this](const absl::Status& status) {
    status.ok() && !apply_.ids_above.empty() ? DeleteAbove() : FinishApply(status);
  };
  if (below_->Apply(apply_.updates, then)) then(absl::OkStatus());
}

void DeviceShard::DeleteAbove() {
  auto positions = std::make_shared<std::vector<uint64_t>>();
  for (const uint64_t id : apply_.ids_above) positions->push_back(below_->PositionOf(id));
  const std::shared_ptr<DeviceJob> job = NewJob(DeviceJob::Kind::kCall);
  job->call = [table = table_->number, positions](device::DeviceRows* rows) {
    return rows->Remove(table, *positions);
  };
  job->done = Guarded([this, positions, job = job.get()] {
    if (job->status.ok()) {
      rows_.fetch_sub(static_cast<int64_t>(positions->size()), std::memory_order_relaxed);
    }
    FinishApply(job->status);
  });
  device_->Submit(job);
}

void DeviceShard::ApplyBelow() {
  RowUpdates below = apply_.updates;
  below.ids = apply_.ids_below.data();
  below.count = static_cast<uint32_t>(apply_.ids_below.size());
  below.gradients = apply_.gradients_below.data();
  const auto then = [this](const absl::Status& status) {
    status.ok() && !apply_.ids_above.empty() ? ApplyAbove() : FinishApply(status);
  };
  if (below_->Apply(below, then)) then(absl::OkStatus());
}

// No row has left the device or come to it since the probe: moving rows is a step of its own.
void DeviceShard::ApplyAbove() {
  const RowUpdates& updates = apply_.updates;
  const bool all = apply_.ids_below.empty();
  const std::shared_ptr<DeviceJob> job = NewJob(DeviceJob::Kind::kUpdate);
  job->ids = all ? updates.ids : apply_.ids_above.data();
  job->count = all ? updates.count : static_cast<uint32_t>(apply_.ids_above.size());
  job->gradients = all ? updates.gradients : apply_.gradients_above.data();
  job->type = updates.gradient_type;
  job->scalars = updates.scalars;
  job->assign = updates.assign;
  job->done = Guarded([this, job = job.get()] {
    HOTBED_CHECK(!job->status.ok() || job->missing.empty())
        << job->missing.size() << " rows left the device during an update";
    FinishApply(job->status);
  });
  device_->Submit(job);
}

void DeviceShard::FinishApply(const absl::Status& status) {
  step_ = Step::kNone;
  Done done = std::move(apply_.done);
  apply_.done = nullptr;
  if (status.ok()) {
    const RowUpdates& updates = apply_.updates;
    below_->SetAppliedLsn(updates.lsn);
    if (updates.deletes) {  // nobody asked for the rows
    } else if (has_table()) {
      const std::vector<uint64_t>& below = apply_.ids_below;
      NoteMisses(below.data(), static_cast<uint32_t>(below.size()));
    } else {
      NoteMisses(updates.ids, updates.count);
    }
  }
  // Background steps first: updates that follow each other at once would leave them no turn.
  NextStep(/*background_first=*/true);
  if (done) done(status);
}

}  // namespace hotbed
