// This client as a trainer of its group: joins, renews its membership, ends steps, and waits for
// the other trainers. A synchronous step is committed, once for all of its shards, when every
// trainer of the group has ended it.
//
// Thread-safe; Join, End and Leave run one at a time. A thread of its own renews the membership, at
// least three times per lease, from Join until Leave or Stop. After a change of the group's members
// it asks more often, because others may be about to join too.
#ifndef HOTBED_CLIENT_TRAINERS_TRAINER_MEMBER_H_
#define HOTBED_CLIENT_TRAINERS_TRAINER_MEMBER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/map/control_plane.h"
#include "client/map/table_handle.h"
#include "client/push/push_engine.h"
#include "client/push/push_session.h"
#include "client/trainers/commit_delivery.h"
#include "common/clock.h"
#include "hotbed/client.h"

namespace hotbed {

// The steps as a trainer knows them; they may lag behind.
struct TrainerSteps {
  uint64_t begun = 0;         // this trainer's last step; 0: none since it joined
  uint64_t ended_by_all = 0;  // all members have ended the steps up to it
  uint64_t committed = 0;     // every shard has applied the synchronous steps up to it
};

class TrainerMember {
 public:
  // `options` name the group and its lease; `tables` returns the tables that this client has
  // opened. All pointers outlive this.
  TrainerMember(const ClientOptions* options, const Clock* clock, ControlPlane* control,
                PushSession* session, PushEngine* pushes, CommitDelivery* delivery,
                std::function<std::vector<const TableHandle*>()> tables)
      : options_(options),
        clock_(clock),
        control_(control),
        session_(session),
        pushes_(pushes),
        delivery_(delivery),
        tables_(std::move(tables)) {}
  ~TrainerMember() { Stop(); }

  // As in hotbed/client.h.
  absl::StatusOr<uint64_t> Join(int64_t deadline_ns);
  absl::Status Begin(uint64_t step, int64_t deadline_ns);
  absl::Status End(uint64_t step, int64_t deadline_ns);
  absl::Status Leave(int64_t deadline_ns);
  TrainerSteps Steps() const;
  uint32_t Members() const;  // Client::TrainersInGroup

  // Whether a push may be sent: at once for asynchronous tables and assignments, after a wait for
  // tables of bounded staleness, in the order of the steps for synchronous tables.
  // FailedPrecondition names the call that must come first.
  absl::Status AdmitPush(uint64_t step, absl::Span<const PushFeature> features,
                         const PushOptions& options, int64_t deadline_ns);

  // Leaves the group if it is a member, and ends the thread.
  void Stop();

 private:
  absl::Status Member() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A request with the fields that all kinds share.
  v1::TrainRequest Request(v1::TrainRequest::Kind kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Asks again while the coordinator is away, until the deadline.
  absl::StatusOr<v1::TrainReply> Ask(v1::TrainRequest request, int64_t deadline_ns);
  absl::Status NoteReply(const v1::TrainReply& reply) ABSL_LOCKS_EXCLUDED(mu_);
  // Until all members have ended `step`.
  absl::Status AwaitEnded(uint64_t step, int64_t deadline_ns);
  // Until no checkpoint holds the group below `step`.
  absl::Status AwaitHold(uint64_t step, int64_t deadline_ns);
  absl::Status AdmitSteps(uint64_t step, absl::Span<const PushFeature> features,
                          int64_t deadline_ns);
  absl::Status AdmitSynchronous(uint64_t step, absl::Span<const PushFeature> features);
  absl::Status Deliver(const v1::GroupCommit& commit, int64_t deadline_ns);
  absl::Status AwaitCommit(uint64_t step, int64_t deadline_ns);
  bool WaitsForCommits() const;
  void RenewLoop();
  void StopRenewing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mu_);

  const ClientOptions* const options_;
  const Clock* const clock_;
  ControlPlane* const control_;
  PushSession* const session_;
  PushEngine* const pushes_;
  CommitDelivery* const delivery_;
  const std::function<std::vector<const TableHandle*>()> tables_;

  absl::Mutex step_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // Join, End and Leave: one at a time
  mutable absl::Mutex mu_;
  SessionIdentity identity_ ABSL_GUARDED_BY(mu_);
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mu_);      // why the membership ended; OK: it has not
  uint32_t members_ ABSL_GUARDED_BY(mu_) = 0;   // of the group, by the last reply
  bool renewing_ ABSL_GUARDED_BY(mu_) = false;  // false: the thread ends
  int64_t lease_ns_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t begun_ ABSL_GUARDED_BY(mu_) = 0;        // since the last Join; 0: none
  uint64_t ended_ ABSL_GUARDED_BY(mu_) = 0;        // this trainer has ended the steps up to it
  uint64_t ended_min_ ABSL_GUARDED_BY(mu_) = 0;    // so have all members, by the last reply
  uint64_t delivered_ ABSL_GUARDED_BY(mu_) = 0;    // its commit and the earlier ones are delivered
  uint64_t open_step_ ABSL_GUARDED_BY(mu_) = 0;    // has synchronous pushes; 0: none
  std::set<TableId> pushed_ ABSL_GUARDED_BY(mu_);  // synchronous tables that got pushes
  bool group_commits_ ABSL_GUARDED_BY(mu_) = false;  // the group has synchronous tables
  // No step above it begins; 0: no such limit. Replies set it, and only one that was asked for
  // afterwards lifts it: replies may overtake each other.
  uint64_t hold_step_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread renewer_ ABSL_GUARDED_BY(step_mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_TRAINERS_TRAINER_MEMBER_H_
