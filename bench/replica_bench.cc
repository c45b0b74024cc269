// Compares the streams between servers with a blocking TCP loop of the same bytes, between two
// processes on loopback in the same run: small appends with their answers, one and several at a
// time, and rows of a snapshot transfer in blocks of 1 MiB.
//
//   replica_bench [--rounds=5] [--seconds=1]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "bench/ratio_table.h"
#include "bench/roofs/peer_process.h"
#include "bench/roofs/roofs.h"
#include "common/process_tuning.h"
#include "server/data_server.h"

namespace hotbed {

class Shard {};
uint32_t ShardHost::DimOf(const Shard& /*shard*/) { return 0; }
const std::string& ShardHost::TableNameOf(const Shard& /*shard*/) {
  static const std::string* const none = new std::string;
  return *none;
}
bool ShardHost::IsHashed(const Shard& /*shard*/) { return false; }

namespace bench {
namespace {

using Kind = ReplicaMessage::Kind;

constexpr char kReplicaPeer[] = "replica";
constexpr Member kAsker = {1, 1};
constexpr Member kAnswerer = {2, 1};
constexpr uint64_t kRecordBytes = 512;
constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kAnswerBytes = 100;

// A host without shards that answers the messages for a shard, or counts answers.
class EchoHost final : public ShardHost {
 public:
  std::shared_ptr<Shard> Find(ShardId) const override { return nullptr; }
  std::shared_ptr<const void> FindAll(absl::Span<const ShardId> ids,
                                      std::vector<Shard*>* shards) const override {
    shards->assign(ids.size(), nullptr);
    return nullptr;
  }
  void Pull(PullWork* work) override { work->Done(); }
  void Push(PushWork* work) override { work->Done(); }
  std::optional<ShardRecord> RecordOf(ShardId) const override { return std::nullopt; }
  Identity identity() const override { return {1, "bench"}; }
  absl::Status SetIdentity(const Identity&) override { return absl::OkStatus(); }
  void SetIncarnation(Incarnation) override {}
  absl::Status ApplyAssignment(const std::vector<TableSpec>&, const std::vector<ShardRecord>&,
                               const std::vector<TableId>&) override {
    return absl::OkStatus();
  }
  std::vector<ShardEpoch> ShardsToActivate() const override { return {}; }
  void SetActivationListener(std::function<void()>) override {}
  HostStatus Status() const override { return {}; }
  Primaries CountPrimaries() const override { return {}; }
  absl::Status Shutdown() override { return absl::OkStatus(); }
  void SetReplicaNetwork(ReplicaNetwork* network) override { network_ = network; }

  void OnReplicaMessage(const Member& from, ReplicaMessage message) override {
    if (message.kind == Kind::kAppend || message.kind == Kind::kSnapshotRows) {
      ReplicaMessage answer;
      answer.kind = message.kind == Kind::kAppend ? Kind::kAppendReply : Kind::kSnapshotReply;
      answer.to = from;
      answer.lsn = message.prev_lsn + 1;
      return network_->Send(std::move(answer));
    }
    {
      absl::MutexLock lock(&mu_);
      ++answers_;
      if (left_ == 0) return;
      --left_;
    }
    network_->Send(question_);
  }
  void OnPeerLost(const Member&) override {}
  std::vector<JoinReady> JoinsReady() const override { return {}; }
  std::vector<JoinReady> SilentMembers() const override { return {}; }
  std::vector<TransferProgress> Transfers() const override { return {}; }
  void SetTransferLimits(const TransferLimits&) override {}
  std::vector<LostReplica> LostReplicas() const override { return {}; }
  std::vector<HeldReplica> HeldReplicas(bool) const override { return {}; }
  std::vector<ShardId> Held() const override { return {}; }
  void SetLease(int64_t) override {}

  // Asks `count` questions, `in_flight` at a time. The next question is sent from the thread that
  // got the answer, as in a shard.
  void Ask(const ReplicaMessage& question, uint64_t count, uint64_t in_flight) {
    {
      absl::MutexLock lock(&mu_);
      question_ = question;
      answers_ = 0;
      left_ = count - in_flight;
    }
    for (uint64_t i = 0; i < in_flight; ++i) network_->Send(question);
    absl::MutexLock lock(&mu_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return answers_ == count; };
    if (mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(10))) return;
    std::fprintf(stderr, "replica_bench: no answer for 10 s\n");
    std::exit(1);
  }

 private:
  ReplicaNetwork* network_ = nullptr;
  absl::Mutex mu_;
  uint64_t answers_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t left_ ABSL_GUARDED_BY(mu_) = 0;
  ReplicaMessage question_;  // written while nothing is in flight
};

struct Node {
  Node(const Member& self, int threads) {
    DataServerOptions options;
    options.threads = threads;
    options.peer_limits.transfer_bytes_max = 64 << 20;
    server = DataServer::Start(options, &host, Clock::Real()).value();
    network = server->network();
    host.SetReplicaNetwork(network);
    network->SetSelf(self, "bench");
  }
  ~Node() { server->Stop(0); }
  EchoHost host;
  std::unique_ptr<DataServer> server;
  ReplicaNetwork* network = nullptr;
};

int ServeReplica(const std::vector<std::string>& args) {
  Node node(kAnswerer, 1);
  node.network->SetPeers({{kAsker, args[0]}});
  int port = 0;
  if (!absl::SimpleAtoi(node.server->address().substr(node.server->address().rfind(':') + 1),
                        &port)) {
    return 1;
  }
  roofs::TellPort(port);
  for (;;) Clock::Real()->SleepNs(1'000'000'000);
}

SharedBytes Bytes(uint64_t bytes) {
  auto text = std::make_shared<std::string>(bytes, 'x');
  const auto* const data = reinterpret_cast<const uint8_t*>(text->data());
  return {std::move(text), {data, bytes}};
}

struct Measure {
  const char* name;
  Kind kind;
  uint64_t body_bytes;
  uint64_t in_flight;
};

void Run(int rounds, double seconds) {
  Node node(kAsker, 1);
  const auto peer = roofs::PeerProcess::Start({kReplicaPeer, node.server->address()});
  if (!peer.ok()) std::exit(1);
  node.network->SetPeers({{kAnswerer, absl::StrCat("127.0.0.1:", (*peer)->port())}});
  RatioTable table(rounds, seconds);
  for (const Measure& measure :
       {Measure{"append of 512 bytes, 1 in flight", Kind::kAppend, kRecordBytes, 1},
        Measure{"append of 512 bytes, 8 in flight", Kind::kAppend, kRecordBytes, 8},
        Measure{"append of 64 KiB, 4 in flight", Kind::kAppend, 64 << 10, 4},
        Measure{"rows in blocks of 1 MiB, 4 in flight", Kind::kSnapshotRows, kBlockBytes, 4}}) {
    const SharedBytes body = Bytes(measure.body_bytes);
    ReplicaMessage question;
    question.kind = measure.kind;
    question.to = kAnswerer;
    (measure.kind == Kind::kAppend ? question.records.emplace_back() : question.body) = body;
    const auto round_trips = [&] {
      constexpr uint64_t kCount = 200;
      node.host.Ask(question, kCount, measure.in_flight);
      return static_cast<double>(kCount);
    };
    std::vector<double> ours, roof;
    RatePerSecond(round_trips, seconds / 4);
    for (int r = 0; r < rounds; ++r) {
      ours.push_back(RatePerSecond(round_trips, seconds));
      roofs::MessageLoad load;
      load.request_bytes = measure.body_bytes + kAnswerBytes;
      load.reply_bytes = kAnswerBytes;
      load.in_flight = static_cast<int>(measure.in_flight);
      load.seconds = seconds;
      const auto rate = roofs::TcpLoop(load);
      if (!rate.ok()) std::exit(1);
      roof.push_back(rate->messages_per_s);
    }
    table.Add({.name = measure.name,
               .roof = "tcp loop",
               .unit = "messages/s",
               .ours = Median(ours),
               .limit = Median(roof)});
  }
  table.Print();
}

}  // namespace
}  // namespace bench
}  // namespace hotbed

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  if (argc > 3 && std::strcmp(argv[1], hotbed::roofs::kPeerArgument) == 0 &&
      std::strcmp(argv[2], hotbed::bench::kReplicaPeer) == 0) {
    return hotbed::bench::ServeReplica(std::vector<std::string>(argv + 3, argv + argc));
  }
  if (const auto code = hotbed::roofs::ServeIfAsked(argc, argv)) return *code;
  int rounds = 5;
  double seconds = 1.0;
  CLI::App app;
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber);
  app.add_option("--seconds", seconds);
  CLI11_PARSE(app, argc, argv);
  hotbed::bench::Run(rounds, seconds);
  return 0;
}
