// The coordinator's core: a pure state machine without threads, clock or I/O. Events and the time
// come in, actions go out, so that gRPC drives it in production and a seeded simulator in tests.
//
//   core.Step(now, event);
//   core.Tick(now);
//   Ready ready = core.TakeReady();
//   // Carry it out: read, commit, deliver replies; feed the results back by Step.
//
// The core knows the contents of the metadata store, and which servers sent a heartbeat recently.
// It publishes only committed state. One transaction is in flight at a time. Operations run in
// two lanes, each in the order of arrival: the urgent lane keeps shards serving (fail-over,
// activation, servers that are down), the normal lane serves people's requests and moves. The
// urgent lane goes first, even between two transactions of an operation of the normal lane.
//
// Safety rests on the compares of each transaction: every record that it writes must be as the core
// has it, and the leader key must be this coordinator's. After a failed compare the core reads the
// store again and restarts the operation; if another coordinator took the leadership, it stops for
// good. After an error that leaves a transaction's outcome unknown, the core tells the callers so
// and reads the store again before anything else.
//
// Leases are kept here, by heartbeats and probes (leases.h); they serve liveness, never safety. A
// coordinator that starts, or was itself held up, gives every live server a full TTL again. Who
// holds which shard is decided by Membership (membership.h).
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
#include "planner/coordinator/membership/busy_shards.h"
#include "planner/coordinator/membership/membership.h"
#include "planner/coordinator/membership/split_tries.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/serving/remembered_serving.h"
#include "planner/coordinator/serving/serving_servers.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"
#include "planner/coordinator/state/operation.h"
#include "planner/coordinator/state/swept_tables.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/control.pb.h"

namespace hotbed {

struct CoreOptions {
  std::string token;           // unique to this process
  std::string new_cluster_id;  // for a store without one
  int64_t lease_ttl_ms = 3000;
  int64_t heartbeat_interval_ms = 500;
  CopyDemand::Options copy_demand;
  int64_t parts_join_after_ms = 600'000;
  int64_t refill_wait_ms = 10000;  // time for a lost server to come back before it is replaced
  size_t pending_max = 8192;       // waiting requests; further ones fail with ResourceExhausted
  // A shard of a hashed table above so many bytes is cut in two; 0: none is.
  uint64_t split_above_bytes = 512ull << 20;
  // The same of a shard that serves so many rows per second, pulled and pushed.
  uint64_t split_above_rows_per_s = 1'000'000;
  // Neighbours in a hashed table that take at most so many bytes together are merged; 0: none are.
  // At most half of split_above_bytes, so that they are not split again.
  uint64_t merge_below_bytes = 0;
  MembershipOptions membership;
  RebalanceOptions rebalance;
  ClusterLimits limits;
  TrainerLimits trainers;
};

using Request =
    std::variant<v1::CreateTableRequest, v1::CreateTablesRequest, v1::DropTableRequest,
                 v1::AlterTableRequest, v1::OpenSessionRequest, v1::RegisterServerRequest,
                 v1::ActivateShardsRequest, v1::HeartbeatRequest, v1::TrainRequest,
                 v1::MoveShardsRequest, v1::DrainServerRequest, v1::ControlMovesRequest,
                 v1::ChooseReplicaRequest, v1::RebuildMetadataRequest, v1::CutShardRequest,
                 v1::CommitCutRequest, v1::ScheduleCheckpointsRequest, ScheduledSave,
                 v1::HoldStepRequest, v1::ServeTablesRequest, v1::ServingReport,
                 v1::PublishVersionRequest, v1::ChooseVersionRequest>;

// Identifies a caller; chosen by the shell, never reused.
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
struct StreamBrokenEvent {  // the process's heartbeat stream broke
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
  bool load = false;  // read the store, then Step(LoadedEvent)
  // With `load`: the keys kHeadKeys suffice, since all is read once more when this one leads.
  bool head = false;
  std::optional<Transaction> commit;  // commit it, then Step(CommittedEvent)
  std::vector<ReplyAction> replies;
  std::vector<ProbeRequest> probes;   // probe, then Step(ProbedEvent)
  std::vector<int64_t> fail_over_ns;  // per shard that serves again: time since it was lost
};

// The version of each thing that servers are told of as it changes.
struct NewsKnown {
  uint64_t plan_revision = 0;
  uint64_t limits = 0;  // of snapshot transfers
  uint64_t given = 0;   // GivenOutVersion
  uint64_t cuts = 0;    // AskedCuts::version

  friend bool operator==(const NewsKnown&, const NewsKnown&) = default;
};

class Core {
 public:
  explicit Core(CoreOptions options);

  // Milliseconds since 1970, for times that people read.
  void SetUnixMs(int64_t unix_ms) { unix_ms_ = unix_ms; }
  // `now_ns` is monotonic and never falls.
  void Step(int64_t now_ns, Event event);
  // Call this a few times per lease TTL: it ends leases and retries the store.
  void Tick(int64_t now_ns);
  Ready TakeReady();

  enum class Phase {
    kLoading,  // reading the store, or waiting to read it again
    kServing,
    kOvertaken,  // another coordinator took the leadership
    kFailed,     // this program cannot read the store
  };
  Phase phase() const { return phase_; }
  // Why it is overtaken or failed, or the store's last error while loading.
  const absl::Status& trouble() const { return trouble_; }
  // Whether bootstrap is done, so that the state may be shown.
  bool serving() const { return phase_ == Phase::kServing && bootstrapped_; }

  const ClusterState& state() const { return state_; }
  // The whole map or the changes, with the loads that servers reported last, and if asked the
  // measured rates of all shards. While the metadata await a rebuild it is empty, and so
  // old that no client takes it: clients would take tables that are not written yet for dropped.
  v1::ClusterMap Map(uint64_t revision_known, bool rates = false) const;
  // For those who wait for news: none while the metadata await a rebuild.
  std::optional<v1::ClusterMap> MapToFollow(uint64_t revision_known) const;
  size_t pending() const { return normal_.queue.size() + urgent_.queue.size(); }
  // As the planner sees it.
  ClusterView View() const;
  ClusterView WeighedView() const;  // with loads, if any were measured
  v1::ListTrainersReply Trainers() const { return trainers_.List(now_ns_); }
  v1::ListMovesReply Moves(const v1::ListMovesRequest& request) const;
  v1::ListEventsReply Events(const v1::ListEventsRequest& request) const;
  absl::StatusOr<v1::ServingMap> Serving() const;
  const Membership& membership() const { return membership_; }
  const Leases& leases() const { return leases_; }

  // News for the process of a server: what has changed since `known`. nullopt: no news, or the
  // process has no lease.
  std::optional<v1::HeartbeatReply> News(ServerId server, Incarnation incarnation,
                                         const NewsKnown& known) const;
  NewsKnown NewsNow() const;

 private:
  struct Pending {
    CallerToken caller = 0;  // 0: nobody waits for the reply
    Operation made;
    Operation operation;  // a copy of `made` that is under way; null: not begun
    int attempts = 1;
    bool bootstrap = false;
  };
  struct Lane {
    std::optional<Pending> running;
    std::deque<Pending> queue;
  };

  void OnRequest(RequestEvent event);
  void OnHeartbeat(CallerToken caller, v1::HeartbeatRequest request);
  void OnServingReport(CallerToken caller, const v1::ServingReport& report);
  void OnTrain(CallerToken caller, const v1::TrainRequest& request);
  void OnHold(CallerToken caller, const v1::HoldStepRequest& request);
  // Takes over the replies and commits of the groups of trainers; call Advance afterwards.
  void TakeFromTrainers();
  void OnLoaded(LoadedEvent event);
  void OnCommitted(CommittedEvent event);
  // OK, or why requests are refused now.
  absl::Status Unready() const;

  // Runs operations until one has a transaction to commit or none is left.
  void Advance();
  // The lane whose operation runs next, or nullptr. `looked`: this Advance asked Membership
  // already.
  Lane* NextLane(bool* looked);
  void StartMembership(Lane* lane, bool urgent);
  void Bootstrapped();
  void Finish(Lane* lane, absl::StatusOr<Reply> reply);
  void AskToLoad();
  // Ends all transactions for good and fails every caller that waits.
  void Stop(Phase phase, absl::Status why);
  void FailAll(const absl::Status& why);
  OperationContext Context() {
    return {options_.limits, &leases_,  &membership_, &rebalance_, &strangers_,
            &cuts_,          &serving_, &remembered_, now_ns_,     unix_ms_};
  }

  // Ends the process when the fields contradict each other.
  void CheckInvariants() const;
  void OnEndedLeases();
  // Writes events of rows that servers have deleted by policies.
  void TellSweeps();
  // Checks now and then whether shards should be placed differently.
  void Rebalance();
  // Places the tables of serving servers that are away elsewhere, and makes a version current that
  // all servers have.
  void PlaceServing();
  // Asks now and then for cuts of shards that have grown too large or too busy.
  void SplitShards();
  v1::RebalanceStatus RebalancingNow() const;

  const CoreOptions options_;
  Phase phase_ = Phase::kLoading;
  absl::Status trouble_;
  bool leader_written_ = false;  // and the state is to be read once more
  bool bootstrapped_ = false;
  bool leading_ = false;  // the leader key was this process's when last read
  ClusterState state_;

  int64_t now_ns_ = 0;
  int64_t unix_ms_ = 0;
  int64_t last_tick_ns_ = 0;
  int64_t load_again_ns_ = 0;  // not before
  bool load_in_flight_ = false;
  bool commit_in_flight_ = false;
  std::vector<Op> committing_;
  Lane urgent_;
  Lane normal_;
  Lane* committing_lane_ = nullptr;
  bool moves_turn_ = false;  // in the normal lane, Membership goes before the queue
  Leases leases_;
  Membership membership_;
  Strangers strangers_;
  AskedCuts cuts_;
  SweptTables swept_;
  RebalancePolicy rebalance_;
  int64_t rebalance_again_ns_ = 0;  // not before
  int64_t split_again_ns_ = 0;      // the same
  SplitTries split_tries_;
  SplitTries merge_tries_;
  BusyShards busy_shards_;
  ServingServers serving_;
  RememberedServing remembered_;
  int64_t place_serving_again_ns_ = 0;  // not before
  TrainerGroups trainers_;
  bool new_cluster_ = false;  // the store was empty when it was read
  Ready ready_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CORE_CORE_H_
