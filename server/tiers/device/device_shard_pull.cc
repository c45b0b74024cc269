// Reads: from the device what it has, from rows that are on their way, and the rest from below.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/tiers/device/device_shard.h"

namespace hotbed {

std::shared_ptr<DeviceJob> DeviceShard::NewReadJob(DeviceJob::Kind kind,
                                                   const RowReads& reads) const {
  std::shared_ptr<DeviceJob> job = NewJob(kind);
  job->ids = reads.ids;
  job->count = reads.count;
  job->type = reads.type;
  job->rows = reads.rows;
  job->answer = reads.answer;
  return job;
}

bool DeviceShard::Pull(const RowReads& reads, Done done) {
  HOTBED_DCHECK(reads.picks == nullptr);
  if (const absl::Status lost = Lost(); !lost.ok()) {
    Fail(std::move(done), lost);
    return false;
  }
  if (!has_table()) {
    // Before: what comes up while the pull waits is read with the pull's version all the same.
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
  job->flags = reads.flags;
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
    // Taken from below when the pull was on its way already, so it passed them.
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

// Bags with rows that are not there are incomplete, and all of them where one message has no room
// for so many.
bool DeviceShard::PullPooled(const RowReads& reads, Done done) {
  auto op = std::make_shared<PullOp>();
  op->reads = reads;
  op->done = std::move(done);
  const std::shared_ptr<DeviceJob> job = NewReadJob(DeviceJob::Kind::kPooled, reads);
  job->bag_lengths = reads.bag_lengths;
  job->bags = reads.bags;
  job->pooling = reads.pooling;
  job->weights = reads.weights;
  job->arg_max = reads.arg_max;
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
  // Every row on the device exists. Windows write over those of the other bags.
  if (reads.flags != nullptr) std::memset(reads.flags, 1, reads.count);
  uint64_t hits = reads.count;  // the others count when their windows are pulled
  for (uint32_t bag : incomplete) hits -= reads.bag_lengths[bag];
  hits_.fetch_add(hits, std::memory_order_relaxed);
  const auto done = [op](absl::Status status) { op->done(std::move(status)); };
  if (incomplete.empty() || below_->PoolBags(reads, incomplete, done)) op->done(absl::OkStatus());
}

}  // namespace hotbed
