// The coordinator's core with more servers and shards than one machine can run: its decisions and
// its state are real, the servers and the network are simulated, and the metadata are a map in
// memory. Printed is the processor time that the core itself takes, without that of the simulated
// servers and of the store.
//
//   scale_bench [--servers=1000] [--tables=10000] [--shards=100] [--clients=10000] [--commit-ms=5]
//
// 1. All tables are created with two replicas, and all shards are activated.
// 2. Every server sends heartbeats. A load comes with every fourth of them, as of servers with so
//    many shards (server/cluster/heartbeat_report.cc), and is the largest that servers report.
// 3. A server is lost. The others hear of each change at once and activate what they get. Two
//    times are told: from the loss until the last of its primaries serves again, where each commit
//    takes --commit-ms, and the processor time of the core alone.
// 4. The map is encoded for a client that has none, and its changes for one that has the map from
//    before the loss.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/roofs/machine.h"
#include "common/check.h"
#include "common/tables/table_spec.h"
#include "planner/coordinator/core/core.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/convert.h"
#include "proto/wire.h"

namespace hotbed {
namespace {

struct Flags {
  int servers = 1000;
  int tables = 10'000;
  int shards = 100;
  int clients = 10'000;
  int64_t commit_ms = 5;
};

constexpr int64_t kHeartbeatMs = 500;  // CoreOptions::heartbeat_interval_ms
constexpr int64_t kTickMs = 100;       // of Coordinator
constexpr int kTablesPerRequest = 60;
constexpr int kHeartbeatsPerLoad = 4;
constexpr size_t kShardsPerReport = 256;   // LoadReport::kShardsMax
constexpr size_t kTablesPerReport = 1024;  // LoadReport::kTablesMax

double ProcessorSeconds() {
  timespec time;
  HOTBED_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

// A store of which nothing fails; transactions of one coordinator only, so all compares hold.
class KeysInMemory {
 public:
  MetaStore::RangeResult All() const {
    MetaStore::RangeResult all;
    all.revision = revision_;
    for (const auto& [key, kv] : keys_) all.kvs.push_back(kv);
    return all;
  }
  TxnResult Commit(const Transaction& transaction) {
    ++revision_;
    for (const Op& op : transaction.ops()) {
      if (op.kind == Op::Kind::kPut) {
        bytes_ += op.value.size();
        keys_[op.key] = {op.key, op.value, revision_};
      } else {
        keys_.erase(op.key);
      }
    }
    return {true, revision_};
  }
  uint64_t bytes_written() const { return bytes_; }

 private:
  uint64_t revision_ = 1;
  uint64_t bytes_ = 0;
  std::map<std::string, KeyValue> keys_;
};

struct Server {
  ServerId id = 0;
  Incarnation incarnation = 0;
  bool up = true;
  NewsKnown known;
  std::string heartbeat;  // as it travels
  std::string load;       // its field `load`, which is appended
};

class Cluster {
 public:
  explicit Cluster(const Flags& flags) : flags_(flags) {
    CoreOptions options;
    options.token = "bench";
    options.new_cluster_id = "bench";
    options.limits.servers_max = static_cast<uint64_t>(flags.servers);
    options.limits.shards_max = 1ull << 40;
    core_ = std::make_unique<Core>(options);
    Settle();
  }

  void Register() {
    for (int s = 0; s < flags_.servers; ++s) {
      v1::RegisterServerRequest request;
      request.set_name(absl::StrCat("s", s));
      request.set_address(absl::StrCat("10.0.", s / 256, ".", s % 256, ":7500"));
      request.set_run(static_cast<uint64_t>(s) + 1);
      request.set_feature_level(kFeatureLevel);
      const auto reply = Call<v1::RegisterServerReply>(std::move(request));
      servers_.push_back({.id = reply.server(), .incarnation = reply.incarnation()});
    }
  }

  void Create() {
    for (int made = 0; made < flags_.tables;) {
      v1::CreateTablesRequest request;
      for (int i = 0; i < kTablesPerRequest && made < flags_.tables; ++i, ++made) {
        TableSpec spec;
        spec.name = absl::StrCat("table_", made);
        spec.dim = 64;
        spec.rows = 100'000;
        spec.durability = Durability::kReplicated;
        spec.replicas = 2;
        v1::NewTable& table = *request.add_tables();
        *table.mutable_spec() = ToProto(spec);
        table.set_shards(static_cast<uint32_t>(flags_.shards));
      }
      const double begin = seconds_;
      Call<v1::CreateTablesReply>(std::move(request));
      slowest_ = std::max(slowest_, seconds_ - begin);
      KeepLeases();
    }
  }

  // Gives every server the news that it lacks, and has it activate what it is the primary of.
  void TellAll() {
    for (Server& server : servers_) {
      if (server.up) Tell(&server);
    }
  }

  double seconds() const { return seconds_; }  // of the processor, in the core
  double slowest() const { return slowest_; }  // of the requests that create tables
  uint64_t commits() const { return commits_; }
  int64_t now_ms() const { return now_ns_ / 1'000'000; }
  const Core& core() const { return *core_; }
  std::vector<Server>& servers() { return servers_; }
  const KeysInMemory& store() const { return store_; }

  void Tick(int64_t ms) {
    now_ns_ += ms * 1'000'000;
    Timed([&] { core_->Tick(now_ns_); });
    Settle();
  }

  // Makes the reports that heartbeats carry, with the busiest shards and the tables of the server.
  void FillReports() {
    for (Server& server : servers_) {
      v1::HeartbeatRequest request;
      request.set_server(server.id);
      request.set_incarnation(server.incarnation);
      request.set_plan_revision_known(core_->state().plan_revision());
      v1::ServerLoad* const load = request.mutable_load();
      load->set_rows_resident(123'456'789);
      load->set_hot_bytes(99ull << 30);
      std::map<uint32_t, bool> tables;
      for (const uint64_t packed : core_->state().ShardsOfServer(server.id)) {
        tables[ShardId::FromPacked(packed).table] = true;
        if (static_cast<size_t>(load->shards_size()) == kShardsPerReport) continue;
        v1::ShardLoad* const shard = load->add_shards();
        shard->set_shard(packed);
        shard->set_rows_pulled_total(1'234'567'890 + packed);
        shard->set_rows_pushed_total(234'567'890 + packed);
        shard->set_bytes(64 << 20);
        shard->set_primary(true);
        shard->set_applied_lsn(3'456'789);
      }
      for (const auto& [id, held] : tables) {
        if (static_cast<size_t>(load->tables_size()) == kTablesPerReport) break;
        v1::TableLoad* const table = load->add_tables();
        table->set_table(id);
        table->set_rows_resident(234'567);
        table->set_hot_bytes(123 << 20);
        table->set_hits(1'234'567);
        table->set_misses(23'456);
      }
      v1::HeartbeatRequest only_load;
      only_load.mutable_load()->Swap(load);
      request.clear_load();
      server.heartbeat = request.SerializeAsString();
      server.load = only_load.SerializeAsString();
    }
  }

  // A heartbeat as the service has it: parsed, answered, its answer encoded.
  void Beat(const Server& server, bool with_load) {
    const std::string message = with_load ? server.heartbeat + server.load : server.heartbeat;
    Timed([&] {
      v1::HeartbeatRequest request;
      HOTBED_CHECK(request.ParseFromString(message));
      core_->Step(now_ns_, RequestEvent{++callers_, std::move(request)});
      for (ReplyAction& action : Take()) {
        HOTBED_CHECK(action.reply.ok()) << action.reply.status().ToString();
        (void)std::get<v1::HeartbeatReply>(*action.reply).SerializeAsString();
      }
    });
    Settle();
  }

  // Its stream breaks, and its port is closed.
  void Lose(Server* server) {
    server->up = false;
    Timed([&] { core_->Step(now_ns_, StreamBrokenEvent{server->id, server->incarnation}); });
    Settle();
  }

  bool AllServe(const std::vector<uint64_t>& shards) const {
    for (const uint64_t packed : shards) {
      if (!core_->state().shards().at(packed).active) return false;
    }
    return true;
  }

 private:
  template <typename Work>
  void Timed(Work work) {
    const double begin = ProcessorSeconds();
    work();
    seconds_ += ProcessorSeconds() - begin;
  }

  std::vector<ReplyAction> Take() {
    Ready ready = core_->TakeReady();
    load_ |= ready.load;
    if (ready.commit.has_value()) commit_ = std::move(ready.commit);
    for (ProbeRequest& probe : ready.probes) probes_.push_back(std::move(probe));
    return std::move(ready.replies);
  }

  // Lets the store and the probed ports answer until nothing waits for them.
  void Settle() {
    for (;;) {
      Timed([&] {
        for (ReplyAction& action : Take()) reply_ = std::move(action.reply);
      });
      if (std::exchange(load_, false)) {
        LoadedEvent loaded{store_.All()};
        Timed([&] { core_->Step(now_ns_, std::move(loaded)); });
      } else if (commit_.has_value()) {
        const TxnResult result = store_.Commit(*std::exchange(commit_, std::nullopt));
        ++commits_;
        now_ns_ += flags_.commit_ms * 1'000'000;
        Timed([&] { core_->Step(now_ns_, CommittedEvent{result}); });
      } else if (!probes_.empty()) {
        const ProbeRequest probe = std::move(probes_.back());
        probes_.pop_back();
        core_->Step(now_ns_, ProbedEvent{probe.server, probe.incarnation, AnswerOf(probe.server)});
      } else {
        return;
      }
    }
  }

  ProbeAnswer AnswerOf(ServerId id) const {
    for (const Server& server : servers_) {
      if (server.id == id && server.up) return ProbeAnswer::kAnswers;
    }
    return ProbeAnswer::kRefused;
  }

  template <typename ReplyMessage>
  ReplyMessage Call(Request request) {
    reply_ = absl::InternalError("no answer");
    Timed([&] { core_->Step(now_ns_, RequestEvent{++callers_, std::move(request)}); });
    Settle();
    HOTBED_CHECK(reply_.ok()) << reply_.status().ToString();
    return std::get<ReplyMessage>(std::move(*reply_));
  }

  // Time passes with each commit, and nobody sends heartbeats meanwhile.
  void KeepLeases() {
    for (const Server& server : servers_) {
      v1::HeartbeatRequest request;
      request.set_server(server.id);
      request.set_incarnation(server.incarnation);
      request.set_plan_revision_known(core_->state().plan_revision());
      Call<v1::HeartbeatReply>(std::move(request));
    }
  }

  void Tell(Server* server) {
    std::optional<v1::HeartbeatReply> news;
    Timed([&] {
      news = core_->News(server->id, server->incarnation, server->known);
      if (news.has_value()) (void)news->SerializeAsString();
    });
    if (!news.has_value()) return;
    server->known = core_->NewsNow();
    v1::ActivateShardsRequest request;
    request.set_server(server->id);
    request.set_incarnation(server->incarnation);
    for (const v1::ShardRecord& record : news->map().shards()) {
      if (record.active() || record.primary().server() != server->id) continue;
      v1::ShardEpoch* const shard = request.add_shards();
      shard->set_shard(record.shard());
      shard->set_epoch(record.epoch());
    }
    if (!request.shards().empty()) Call<v1::ActivateShardsReply>(std::move(request));
  }

  const Flags flags_;
  int64_t now_ns_ = 1;
  double seconds_ = 0;
  double slowest_ = 0;
  uint64_t commits_ = 0;
  CallerToken callers_ = 0;
  std::unique_ptr<Core> core_;
  KeysInMemory store_;
  std::vector<Server> servers_;
  bool load_ = false;
  std::optional<Transaction> commit_;
  std::vector<ProbeRequest> probes_;
  absl::StatusOr<Reply> reply_;
};

void Print(const std::string& what, double value, const char* unit) {
  std::printf("%-64s %10.2f %s\n", what.c_str(), value, unit);
  std::fflush(stdout);
}

void MeasureBeats(const Flags& flags, Cluster* simulated) {
  Cluster& cluster = *simulated;
  cluster.FillReports();
  double bytes = 0;
  for (const Server& server : cluster.servers()) {
    bytes += static_cast<double>(server.load.size());
  }
  double seconds[kHeartbeatsPerLoad] = {};
  for (int i = 0; i < kHeartbeatsPerLoad; ++i) {
    const double begin = cluster.seconds();
    for (const Server& server : cluster.servers()) cluster.Beat(server, /*with_load=*/i == 0);
    seconds[i] = (cluster.seconds() - begin) / flags.servers;
  }
  const double beat =
      std::accumulate(std::begin(seconds), std::end(seconds), 0.0) / kHeartbeatsPerLoad;
  Print("a heartbeat", seconds[1] * 1e6, "us");
  Print("a heartbeat with a load", seconds[0] * 1e6, "us");
  Print("the load", bytes / flags.servers / 1024, "KiB");
  // Over all that happens at longer intervals, too; the heartbeats keep the leases.
  constexpr int kTicks = 600;
  double ticks = 0;
  for (int i = 0; i < kTicks; ++i) {
    const double begin = cluster.seconds();
    cluster.Tick(kTickMs);
    ticks += cluster.seconds() - begin;
    if (i % 20 != 19) continue;
    for (const Server& server : cluster.servers()) cluster.Beat(server, false);
  }
  const double tick = ticks / kTicks;
  Print("a tick, on average over a minute", tick * 1e3, "ms");
  Print("heartbeats and ticks (bar 30)",
        100 * (beat * flags.servers * 1000 / kHeartbeatMs + tick * 1000 / kTickMs), "% of a core");
}

// The revision of the map before the loss.
uint64_t MeasureLoss(const Flags& flags, Cluster* simulated) {
  Cluster& cluster = *simulated;
  const ClusterState& state = cluster.core().state();
  std::map<ServerId, std::vector<uint64_t>> primaries;
  for (const Server& server : cluster.servers()) primaries[server.id];
  for (const auto& [packed, record] : state.shards()) {
    primaries[record.primary.server].push_back(packed);
  }
  const auto [fewest, most] = std::minmax_element(
      primaries.begin(), primaries.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  Print("primaries of a server, at least", static_cast<double>(fewest->second.size()), "");
  Print("primaries of a server, at most", static_cast<double>(most->second.size()), "");
  const std::vector<uint64_t> lost = most->second;
  const ServerId lost_server = most->first;
  Server* const victim =
      &*std::find_if(cluster.servers().begin(), cluster.servers().end(),
                     [lost_server](const Server& server) { return server.id == lost_server; });
  cluster.TellAll();
  const uint64_t revision = state.plan_revision();
  const uint64_t commits = cluster.commits();
  const int64_t began_ms = cluster.now_ms();
  const double begin = cluster.seconds();
  cluster.Lose(victim);
  int rounds = 0;
  while (!cluster.AllServe(lost) || state.shards().at(lost.front()).primary.server == victim->id) {
    HOTBED_CHECK(++rounds < 1000) << "the shards of the lost server do not serve again";
    cluster.Tick(kTickMs / 10);
    cluster.TellAll();
  }
  const double spent = cluster.seconds() - begin;
  std::printf("a server with %zu primaries is lost\n", lost.size());
  Print("until all serve again, of the core's processor time", spent * 1e3, "ms");
  Print("transactions", static_cast<double>(cluster.commits() - commits), "");
  Print(absl::StrCat("until all serve again, ", flags.commit_ms, " ms per commit (bar 1500)"),
        static_cast<double>(cluster.now_ms() - began_ms) + spent * 1e3, "ms");
  return revision;
}

void MeasureMaps(const Flags& flags, uint64_t revision, const Cluster& cluster) {
  double at = ProcessorSeconds();
  const std::string whole = cluster.core().Map(0).SerializeAsString();
  const double whole_s = ProcessorSeconds() - at;
  at = ProcessorSeconds();
  const std::string changes = cluster.core().Map(revision).SerializeAsString();
  const double changes_s = ProcessorSeconds() - at;
  Print("the whole map", static_cast<double>(whole.size()) / (1 << 20), "MiB");
  Print("to make and encode it once", whole_s * 1e3, "ms");
  Print("the changes since the loss", static_cast<double>(changes.size()) / 1024, "KiB");
  Print("to make and encode them once", changes_s * 1e3, "ms");
  // The clients share the message, and each stream encodes it (Coordinator::MapToFollow).
  const v1::ClusterMap message = cluster.core().Map(revision);
  at = ProcessorSeconds();
  constexpr int kTimes = 100;
  for (int i = 0; i < kTimes; ++i) (void)message.SerializeAsString();
  const double encode_s = (ProcessorSeconds() - at) / kTimes;
  Print(absl::StrCat("the changes to ", flags.clients, " clients"),
        changes_s + encode_s * flags.clients, "s");
  Print("the same, of the network", static_cast<double>(changes.size()) * flags.clients / 1e9,
        "GB");
}

void Run(const Flags& flags) {
  const uint64_t before = ResidentBytes();
  Cluster cluster(flags);
  cluster.Register();
  double begin = cluster.seconds();
  cluster.Create();
  const double creation = cluster.seconds() - begin;
  begin = cluster.seconds();
  cluster.TellAll();
  const double activation = cluster.seconds() - begin;
  const double shards = static_cast<double>(cluster.core().state().shards().size());
  std::printf("%d servers, %.0f shards of two replicas in %d tables\n", flags.servers, shards,
              flags.tables);
  Print(absl::StrCat("creation, ", kTablesPerRequest, " tables per request"), creation, "s");
  Print("the slowest request", cluster.slowest() * 1e3, "ms");
  Print("activation: each server learns of its shards, and activates them", activation, "s");
  Print("memory per shard, with its record in the simulated store",
        static_cast<double>(ResidentBytes() - before) / shards, "bytes");
  MeasureBeats(flags, &cluster);
  const uint64_t revision = MeasureLoss(flags, &cluster);
  MeasureMaps(flags, revision, cluster);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("The coordinator's core with many simulated servers and shards");
  app.add_option("--servers", flags.servers, "Servers")->capture_default_str();
  app.add_option("--tables", flags.tables, "Tables")->capture_default_str();
  app.add_option("--shards", flags.shards, "Shards per table")->capture_default_str();
  app.add_option("--clients", flags.clients, "Clients that follow the map")->capture_default_str();
  app.add_option("--commit-ms", flags.commit_ms, "Time of a commit to the metadata store")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const bench::MachineNote note;
  Run(flags);
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
