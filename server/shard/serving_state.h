// Whether a shard serves requests, and why not.
//
// A shard does not serve when it is closed (it leaves this server), or refused (its rows or its log
// cannot be used; only a restart or a snapshot from another replica ends that). A paused shard
// refuses pushes for a moment, while its rows are kept as a checkpoint. A stalled shard serves: an
// update is in the log, and the rows cannot take it yet, for example while the spill tier is full.
//
// Confined to the shard's strand, except where a section says otherwise.
#ifndef HOTBED_SERVER_SHARD_SERVING_STATE_H_
#define HOTBED_SERVER_SHARD_SERVING_STATE_H_

#include <atomic>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/protocol/shard_core.h"
#include "server/shard/request/pull_gate.h"
#include "server/shard/request/push_gate.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/shard_options.h"
#include "server/shard/waiting_requests.h"

namespace hotbed {

// The shard takes pushes again once nothing needs it to stand still. A division is a cut or a merge
// that is committed: it does not end, and does not begin while a checkpoint is being kept.
enum class PauseFor : uint8_t { kCheckpoint, kCut, kDivision };

class ServingState {
 public:
  // All outlive it.
  ServingState(const ShardOptions* options, ShardCore* core, WaitingRequests* waiting,
               PullGate* pull_gate, PushGate* push_gate)
      : options_(options),
        core_(core),
        waiting_(waiting),
        pull_gate_(pull_gate),
        push_gate_(push_gate) {}

  bool serves() const { return !closed_ && error_.ok(); }
  bool closed() const { return closed_; }
  void Close() {
    closed_ = true;
    ShutGates();
  }
  bool paused() const { return paused_ != 0; }
  bool paused(PauseFor what) const { return (paused_ & Bit(what)) != 0; }
  void SetPaused(PauseFor what, bool paused) {
    paused_ = static_cast<uint8_t>(paused ? paused_ | Bit(what) : paused_ & ~Bit(what));
    if (paused) push_gate_->Shut();
  }
  // Not OK: refused.
  const absl::Status& error() const { return error_; }

  // Every request is refused with this reason from now on; those that wait are answered at once.
  // Pushes in the log are answered with UNAVAILABLE: a repaired shard may apply them.
  void Refuse(const absl::Status& error);
  // Refuse for an error that costs this replica while others have the rows: logs it, and has the
  // coordinator told.
  void GiveUpReplica(const absl::Status& error);

  bool stalled() const { return stalled_; }
  void Stall(const std::string& reason);
  // The update is tried again.
  void EndStall();

  // How a request is refused; ok() while the shard serves.
  Refusal RefusalNow() const;
  // Whether the record names members other than this process.
  bool OthersHoldRows() const;
  // Whether the shard is refused, and a snapshot may replace it in `epoch`. Not in an epoch in
  // which this replica may have acknowledged: the primary may have reported it as caught up, and it
  // could become a member while half of its rows are missing.
  bool MayBeReplaced(Epoch epoch) const;

  // --- any thread
  bool refused() const { return refused_.load(std::memory_order_acquire); }
  // Why requests are refused or an update waits; empty: neither.
  std::string reason() const;
  // Whether the coordinator has to take this refused replica, `self`, out of `record`: where it is
  // a member, and where it is a learner that may have been counted on in that epoch. A learner of a
  // later epoch gets all rows again.
  bool ReplicaLost(const ShardRecord& record, const Member& self) const;

 private:
  static uint8_t Bit(PauseFor what) { return static_cast<uint8_t>(1u << static_cast<int>(what)); }
  void ShutGates() {
    pull_gate_->Shut();
    push_gate_->Shut();
  }
  void SetReason(std::string reason);

  const ShardOptions* const options_;
  ShardCore* const core_;
  WaitingRequests* const waiting_;
  PullGate* const pull_gate_;
  PushGate* const push_gate_;
  absl::Status error_;
  bool closed_ = false;
  uint8_t paused_ = 0;  // a bit for each PauseFor
  bool stalled_ = false;
  std::atomic<bool> refused_{false};
  std::atomic<Epoch> refused_promise_{0};  // the promised epoch at that time
  mutable absl::Mutex mu_;
  std::string reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SERVING_STATE_H_
