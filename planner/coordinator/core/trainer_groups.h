// Groups of trainers: the members of each, the step that each member has ended, and the group's
// last committed step. Part of the core, and pure like it.
//
// The last commit of a group (step, sessions, tables) is authoritative. It is in the metadata store
// before anybody hears of it. The rest comes from the trainers: every request renews the membership
// and carries the trainer's step, so a restarted coordinator learns it again. Until one lease has
// passed since the start, no member is given up, no step is committed and no trainer that waits for
// others continues, because a member that was not heard of yet may be behind.
//
// Rules:
// - A step is committed when all members have ended it, with the sessions of all of them in the
//   order of their names. One commit per group is in flight at a time, and the next one follows
//   only when a member has brought the last one to every shard of its tables: so no shard misses a
//   commit, even if trainers die in between.
// - A trainer that leaves, dies or is not heard of for a lease is out. The others continue without
//   it.
// - A trainer that joins begins one step above the last commit, and is admitted only when no step
//   waits to be committed, so that it can bring the last one to the shards. In a group without
//   synchronous tables it begins one step above the slowest member.
// - The least step that all members have ended never falls.
// - Trainers of asynchronous tables join to be counted. They end no steps, so nothing is committed,
//   and a group is forgotten when they have left.
// - A synchronous table belongs to one group as long as a member of that group trains it. A trainer
//   of another group that names it is refused, and its membership is not renewed.
// - A group may be held at a step N, for a checkpoint: until the hold ends, no later step is
//   committed, and replies tell trainers to begin none. A trainer may begin a step t of tables of
//   staleness s when it has heard that all have ended t - 1 - s. So a hold at N >= 1 + s + the
//   slowest trainer's step is in force at once: who would begin N + 1 has heard of it.
// - After the metadata were rebuilt, a group begins above the last step that any table had
//   committed: which group had committed it is not known.
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_CORE_TRAINER_GROUPS_H_
#define HOTBED_PLANNER_COORDINATOR_CORE_TRAINER_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "planner/coordinator/state/cluster_state.h"
#include "proto/control.pb.h"

namespace hotbed {

struct TrainerLimits {
  int64_t lease_ms = 5000;
  int64_t lease_ms_min = 100;
  int64_t lease_ms_max = 600'000;
  int64_t wait_ms_max = 30'000;
  int64_t hold_ms_max = 60'000;
  size_t groups_max = 4096;
  size_t members_max = 4096;  // per group
  size_t tables_max = 4096;   // per trainer
  size_t waiting_max = 16384;
};

// A group is kept from steps beyond one.
struct GroupHold {
  uint64_t number = 0;  // 0: none
  uint64_t step = 0;
  int64_t deadline_ns = 0;
};

class TrainerGroups {
 public:
  using CallerToken = uint64_t;
  struct Answer {
    CallerToken caller = 0;
    absl::StatusOr<v1::TrainReply> reply;
  };

  explicit TrainerGroups(const TrainerLimits& limits) : limits_(limits) {}

  // The store was read, for the first time or again; nobody could renew in the meantime. `fresh`:
  // the cluster is new, so no trainer can be waiting to be heard of.
  void OnLoaded(int64_t now_ns, const ClusterState& state, bool fresh);
  // A transaction was committed.
  void OnCommitted(int64_t now_ns, const ClusterState& state);
  // The commits taken so far may never have been made, so they will be decided again. Answers every
  // waiter with `why`.
  void FailAll(const absl::Status& why);
  void OnRequest(int64_t now_ns, CallerToken caller, const v1::TrainRequest& request,
                 const ClusterState& state);
  absl::StatusOr<v1::HoldStepReply> OnHold(int64_t now_ns, const v1::HoldStepRequest& request,
                                           const ClusterState& state);
  // Ends leases and waits. `held_up`: this process could not receive requests for a while.
  void Tick(int64_t now_ns, bool held_up);

  // The answers, and the commits to make, since the last call.
  std::vector<Answer> TakeAnswers();
  std::vector<v1::GroupCommit> TakeCommits();

  v1::ListTrainersReply List(int64_t now_ns) const;

 private:
  struct Trainer {
    SessionId session = 0;
    Incarnation incarnation = 0;
    uint64_t ended = 0;
    uint64_t base = 0;  // it took no part in steps up to this one
    int64_t lease_ns = 0;
    int64_t deadline_ns = 0;
    std::vector<TableId> tables;
  };
  struct Waiter {
    CallerToken caller = 0;
    std::string name;
    Incarnation incarnation = 0;
    bool joins = false;
    uint64_t commit = 0;  // waits for a commit of this step
    uint64_t ended = 0;   // waits until all members have ended this step
    uint64_t step = 0;    // waits until no hold is below this step
    int64_t lease_ns = 0;
    int64_t deadline_ns = 0;
    SessionId session = 0;
  };
  struct Group {
    v1::GroupCommit commit;  // the last one in the store
    bool committing = false;
    uint64_t delivered = 0;  // the last step whose commit a trainer has brought to all shards
    absl::btree_map<std::string, Trainer> trainers;  // by session name: trainer order
    std::vector<Waiter> waiters;
    GroupHold hold;
  };

  Group& GroupOf(const std::string& name);
  bool InGrace() const { return now_ns_ < grace_until_ns_; }
  absl::Status Check(const v1::TrainRequest& request, const ClusterState& state) const;
  absl::Status CheckSteps(const v1::TrainRequest& request, const ClusterState& state) const;
  // Refuses synchronous tables that another group trains.
  absl::Status CheckTables(const v1::TrainRequest& request, const ClusterState& state) const;
  absl::StatusOr<std::string> GroupToHold(const v1::HoldStepRequest& request) const;
  absl::Status BeginHold(const std::string& name, const v1::HoldStepRequest& request,
                         const ClusterState& state, Group* group);
  int64_t LeaseNs(const v1::TrainRequest& request) const;
  void Renew(Group* group, const v1::TrainRequest& request);
  // Admits joiners, starts a commit and answers waiters, as far as the rules allow.
  void Settle(const std::string& name, Group* group);
  void AdmitJoiners(Group* group);
  void StartCommit(const std::string& name, Group* group);
  // True if the waiter was answered.
  bool AnswerWaiter(const Group& group, const Waiter& waiter);
  void SettleAll();
  void ForgetEmpty();
  static bool IsSynchronous(const Group& group);
  // The least step that all members have ended, and the slowest member; without members, the last
  // commit.
  static std::pair<uint64_t, std::string> Slowest(const Group& group);
  v1::TrainReply ReplyOf(const Group& group, const Trainer* trainer) const;

  const TrainerLimits limits_;
  int64_t now_ns_ = 0;
  bool loaded_ = false;
  uint64_t before_ = 0;  // ClusterState::StepBefore
  int64_t grace_until_ns_ = 0;
  size_t waiting_ = 0;
  absl::btree_map<std::string, Group> groups_;
  std::vector<Answer> answers_;
  std::vector<v1::GroupCommit> commits_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CORE_TRAINER_GROUPS_H_
