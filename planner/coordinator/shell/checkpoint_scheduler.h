// Saves checkpoints by the schedule in the metadata, while this coordinator leads, deletes old
// ones, and folds series that have become long. A thread of its own saves, and another one folds;
// what they begin and how that ends is written to the metadata, so that the next coordinator goes
// on. Thread-safe.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_CHECKPOINT_SCHEDULER_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_CHECKPOINT_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "planner/coordinator/operations/operations.h"
#include "proto/control.pb.h"

namespace hotbed {

class CheckpointScheduler {
 public:
  struct Saved {
    std::string path;
    uint32_t generation = 0;  // how many checkpoints it needs beside itself
  };
  // What it does to the world. All may block.
  struct Hands {
    std::function<absl::StatusOr<v1::ScheduleCheckpointsReply>()> schedule;
    // Writes it to the metadata, if this coordinator leads, and returns the schedule as it is then.
    std::function<absl::StatusOr<v1::ScheduleCheckpointsReply>(ScheduledSave)> note;
    // Breaks off when `stop` says so.
    std::function<absl::StatusOr<Saved>(const v1::CheckpointSchedule&,
                                        const std::function<bool()>& stop)>
        save;
    // The path of the folded checkpoint. Breaks off when `stop` says so.
    std::function<absl::StatusOr<std::string>(
        const v1::CheckpointSchedule&, const std::string& path, const std::function<bool()>& stop)>
        fold;
    // The number of checkpoints that were deleted.
    std::function<absl::StatusOr<uint64_t>(const v1::CheckpointSchedule&)> prune;
    std::function<int64_t()> unix_ms;
  };
  explicit CheckpointScheduler(Hands hands);
  ~CheckpointScheduler();

 private:
  struct ToFold {
    v1::CheckpointSchedule schedule;
    ScheduledSave save;
  };
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void RunFolds() ABSL_LOCKS_EXCLUDED(mu_);
  void Fold(const ToFold& one) ABSL_LOCKS_EXCLUDED(mu_);
  void SaveIfDue() ABSL_LOCKS_EXCLUDED(mu_);
  void Prune(const v1::CheckpointSchedule& schedule, ScheduledSave save) ABSL_LOCKS_EXCLUDED(mu_);
  // The schedule was stopped or has another place, or nobody tells for seconds what it is.
  bool ToBeBrokenOff(const ScheduledSave& save, int* looks_in_vain) ABSL_LOCKS_EXCLUDED(mu_);
  bool Folds() ABSL_LOCKS_EXCLUDED(mu_);
  bool stops() ABSL_LOCKS_EXCLUDED(mu_);

  const Hands hands_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<ToFold> to_fold_ ABSL_GUARDED_BY(mu_);  // until it is folded
  std::thread saver_;
  std::thread folder_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_CHECKPOINT_SCHEDULER_H_
