// The coordinator's core: a pure state machine. No threads, no clock, no I/O: events and the time
// come in, actions go out, so that gRPC drives it in production and a seeded simulator in tests.
//
//   core.Step(now, event);  core.Tick(now);
//   Ready ready = core.TakeReady();   // then carry out: read, commit, deliver replies; feed the
//   results back by Step
//
// What it knows is what the metadata store holds, plus who sent a heartbeat lately. Nothing is told
// to anyone before it is committed. One transaction is under way at a time. Operations run in two
// lanes, each one after another in the order of arrival: in the urgent one what keeps shards
// serving (fail-over, activation, servers that are down), in the other one what people ask for, and
// moves. The urgent lane goes first, also between two transactions of an operation of the other.
//
// Safety rests on the compares of each transaction: every record that it writes is as the core has
// it, and the leader key is this coordinator's. A transaction that fails makes the core read the
// store again and begin the operation anew; if another coordinator took the leadership it stops for
// good. After an error that leaves a transaction's outcome unknown the callers are told so and the
// store is read again before anything else.
//
// Leases are kept here, by heartbeats and probes (leases.h; liveness only, never safety). A
// coordinator that starts, and one that was itself held up, gives every live server a full TTL
// anew. Who holds which shard is decided by Membership (membership.h).
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_CORE_CORE_H_
#define HOTBED_PLANNER_COORDINATOR_CORE_CORE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/coordinator/balance/rebalance_policy.h"
#include "planner/coordinator/core/trainer_groups.h"
#include "planner/coordinator/membership/membership.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"
#include "planner/coordinator/state/operation.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/control.pb.h"

namespace hotbed {

struct CoreOptions {
  std::string token;           // of this process, unlike any other's
  std::string new_cluster_id;  // for a store that has none
  int64_t lease_ttl_ms = 3000;
  int64_t heartbeat_interval_ms = 500;
  int64_t refill_wait_ms = 10000;  // a lost copy may come back so long, before another is made
  size_t pending_max = 8192;       // requests that wait; beyond it ResourceExhausted
  MembershipOptions membership;
  RebalanceOptions rebalance;
  ClusterLimits limits;
  TrainerLimits trainers;
};

using Request =
    std::variant<v1::CreateTableRequest, v1::CreateTablesRequest, v1::DropTableRequest,
                 v1::AlterTableRequest, v1::OpenSessionRequest, v1::RegisterServerRequest,
                 v1::ActivateShardsRequest, v1::HeartbeatRequest, v1::TrainRequest,
                 v1::MoveShardsRequest, v1::DrainServerRequest, v1::ControlMovesRequest>;

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
struct StreamBrokenEvent {  // the stream on which the process sent its heartbeats
  ServerId server = 0;
  Incarnation incarnation = 0;
};
struct ProbedEvent {  // the answer to one of Ready::probes
  ServerId server = 0;
  Incarnation incarnation = 0;
  ProbeAnswer answer = ProbeAnswer::kSilent;
};
using Event =
    std::variant<RequestEvent, LoadedEvent, CommittedEvent, StreamBrokenEvent, ProbedEvent>;

struct ReplyAction {
  CallerToken caller = 0;
  absl::StatusOr<Reply> reply;
};

struct Ready {
  bool load = false;                  // read the store, then Step(LoadedEvent)
  std::optional<Transaction> commit;  // commit it, then Step(CommittedEvent)
  std::vector<ReplyAction> replies;
  std::vector<ProbeRequest> probes;   // probe, then Step(ProbedEvent)
  std::vector<int64_t> fail_over_ns;  // shards that serve again: since their server was lost
};

class Core {
 public:
  explicit Core(CoreOptions options);

  // Milliseconds since 1970, for what people read.
  void SetUnixMs(int64_t unix_ms) { unix_ms_ = unix_ms; }
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
  size_t pending() const { return normal_.queue.size() + urgent_.queue.size(); }
  v1::ListTrainersReply Trainers() const { return trainers_.List(now_ns_); }
  v1::ListMovesReply Moves(const v1::ListMovesRequest& request) const;
  v1::ListEventsReply Events(const v1::ListEventsRequest& request) const;
  const Membership& membership() const { return membership_; }
  const Leases& leases() const { return leases_; }

  // What the process of a server has not been told: changes after `revision_known`, and how it may
  // copy if it was told version `limits_known` of that. nullopt: nothing, or it has no lease.
  std::optional<v1::HeartbeatReply> News(ServerId server, Incarnation incarnation,
                                         uint64_t revision_known, uint64_t limits_known) const;

 private:
  struct Pending {
    CallerToken caller = 0;  // 0: nobody waits
    std::unique_ptr<Operation> operation;
    int attempts = 1;
    bool bootstrap = false;
  };
  struct Lane {
    std::optional<Pending> running;
    std::deque<Pending> queue;
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
  // Where the next operation runs, or nullptr. `looked`: Membership found nothing to do just now.
  Lane* NextLane(bool* looked);
  void StartMembership(Lane* lane, bool urgent);
  void Bootstrapped();
  void Finish(Lane* lane, absl::StatusOr<Reply> reply);
  void AskToLoad();
  // No more transactions: fails everyone who waits.
  void Stop(Phase phase, absl::Status why);
  void FailAll(const absl::Status& why);
  MoveContext Moving() const { return {&leases_, unix_ms_}; }

  // Ends the process when the fields contradict each other.
  void CheckInvariants() const;
  void OnEndedLeases();
  // Looks whether shards should lie otherwise, now and then.
  void Rebalance();
  v1::RebalanceStatus RebalancingNow() const;
  bool Placeable(ServerId server) const;  // live, and not about to stop

  const CoreOptions options_;
  Phase phase_ = Phase::kLoading;
  absl::Status trouble_;
  bool bootstrapped_ = false;
  bool leading_ = false;  // the leader key was ours when last seen
  ClusterState state_;

  int64_t now_ns_ = 0;
  int64_t unix_ms_ = 0;
  int64_t last_tick_ns_ = 0;
  int64_t load_again_ns_ = 0;  // not before
  bool load_under_way_ = false;
  bool commit_under_way_ = false;
  std::vector<Op> committing_;
  Lane urgent_;
  Lane normal_;
  Lane* committing_lane_ = nullptr;
  bool moves_turn_ = false;  // of the normal lane: Membership goes before the queue
  Leases leases_;
  Membership membership_;
  RebalancePolicy rebalance_;
  int64_t rebalance_again_ns_ = 0;  // not before
  TrainerGroups trainers_;
  bool new_cluster_ = false;  // the store was empty when it was read
  Ready ready_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CORE_CORE_H_
