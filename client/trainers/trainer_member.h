// This client as a trainer of its group: joins, renews its membership, ends steps, waits for the
// others (DECISIONS S5; the coordinator's half is planner/coordinator/core/trainer_groups.h).
//
// Thread-safe; calls that end steps are made one after another. One thread of its own renews the
// membership three times in each lease, from Join until Leave or Stop.
#ifndef HOTBED_CLIENT_TRAINERS_TRAINER_MEMBER_H_
#define HOTBED_CLIENT_TRAINERS_TRAINER_MEMBER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/map/control_plane.h"
#include "client/map/table_handle.h"
#include "client/net/client_context.h"
#include "client/push/push_engine.h"
#include "client/trainers/commit_delivery.h"
#include "hotbed/client.h"

namespace hotbed {

class TrainerMember {
 public:
  // `tables`: those that this client has opened.
  TrainerMember(ClientContext* context, ControlPlane* control, PushEngine* pushes,
                std::function<std::vector<const TableHandle*>()> tables)
      : context_(context),
        control_(control),
        pushes_(pushes),
        tables_(tables),
        delivery_(context, std::move(tables)) {}
  ~TrainerMember() { Stop(); }

  // As in hotbed/client.h.
  absl::StatusOr<uint64_t> Join(int64_t deadline_ns);
  absl::Status Begin(uint64_t step, int64_t deadline_ns);
  absl::Status End(uint64_t step, int64_t deadline_ns);
  absl::Status Leave(int64_t deadline_ns);

  // Whether a push may go: at once for asynchronous tables and assignments, after a wait for
  // bounded ones, within the order of the steps for synchronous ones. FailedPrecondition names what
  // is to be done first.
  absl::Status AdmitPush(uint64_t step, absl::Span<const PushFeature> features,
                         const PushOptions& options);

  // Leaves if it is a member, and ends the thread.
  void Stop();

 private:
  absl::Status Member() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What every request says.
  v1::TrainRequest Request(v1::TrainRequest::Kind kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks again while the coordinator is away, until the deadline.
  absl::StatusOr<v1::TrainReply> Ask(v1::TrainRequest request, int64_t deadline_ns);
  absl::Status NoteReply(const v1::TrainReply& reply) ABSL_LOCKS_EXCLUDED(mu_);
  // Until all members have ended `step`.
  absl::Status AwaitEnded(uint64_t step, int64_t deadline_ns);
  absl::Status AdmitSynchronous(uint64_t step, absl::Span<const PushFeature> features);
  absl::Status Deliver(const v1::GroupCommit& commit, int64_t deadline_ns);
  absl::Status AwaitCommit(uint64_t step, int64_t deadline_ns);
  bool WaitsForCommits() const;
  void RenewLoop();
  void StopRenewing();

  ClientContext* const context_;
  ControlPlane* const control_;
  PushEngine* const pushes_;
  const std::function<std::vector<const TableHandle*>()> tables_;
  CommitDelivery delivery_;

  absl::Mutex step_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // Join, End and Leave: one at a time
  mutable absl::Mutex mu_;
  SessionIdentity identity_ ABSL_GUARDED_BY(mu_);
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mu_);      // why it is no member any more; OK: it is
  bool renewing_ ABSL_GUARDED_BY(mu_) = false;  // the thread is to go on
  int64_t lease_ns_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mu_) = 0;          // all steps up to here
  uint64_t ended_min_ ABSL_GUARDED_BY(mu_) = 0;      // by all members, as far as heard
  uint64_t delivered_ ABSL_GUARDED_BY(mu_) = 0;      // commits up to here
  uint64_t open_step_ ABSL_GUARDED_BY(mu_) = 0;      // of synchronous pushes, not ended; 0: none
  std::set<TableId> pushed_ ABSL_GUARDED_BY(mu_);    // synchronous tables
  bool group_commits_ ABSL_GUARDED_BY(mu_) = false;  // the group has synchronous tables
  std::thread renewer_ ABSL_GUARDED_BY(step_mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_TRAINERS_TRAINER_MEMBER_H_
