// The coordinator's core: a pure state machine. No threads, no clock, no I/O: events and the time
// come in, actions go out, so that gRPC drives it in production and a seeded simulator in tests.
//
//   core.Step(now, event);  core.Tick(now);
//   Ready ready = core.TakeReady();   // then carry out: read, commit, deliver replies; feed the
//   results back by Step
//
// What it knows is what the metadata store holds, plus who sent a heartbeat lately. Nothing is told
// to anyone before it is committed. One transaction is under way at a time; operations run one
// after another in the order of arrival (so a slow disk makes all wait: creations and restarts are
// rare, heartbeats and maps need no transaction).
//
// Safety rests on the compares of each transaction: every record that it writes is as the core has
// it, and the leader key is this coordinator's. A transaction that fails makes the core read the
// store again and begin the operation anew; if another coordinator took the leadership it stops for
// good. After an error that leaves a transaction's outcome unknown the callers are told so and the
// store is read again before anything else.
//
// Leases are kept here, by heartbeats (liveness only, never safety). A coordinator that starts, and
// one that was itself held up, gives every live server a full TTL anew.
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_CORE_H_
#define HOTBED_PLANNER_COORDINATOR_CORE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/coordinator/cluster_state.h"
#include "planner/coordinator/meta_store.h"
#include "planner/coordinator/operation.h"
#include "planner/coordinator/operations.h"
#include "planner/coordinator/trainer_groups.h"
#include "proto/control.pb.h"

namespace hotbed {

struct CoreOptions {
  std::string token;           // of this process, unlike any other's
  std::string new_cluster_id;  // for a store that has none
  int64_t lease_ttl_ms = 3000;
  int64_t heartbeat_interval_ms = 500;
  size_t pending_max = 8192;  // requests that wait; beyond it ResourceExhausted
  ClusterLimits limits;
  TrainerLimits trainers;
};

using Request =
    std::variant<v1::CreateTableRequest, v1::CreateTablesRequest, v1::DropTableRequest,
                 v1::AlterTableRequest, v1::OpenSessionRequest, v1::RegisterServerRequest,
                 v1::ActivateShardsRequest, v1::HeartbeatRequest, v1::TrainRequest>;

// Names a caller; chosen by the shell, never reused.
using CallerToken = uint64_t;

struct RequestEvent {
  CallerToken caller = 0;
  Request request;
};
struct LoadedEvent {  // the answer to Ready::load: all keys under keys::kRoot
  absl::StatusOr<MetaStore::RangeResult> result;
};
struct CommittedEvent {  // the answer to Ready::commit
  absl::StatusOr<TxnResult> result;
};
using Event = std::variant<RequestEvent, LoadedEvent, CommittedEvent>;

struct ReplyAction {
  CallerToken caller = 0;
  absl::StatusOr<Reply> reply;
};

struct Ready {
  bool load = false;                  // read the store, then Step(LoadedEvent)
  std::optional<Transaction> commit;  // commit it, then Step(CommittedEvent)
  std::vector<ReplyAction> replies;
};

class Core {
 public:
  explicit Core(CoreOptions options);

  // `now_ns` is monotonic and never falls.
  void Step(int64_t now_ns, Event event);
  // At least a few times in each lease TTL: ends leases and retries the store.
  void Tick(int64_t now_ns);
  Ready TakeReady();

  enum class Phase {
    kLoading,  // reading the store, or waiting to read it again
    kServing,
    kOvertaken,  // another coordinator took the leadership
    kFailed,     // the store holds what this program cannot read
  };
  Phase phase() const { return phase_; }
  // Why it is overtaken or failed, or what the store said last while loading.
  const absl::Status& trouble() const { return trouble_; }
  // Whether bootstrap is over and what the store holds may be shown.
  bool serving() const { return phase_ == Phase::kServing && bootstrapped_; }

  const ClusterState& state() const { return state_; }
  // Whole or changed-since, with the servers' loads as last heard.
  v1::ClusterMap Map(uint64_t revision_known) const;
  size_t pending() const { return queue_.size(); }
  v1::ListTrainersReply Trainers() const { return trainers_.List(now_ns_); }

 private:
  struct Liveness {
    Incarnation incarnation = 0;
    int64_t deadline_ns = 0;
    bool marking_down = false;  // the operation is queued
    bool draining = false;
    v1::ServerLoad load;
  };
  struct Pending {
    CallerToken caller = 0;  // 0: nobody waits
    std::unique_ptr<Operation> operation;
    int attempts = 1;
    bool bootstrap = false;
  };

  void OnRequest(RequestEvent event);
  void OnHeartbeat(CallerToken caller, const v1::HeartbeatRequest& request);
  void OnTrain(CallerToken caller, const v1::TrainRequest& request);
  // Takes over what the groups of trainers answer and want committed; then Advance.
  void TakeFromTrainers();
  void OnLoaded(LoadedEvent event);
  void OnCommitted(CommittedEvent event);
  // Why requests are refused now, or OK.
  absl::Status Unready() const;
  std::unique_ptr<Operation> MakeOperation(Request request);

  // Runs operations until one has a transaction to commit or none is left.
  void Advance();
  void Finish(absl::StatusOr<Reply> reply);
  void AskToLoad();
  // No more transactions: fails everyone who waits.
  void Stop(Phase phase, absl::Status why);
  void FailAll(const absl::Status& why);

  // After the state changed: leases for servers that it shows live.
  void SyncLiveness();
  void EndLeases();
  bool Placeable(ServerId server) const;  // live, and not about to stop
  bool LeaseHeld(ServerId server) const;
  int64_t LeaseNs() const { return options_.lease_ttl_ms * 1000000; }

  const CoreOptions options_;
  Phase phase_ = Phase::kLoading;
  absl::Status trouble_;
  bool bootstrapped_ = false;
  bool leading_ = false;  // the leader key was ours when last seen
  ClusterState state_;

  int64_t now_ns_ = 0;
  int64_t last_tick_ns_ = 0;
  int64_t load_again_ns_ = 0;  // not before
  bool load_under_way_ = false;
  bool commit_under_way_ = false;
  std::vector<Op> committing_;
  std::optional<Pending> running_;
  std::deque<Pending> queue_;
  absl::btree_map<ServerId, Liveness> liveness_;
  TrainerGroups trainers_;
  bool new_cluster_ = false;  // the store was empty when it was read
  Ready ready_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CORE_H_
