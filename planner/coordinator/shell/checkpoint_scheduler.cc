#include "planner/coordinator/shell/checkpoint_scheduler.h"

#include <utility>

#include "absl/time/time.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(200);
// A save looks ten times per second whether it is still wanted.
constexpr int kLooksInVainMax = 50;
// A series that has become so long is folded, so that a restore reads few files.
constexpr uint32_t kFoldGeneration = 4;

Counter& GoodSaves() {
  static Counter counter("hotbed_coordinator_scheduled_saves_total",
                         "Checkpoints that were saved by the schedule.");
  return counter;
}

Counter& FailedSaves() {
  static Counter counter("hotbed_coordinator_scheduled_save_failures_total",
                         "Saves by the schedule that failed.");
  return counter;
}

}  // namespace

CheckpointScheduler::CheckpointScheduler(Hands hands) : hands_(std::move(hands)) {
  GoodSaves();  // so that a scrape shows them from the start
  FailedSaves();
  saver_ = std::thread([this] { Run(); });
  folder_ = std::thread([this] { RunFolds(); });
}

CheckpointScheduler::~CheckpointScheduler() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  saver_.join();
  folder_.join();
}

bool CheckpointScheduler::stops() {
  absl::MutexLock lock(&mu_);
  return stops_;
}

void CheckpointScheduler::Run() {
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(&mu_, absl::Condition(&stops_), kLook)) return;
    }
    SaveIfDue();
  }
}

bool CheckpointScheduler::ToBeBrokenOff(const ScheduledSave& save, int* looks_in_vain) {
  if (stops()) return true;
  const auto now = hands_.schedule();
  if (!now.ok()) return ++*looks_in_vain > kLooksInVainMax;
  *looks_in_vain = 0;
  return now->schedule().place() != save.place ||
         now->schedule().begun_unix_ms() < save.begun_unix_ms;
}

void CheckpointScheduler::SaveIfDue() {
  const auto found = hands_.schedule();
  if (!found.ok() || !found->has_schedule()) return;
  const int64_t now_ms = hands_.unix_ms();
  if (now_ms < found->next_unix_ms()) return;
  const v1::CheckpointSchedule& schedule = found->schedule();
  ScheduledSave save = {.place = schedule.place(), .begun_unix_ms = now_ms};
  if (!hands_.note(save).ok()) return;
  int looks_in_vain = 0;
  const absl::StatusOr<Saved> saved =
      hands_.save(schedule, [&, this] { return ToBeBrokenOff(save, &looks_in_vain); });
  // A coordinator that stops leaves the save as broken off, for the next one to make again soon.
  if (stops()) return;
  save.stage = ScheduledSave::Stage::kSaved;
  if (saved.ok()) {
    save.checkpoint = saved->path;
  } else {
    save.error = std::string(saved.status().message());
  }
  const auto noted = hands_.note(save);
  if (!noted.ok()) {
    HOTBED_LOG(Warning) << "a scheduled save into " << save.place
                        << " ended and is not noted: " << noted.status().message();
    return;
  }
  (saved.ok() ? GoodSaves() : FailedSaves()).Add(1);  // one that was stopped is not noted
  // Noting it has shown that this coordinator leads and what the schedule now is. What is folded
  // must stay until then.
  if (!saved.ok() || Folds()) return;
  Prune(noted->schedule(), save);
  if (saved->generation < kFoldGeneration) return;
  absl::MutexLock lock(&mu_);
  to_fold_ = ToFold{noted->schedule(), std::move(save)};
}

bool CheckpointScheduler::Folds() {
  absl::MutexLock lock(&mu_);
  return to_fold_.has_value();
}

void CheckpointScheduler::RunFolds() {
  for (;;) {
    std::optional<ToFold> one;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stops_ || to_fold_.has_value();
      };
      mu_.Await(absl::Condition(&wakes));
      if (stops_) return;
      one = to_fold_;
    }
    Fold(*one);
    absl::MutexLock lock(&mu_);
    to_fold_.reset();
  }
}

void CheckpointScheduler::Fold(const ToFold& one) {
  int looks_in_vain = 0;
  const absl::StatusOr<std::string> folded =
      hands_.fold(one.schedule, one.save.checkpoint,
                  [&, this] { return ToBeBrokenOff(one.save, &looks_in_vain); });
  if (stops()) return;
  ScheduledSave save = one.save;
  save.stage = ScheduledSave::Stage::kFolded;
  if (folded.ok()) {
    save.checkpoint = *folded;
  } else {
    save.error = std::string(folded.status().message());
  }
  if (const auto noted = hands_.note(save); !noted.ok()) {
    HOTBED_LOG(Warning) << "checkpoint " << one.save.checkpoint
                        << " was folded and that is not noted: " << noted.status().message();
  }
}

void CheckpointScheduler::Prune(const v1::CheckpointSchedule& schedule, ScheduledSave save) {
  const absl::StatusOr<uint64_t> pruned = hands_.prune(schedule);
  save.stage = ScheduledSave::Stage::kPruned;
  save.pruned = pruned.value_or(0);
  if (!pruned.ok()) save.error = std::string(pruned.status().message());
  const bool news = save.pruned > 0 || save.error != schedule.prune_error();
  if (!news || stops()) return;
  if (const auto noted = hands_.note(save); !noted.ok()) {
    HOTBED_LOG(Warning) << "old checkpoints in " << save.place << ": deleted " << save.pruned
                        << ", which is not noted: " << noted.status().message();
  }
}

}  // namespace hotbed
