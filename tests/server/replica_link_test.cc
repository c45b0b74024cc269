#include "server/peers/replica_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/data_server.h"
#include "server/peers/replica_metrics.h"
#include "tests/common/test_seed.h"
#include "tests/server/fake_shard_host.h"
#include "tests/server/replica_recorder.h"
#include "tests/server/tcp_gate.h"

namespace hotbed {
namespace replica_link_test {

using ::testing::ElementsAre;

// A server as its peers see it.
struct Node {
  explicit Node(const Member& member, const std::string& cluster_id = "cluster-a",
                const PeerStreamOptions& options = {}, const std::string& listen = "127.0.0.1:0")
      : self(member) {
    host.SetReplicaSink(&recorder);
    DataServerOptions server_options;
    server_options.threads = 1;
    server_options.peer_streams = options;
    server_options.port.listen = listen;
    server_options.peer_limits.transfer_bytes_max = 8 << 20;
    auto started = DataServer::Start(server_options, &host, Clock::Real());
    // A node that comes back may find that another process's connection has its port for a while.
    for (int i = 0; i < 200 && absl::IsUnavailable(started.status()); ++i) {
      Clock::Real()->SleepNs(50 * kMillisecondNs);
      started = DataServer::Start(server_options, &host, Clock::Real());
    }
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    network = server->network();
    network->SetSelf(self, cluster_id);
    network->SetPeers({{{1, 11}, ""}, {{2, 21}, ""}});  // the processes of these tests
  }
  ~Node() { server->Stop(0); }
  ReplicaNetwork::Peer peer() const { return {self, server->address()}; }

  const Member self;
  ReplicaRecorder recorder;
  FakeShardHost host;
  std::unique_ptr<DataServer> server;
  ReplicaNetwork* network = nullptr;  // the server's
};

constexpr Member kA = {1, 10};
constexpr Member kB = {2, 20};

ReplicaMessage Rows(const Member& to, uint64_t chunk, uint64_t bytes) {
  ReplicaMessage message;
  message.kind = ReplicaMessage::Kind::kSnapshotRows;
  message.to = to;
  message.chunk = chunk;
  message.body = OwnedBytes(std::string(bytes, 'r'));
  return message;
}

ReplicaMessage Note(const Member& to, uint64_t chunk) {
  ReplicaMessage message;
  message.kind = ReplicaMessage::Kind::kSnapshotReply;
  message.to = to;
  message.chunk = chunk;
  return message;
}

TEST(ReplicaLinkTest, SendsInOrderBothWays) {
  const TestSeed seed(31);
  Random random(seed.value());
  Node a(kA);
  Node b(kB);
  a.network->SetPeers({b.peer(), a.peer()});
  b.network->SetPeers({a.peer()});
  std::vector<std::string> to_a, to_b;
  for (int i = 0; i < 2000; ++i) {
    const bool large = random.OneIn(40);
    ReplicaMessage message = RandomMessage(&random, i % 3 == 0 ? kA : kB, large ? 100'000 : 300);
    (i % 3 == 0 ? to_a : to_b).push_back(Text(message));
    (i % 3 == 0 ? b : a).network->Send(std::move(message));
  }
  ASSERT_TRUE(Soon([&] { return a.recorder.heard_count() == to_a.size(); }));
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == to_b.size(); }));
  EXPECT_TRUE(a.recorder.heard() == to_a);
  EXPECT_TRUE(b.recorder.heard() == to_b);
  EXPECT_TRUE(Soon([&] { return a.network->QueuedBytes(kB) == 0; }));
  EXPECT_TRUE(a.recorder.lost().empty());
}

// Messages sent before the peer is there wait for it, and leave in as few wire messages as
// possible.
TEST(ReplicaLinkTest, JoinsWhatWaits) {
  std::string address;
  { address = Node(kB).server->address(); }
  Node a(kA);
  a.network->SetPeers({{kB, address}});
  for (uint64_t i = 0; i < 300; ++i) a.network->Send(Rows(kB, i, 10'000));
  EXPECT_GT(a.network->QueuedBytes(kB), 3'000'000u);
  const uint64_t messages = ReplicaMetrics::Get().sent_messages.Value();
  Node b(kB, "cluster-a", {}, address);
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == 300; }));
  const std::vector<uint64_t> chunks = b.recorder.chunks();
  EXPECT_TRUE(std::is_sorted(chunks.begin(), chunks.end()));
  EXPECT_EQ(ReplicaMetrics::Get().sent_messages.Value() - messages, 3u);  // of 1 MiB at most
  EXPECT_TRUE(a.recorder.lost().empty());
}

TEST(ReplicaLinkTest, TellsOfALossThenSendsOnInOrder) {
  Node a(kA);
  Node b(kB);
  TcpGate gate(b.server->address());
  a.network->SetPeers({{kB, gate.address()}});
  a.network->Send(Note(kB, 1));
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == 1; }));
  // From here on each loss makes the host send 100 numbers again, as a shard core would.
  a.recorder.set_again([&](const Member& peer) {
    for (uint64_t i = 0; i < 100; ++i) a.network->Send(Note(peer, 1000 + i));
  });
  for (int round = 0; round < 5; ++round) {
    const size_t before = b.recorder.heard_count();
    gate.Cut();
    ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == before + 100; })) << round;
  }
  EXPECT_THAT(a.recorder.lost(), ElementsAre(kB, kB, kB, kB, kB));
  // The other side learned of the end of each stream, since replies may have been lost with it.
  EXPECT_TRUE(Soon([&] { return b.recorder.lost().size() == 5; }));
  const std::vector<uint64_t> chunks = b.recorder.chunks();
  for (size_t i = 1; i < chunks.size(); ++i) EXPECT_EQ(chunks[i], 1000 + (i - 1) % 100) << i;
}

// While streams break at random, messages between two losses arrive without a gap; only messages
// that another thread sends during OnPeerLost may overtake those that are sent again.
TEST(ReplicaLinkTest, NothingArrivesOutOfOrderWhateverBreaks) {
  const TestSeed seed(32);
  Random random(seed.value());
  Node a(kA);
  Node b(kB);
  TcpGate gate(b.server->address());
  // The sender's side of a log: after a loss it sends again from the last number answered.
  absl::Mutex mu;
  uint64_t said = 0, answered = 0;
  const auto say = [&](uint64_t from, uint64_t to) {
    for (uint64_t n = from; n <= to; ++n) a.network->Send(Note(kB, n));
  };
  a.recorder.set_again([&](const Member&) {
    absl::MutexLock lock(&mu);
    say(answered + 1, said);
  });
  // Used by b, whose calls come one at a time.
  uint64_t next = 1, last = 0, gaps = 0;
  b.recorder.set_answer([&](const Member&, const ReplicaMessage& message) {
    absl::MutexLock lock(&mu);
    if (message.chunk > next && message.chunk != last + 1) ++gaps;
    last = message.chunk;
    if (message.chunk == next) answered = next++;
  });
  a.network->SetPeers({{kB, gate.address()}});
  constexpr uint64_t kNumbers = 20'000;
  while (said < kNumbers) {
    {
      absl::MutexLock lock(&mu);
      const uint64_t more = 1 + random.Uniform(50);
      say(said + 1, said + more);
      said += more;
    }
    if (random.OneIn(60)) gate.Cut();
    if (random.OneIn(8)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(Soon([&] {
    absl::MutexLock lock(&mu);
    return answered == said;
  }));
  absl::MutexLock lock(&mu);
  EXPECT_EQ(answered, said);
  EXPECT_LE(gaps, a.recorder.lost().size()) << "numbers were skipped within a stream";
  EXPECT_GT(gate.connections(), 2);
}

TEST(ReplicaLinkTest, BoundsTheQueueOfAPeerThatCannotBeReached) {
  PeerStreamOptions options;
  options.queue_bytes_max = 1 << 20;
  Node a(kA, "cluster-a", options);
  a.network->SetPeers({{kB, "127.0.0.1:1"}});
  const uint64_t overflows = ReplicaMetrics::Get().overflows.Value();
  for (uint64_t i = 0; i < 1000; ++i) a.network->Send(Rows(kB, i, 10'000));
  EXPECT_EQ(a.network->QueuedBytes(kB), 1u << 20);
  EXPECT_EQ(ReplicaMetrics::Get().overflows.Value() - overflows, 1u);
  EXPECT_TRUE(a.recorder.lost().empty());  // the loss is reported when a retry makes sense
}

// The peer's disk is slow: the queue fills, later messages are dropped, the host learns of the loss
// when the queue is empty, and the messages that it sends then arrive.
TEST(ReplicaLinkTest, APeerThatDoesNotReadFillsTheQueueAndIsToldLater) {
  PeerStreamOptions options;
  options.queue_bytes_max = 4 << 20;
  Node a(kA, "cluster-a", options);
  Node b(kB);
  b.recorder.Keep();
  a.network->SetPeers({b.peer()});
  uint64_t sent = 0;
  // Until nothing moves any more; a loss before that would be reported at once.
  uint64_t before = 0;
  int stands = 0;
  ASSERT_TRUE(Soon([&] {
    const uint64_t queued = a.network->QueuedBytes(kB);
    stands = queued == before ? stands + 1 : 0;
    before = queued;
    if (queued < options.queue_bytes_max / 2) {
      a.network->Send(Rows(kB, sent++, 100'000));
      stands = 0;
    }
    return stands == 200;
  }));
  for (int i = 0; i < 60; ++i) a.network->Send(Rows(kB, sent++, 100'000));
  EXPECT_GE(a.network->QueuedBytes(kB), options.queue_bytes_max);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LT(b.recorder.heard_count(), sent);
  EXPECT_TRUE(a.recorder.lost().empty());
  a.recorder.set_again([&](const Member& peer) { a.network->Send(Note(peer, 1'000'000)); });
  b.recorder.LetGo();
  ASSERT_TRUE(Soon([&] {
    const auto chunks = b.recorder.chunks();
    return !chunks.empty() && chunks.back() == 1'000'000;
  }));
  EXPECT_THAT(a.recorder.lost(), ElementsAre(kB));
  const std::vector<uint64_t> chunks = b.recorder.chunks();
  for (size_t i = 0; i + 1 < chunks.size(); ++i) ASSERT_EQ(chunks[i], i);  // the first ones, whole
}

TEST(ReplicaLinkTest, NoticesAPeerThatFellSilent) {
  Node a(kA);
  Node b(kB);
  TcpGate gate(b.server->address());
  a.network->SetPeers({{kB, gate.address()}});
  a.network->Send(Note(kB, 1));
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == 1; }));
  gate.Hold(true);
  const int64_t begin_ns = Clock::Real()->NowNs();
  ASSERT_TRUE(Soon([&] { return !a.recorder.lost().empty(); }));
  const double seconds = static_cast<double>(Clock::Real()->NowNs() - begin_ns) * 1e-9;
  std::printf("a silent peer was noticed after %.2f s\n", seconds);
  EXPECT_LT(seconds, 4.0);
  gate.Hold(false);
}

TEST(ReplicaLinkTest, RefusesAnotherClusterAndAnotherProcess) {
  Node a(kA);
  Node b(kB, "cluster-b");
  const uint64_t broken = ReplicaMetrics::Get().streams_broken.Value();
  a.network->SetPeers({b.peer()});
  a.network->Send(Note(kB, 1));
  ASSERT_TRUE(Soon([&] { return ReplicaMetrics::Get().streams_broken.Value() >= broken + 3; }));
  EXPECT_EQ(b.recorder.heard_count(), 0u);
  EXPECT_GT(a.network->QueuedBytes(kB), 0u);  // it waits

  const Member newer = {2, 21};
  a.network->SetPeers({{newer, b.server->address()}});
  EXPECT_TRUE(Soon([&] { return a.recorder.lost().size() == 1; }));  // of the older one
  a.network->Send(Note(newer, 2));
  b.network->SetSelf(newer, "cluster-a");
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == 1; }));
  EXPECT_THAT(b.recorder.chunks(), ElementsAre(2));
  EXPECT_EQ(a.network->QueuedBytes(kB), PeerStreamOptions().queue_bytes_max);
}

TEST(ReplicaLinkTest, WhatWasSaidToAPeerNotYetKnownIsALoss) {
  Node a(kA);
  Node b(kB);
  a.network->Send(Note(kB, 1));
  a.recorder.set_again([&](const Member& peer) { a.network->Send(Note(peer, 2)); });
  a.network->SetPeers({b.peer()});
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == 1; }));
  EXPECT_THAT(b.recorder.chunks(), ElementsAre(2));
  EXPECT_THAT(a.recorder.lost(), ElementsAre(kB));
}

TEST(ReplicaLinkTest, ANewNameBeginsNewStreams) {
  Node a(kA);
  Node b(kB);
  a.network->SetPeers({b.peer()});
  a.network->Send(Note(kB, 1));
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() == 1; }));
  a.recorder.set_again([&](const Member& peer) { a.network->Send(Note(peer, 2)); });
  a.network->SetSelf({1, 11}, "cluster-a");
  a.network->Send(Note(kB, 3));
  ASSERT_TRUE(Soon([&] { return b.recorder.heard_count() >= 2; }));
  EXPECT_TRUE(Soon([&] { return !b.recorder.lost().empty(); }));
  EXPECT_EQ(b.recorder.lost()[0], kA);
}

TEST(ReplicaLinkTest, StopsUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    Node b(kB);
    auto a = std::make_unique<Node>(kA);
    a->network->SetPeers({b.peer()});
    b.network->SetPeers({a->peer()});
    b.recorder.set_answer([&](const Member& from, const ReplicaMessage& message) {
      b.network->Send(Note(from, message.chunk));
    });
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; !stop; ++i) {
          a->network->Send(t == 0 ? Rows(kB, i, 5000) : Note(kB, i));
          if (i % 64 == 0) std::this_thread::yield();
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 10 * round));
    if (round % 2 == 1) b.server->Stop(0);
    a->server->Stop(0);
    const size_t lost = a->recorder.lost().size();
    stop = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(a->recorder.lost().size(), lost) << "the host was called after Stop()";
    b.server->Stop(0);
  }
}

}  // namespace replica_link_test
}  // namespace hotbed
