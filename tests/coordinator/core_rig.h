// A Core with a store twin and a hand-moved clock, one store action at a time.
#ifndef HOTBED_TESTS_COORDINATOR_CORE_RIG_H_
#define HOTBED_TESTS_COORDINATOR_CORE_RIG_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/coordinator/balance/cluster_view.h"
#include "planner/coordinator/core/core.h"
#include "planner/coordinator/state/keys.h"
#include "proto/wire.h"
#include "tests/coordinator/map_meta_store.h"

namespace hotbed {

class CoreRig {
 public:
  enum class Outcome {
    kOk,
    kLost,
    kWrittenButLost,
    kRefused,
  };  // of a store action; all but the first tell an error

  CoreRig() : store(own_store_) { Start(); }
  // Shares the store with other rigs.
  CoreRig(MapMetaStore* shared, const std::string& prefix) : store(*shared), prefix_(prefix) {
    Start();
  }

  // A coordinator process that starts; the one before, if any, is dead. Its callers never hear.
  void Start() {
    CoreOptions options;
    options.token = absl::StrCat(prefix_, "process ", ++processes_);
    token = options.token;
    options.new_cluster_id = absl::StrCat("cluster ", processes_);
    options.limits = limits;
    options.refill_wait_ms = refill_wait_ms;
    options.merge_below_bytes = merge_below_bytes;
    options.membership.asks_person = asks_person;
    core = std::make_unique<Core>(options);
    replies.clear();
    load_waiting = false;
    commit_waiting.reset();
    probes.clear();
    Collect();
  }

  void Collect() {
    Ready ready = core->TakeReady();
    load_waiting |= ready.load;
    if (ready.load) head_suffices = ready.head;
    if (ready.commit.has_value()) {
      ASSERT_FALSE(commit_waiting.has_value()) << "one transaction at a time";
      commit_waiting = std::move(ready.commit);
    }
    for (ProbeRequest& probe : ready.probes) probes.push_back(std::move(probe));
    for (const int64_t ns : ready.fail_over_ns) fail_over_ns.push_back(ns);
    for (ReplyAction& action : ready.replies) {
      ASSERT_EQ(replies.count(action.caller), 0u) << "two answers";
      replies.emplace(action.caller, std::move(action.reply));
    }
  }

  CallerToken Send(Request request) {
    const CallerToken caller = ++callers_;
    core->Step(now_ns, RequestEvent{caller, std::move(request)});
    Collect();
    return caller;
  }

  bool StoreWaits() const { return load_waiting || commit_waiting.has_value(); }

  // Carries out the store action that waits.
  void StepStore(Outcome outcome = Outcome::kOk) {
    const absl::Status error = absl::UnavailableError("store is away (planted)");
    if (load_waiting) {
      load_waiting = false;
      absl::StatusOr<MetaStore::RangeResult> result = error;
      if (outcome == Outcome::kOk) {
        TwinStore twin(&store);
        result = head_suffices ? ReadKeys(keys::kHeadKeys, &twin)
                               : store.Range(keys::kRoot, PrefixLimit(keys::kRoot));
      }
      core->Step(now_ns, LoadedEvent{std::move(result)});
    } else {
      const Transaction txn = *std::exchange(commit_waiting, std::nullopt);
      ASSERT_LE(txn.ops().size(), static_cast<size_t>(MetaStore::kTxnOpsMax));
      ASSERT_LE(txn.compares().size(), static_cast<size_t>(MetaStore::kTxnOpsMax));
      absl::StatusOr<TxnResult> result = error;
      if (outcome == Outcome::kRefused) {
        result = absl::InvalidArgumentError("too large (planted)");
      } else if (outcome != Outcome::kLost) {
        const TxnResult done = store.Txn(txn.compares(), txn.ops());
        if (after_commit) after_commit(txn, done);
        if (outcome == Outcome::kOk) result = done;
      }
      core->Step(now_ns, CommittedEvent{std::move(result)});
    }
    Collect();
  }

  void Pump() {
    if (!StoreWaits()) return;
    for (int i = 0; StoreWaits(); ++i) {
      ASSERT_LT(i, 10000);
      StepStore(outcome ? outcome() : Outcome::kOk);
    }
    CheckHeldBytes();
  }

  // The bytes that the state keeps for each server are those that all shards have there.
  void CheckHeldBytes() const {
    const ClusterState& state = core->state();
    const auto all = [](ServerId) { return true; };
    const auto no_load = [](ServerId) -> const v1::ServerLoad* { return nullptr; };
    ClusterView counted = ServersView(state, all, no_load);
    ClusterView looked_at = ViewOf(state, all);
    for (ClusterView* view : {&counted, &looked_at}) {
      for (ClusterServer& server : view->servers) server.usable = true;
    }
    const std::vector<ServerCandidate> now = Candidates(counted);
    const std::vector<ServerCandidate> wanted = Candidates(looked_at);
    ASSERT_EQ(now.size(), wanted.size());
    for (size_t i = 0; i < now.size(); ++i) {
      ASSERT_EQ(now[i].bytes, wanted[i].bytes) << "server " << now[i].server;
      ASSERT_EQ(now[i].primary_bytes, wanted[i].primary_bytes) << "server " << now[i].server;
    }
  }

  void Tick(int64_t ms) {
    now_ns += ms * 1000000;
    core->SetUnixMs(1'700'000'000'000 + now_ns / 1000000);
    core->Tick(now_ns);
    Collect();
  }

  void Step(Event event) {
    core->Step(now_ns, std::move(event));
    Collect();
  }

  // Sends, lets the store do all, and gives the answer.
  template <typename ReplyMessage, typename RequestMessage>
  absl::StatusOr<ReplyMessage> Call(const RequestMessage& request) {
    const CallerToken caller = Send(request);
    Pump();
    auto it = replies.find(caller);
    if (it == replies.end()) return absl::InternalError("no answer");
    absl::StatusOr<Reply> reply = std::move(it->second);
    replies.erase(it);
    if (!reply.ok()) return reply.status();
    return std::get<ReplyMessage>(*std::move(reply));
  }

  absl::StatusOr<v1::RegisterServerReply> Register(const std::string& name, ServerId id = 0,
                                                   const std::string& cluster = "") {
    v1::RegisterServerRequest request;
    request.set_server(id);
    request.set_name(name);
    request.set_address(absl::StrCat(name, ":1"));
    request.set_cluster_id(cluster);
    request.set_host_bytes(host_bytes);
    request.set_feature_level(kFeatureLevel);
    for (const uint64_t packed : core->state().ShardsOfServer(id)) {
      if (auto held = HeldBy(id, packed)) *request.add_held() = *held;
    }
    return Call<v1::RegisterServerReply>(request);
  }
  // The replica on the server's disk: as `disks` has it, else the end of all logs.
  std::optional<v1::HeldReplica> HeldBy(ServerId id, uint64_t packed) const {
    v1::HeldReplica held;
    held.set_shard(packed);
    held.mutable_end()->set_epoch(1);
    held.mutable_end()->set_lsn(100);
    const auto disk = disks.find(id);
    if (disk == disks.end()) return held;
    if (disk->second == 0) return std::nullopt;
    held.mutable_end()->set_lsn(disk->second);
    return held;
  }
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(ServerId id, Incarnation incarnation,
                                               uint64_t known = 0) {
    v1::HeartbeatRequest request;
    request.set_server(id);
    request.set_incarnation(incarnation);
    request.set_plan_revision_known(known);
    return Call<v1::HeartbeatReply>(request);
  }
  static v1::CreateTableRequest Table(const std::string& name, uint64_t rows = 100000) {
    v1::CreateTableRequest request;
    v1::TableSpec* spec = request.mutable_spec();
    spec->set_name(name);
    spec->set_rows(rows);
    spec->set_dim(16);
    spec->mutable_optimizer()->set_kind(v1::OPTIMIZER_ROWWISE_ADAGRAD);
    spec->mutable_optimizer()->set_learning_rate(0.01f);
    spec->mutable_optimizer()->set_epsilon(1e-8f);
    return request;
  }
  absl::StatusOr<v1::CreateTableReply> Create(const v1::CreateTableRequest& request) {
    return Call<v1::CreateTableReply>(request);
  }
  absl::StatusOr<v1::DropTableReply> Drop(const std::string& name) {
    v1::DropTableRequest request;
    request.set_name(name);
    return Call<v1::DropTableReply>(request);
  }
  absl::StatusOr<v1::OpenSessionReply> OpenSession(const std::string& name) {
    v1::OpenSessionRequest request;
    request.set_name(name);
    return Call<v1::OpenSessionReply>(request);
  }
  // Asks to activate every shard that the map gives to this process.
  static v1::ActivateShardsRequest ActivationOf(const v1::ClusterMap& map, ServerId id,
                                                Incarnation incarnation) {
    v1::ActivateShardsRequest request;
    request.set_server(id);
    request.set_incarnation(incarnation);
    for (const v1::ShardRecord& r : map.shards()) {
      if (r.primary().server() != id || r.active()) continue;
      v1::ShardEpoch* shard = request.add_shards();
      shard->set_shard(r.shard());
      shard->set_epoch(r.epoch());
    }
    return request;
  }

  MapMetaStore& store;
  std::string token;  // of the process that runs
  // Called with each transaction before the core hears of it; `outcome` is its fate in Pump.
  std::function<void(const Transaction& txn, const TxnResult& result)> after_commit;
  std::function<Outcome()> outcome;
  ClusterLimits limits;
  uint64_t host_bytes = 0;  // of servers that register
  int64_t refill_wait_ms = 10000;
  uint64_t merge_below_bytes = 0;
  bool asks_person = false;       // Start takes it over
  std::map<ServerId, Lsn> disks;  // where the logs of a server end that has lost some; 0: lost all
  int64_t now_ns = 1;
  std::unique_ptr<Core> core;
  bool load_waiting = false;
  bool head_suffices = false;  // of that load
  std::optional<Transaction> commit_waiting;
  std::map<CallerToken, absl::StatusOr<Reply>> replies;
  std::vector<ProbeRequest> probes;  // not yet answered
  std::vector<int64_t> fail_over_ns;

 private:
  MapMetaStore own_store_;
  std::string prefix_;
  int processes_ = 0;
  CallerToken callers_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_CORE_RIG_H_
