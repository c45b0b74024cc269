// Holds a group of trainers at a step, for a save of what there is then (HoldStep in
// proto/control.proto). Thread-compatible; calls block for the coordinator's answer.
#ifndef HOTBED_CLIENT_CHECKPOINT_STEP_HOLD_H_
#define HOTBED_CLIENT_CHECKPOINT_STEP_HOLD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/map/checkpoint_cluster.h"
#include "common/clock.h"
#include "proto/control.pb.h"

namespace hotbed {

class StepHold {
 public:
  // `wanted` has a random number, the group, the step and the tables. `patience`: how long no
  // trainer may come nearer to the step, and the coordinator may be away.
  StepHold(const v1::HoldStepRequest& wanted, absl::Duration patience, CheckpointCluster* cluster,
           const Clock* clock)
      : request_(wanted), patience_(patience), cluster_(*cluster), clock_(*clock) {}
  ~StepHold() { (void)End(); }

  // Begins the hold or goes on with it; to be called ten times per second. Whether the step is
  // reached: all trainers have ended it, and none has begun the next one. From then on Aborted says
  // that the hold was interrupted.
  absl::StatusOr<bool> Hold();
  // Lets the trainers go on. OK: the hold was not interrupted since Hold said that it is reached.
  absl::Status End();

  // Once Hold has begun it.
  const std::string& group() const { return request_.group(); }
  uint64_t step() const { return request_.step(); }
  const std::string& waits_for() const { return waits_for_; }  // empty: it is reached

 private:
  absl::StatusOr<bool> Lost(const absl::Status& why);
  absl::StatusOr<bool> NotYet(const v1::HoldStepReply& now);
  bool Patient() const;

  v1::HoldStepRequest request_;
  const absl::Duration patience_;
  CheckpointCluster& cluster_;
  const Clock& clock_;
  bool reached_ = false;
  bool ended_ = false;
  std::string waits_for_;
  uint64_t ended_min_ = 0;
  int64_t came_nearer_ns_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHECKPOINT_STEP_HOLD_H_
