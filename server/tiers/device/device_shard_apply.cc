// Updates: rows below first, which may fail and then leaves all as it was; then those on the
// device, which cannot fail but for good.
#include <utility>

#include "common/check.h"
#include "server/tiers/device/device_shard.h"

namespace hotbed {

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

// Of one that waited, or has rows to look for on the device.
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
  if (job->missing.empty()) return ApplyAbove();
  size_t next = 0;
  for (uint32_t i = 0; i < updates.count; ++i) {
    const bool below = next < job->missing.size() && job->missing[next] == i;
    next += below;
    (below ? apply_.ids_below : apply_.ids_above).push_back(updates.ids[i]);
    (below ? apply_.gradients_below : apply_.gradients_above).push_back(updates.gradients[i]);
  }
  ApplyBelow();
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

// No row has left the device or come to it since the probe: that is a step of its own.
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
    if (has_table()) {
      const std::vector<uint64_t>& below = apply_.ids_below;
      NoteMisses(below.data(), static_cast<uint32_t>(below.size()));
    } else {
      NoteMisses(updates.ids, updates.count);
    }
  }
  // Before the next one: updates that follow each other at once would leave no turn.
  NextStep(/*background_first=*/true);
  if (done) done(status);
}

}  // namespace hotbed
