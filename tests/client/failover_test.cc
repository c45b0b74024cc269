// Callers notice nothing of fail-overs and moves but the time that they take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"

namespace hotbed {
namespace failover_test {

constexpr uint32_t kShards = 12;
constexpr uint64_t kRows = 1200;

class FailoverTest : public testing::Test {
 protected:
  FailoverTest() : table_(cluster_.AddTable("t", kRows, 4, kShards)) {
    ClientOptions options;
    options.deadline = absl::Seconds(20);
    options.session_name = "failover-test";
    auto client = Client::Connect(cluster_.target(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    t_ = *client_->OpenTable("t");
    for (uint64_t id = 0; id < kRows; id += 7) ids_.push_back(id);
  }
  Future<absl::Status> Pull() {
    rows_.assign(ids_.size() * 4, -1);
    feature_ = {t_, ids_, rows_.data()};
    return client_->Pull({&feature_, 1});
  }
  Future<PushResult> Push(uint64_t step) {
    gradients_.assign(ids_.size() * 4, -1);
    const PushFeature feature{t_, ids_, gradients_.data()};
    return client_->Push(step, {&feature, 1});
  }
  // Moves all shards of a server to another server; the coordinator announces it where `announce`.
  void MoveAll(int from, int to, bool announce) {
    for (uint32_t i = 0; i < kShards; ++i) {
      const ShardId shard{table_, i};
      if (cluster_.shard(shard).record.primary().server() != static_cast<uint64_t>(from) + 1) {
        continue;
      }
      cluster_.Move(shard, to, announce);
    }
  }
  void ExpectApplied(uint64_t times) {
    for (uint64_t id : ids_) {
      ASSERT_EQ(cluster_.Row(table_, id)[0], static_cast<float>(times)) << id;
    }
  }

  FakeCluster cluster_{3};
  const uint32_t table_;
  std::unique_ptr<Client> client_;
  const Table* t_ = nullptr;
  std::vector<uint64_t> ids_;
  std::vector<float> rows_, gradients_;
  PullFeature feature_;
};

// An outdated map: no shard is where the map says, some moved several times, nothing was announced.
TEST_F(FailoverTest, AnOldMapCostsARoundTrip) {
  MoveAll(0, 2, false);
  MoveAll(1, 0, false);
  MoveAll(2, 1, false);
  ASSERT_TRUE(Pull().Wait().ok());
  const absl::Time begun = absl::Now();
  const PushResult pushed = Push(1).Wait();
  ASSERT_EQ(pushed.outcome, PushResult::Outcome::kApplied) << pushed.status;
  EXPECT_LT(absl::Now() - begun, absl::Seconds(2));
  ExpectApplied(1);
  // One record per refusal; the records of a message are applied at once.
  EXPECT_LE(client_->Stats().wrong_epoch, 2 * kShards);
}

TEST_F(FailoverTest, AServerThatDiesIsWaitedForByTheWatch) {
  ASSERT_EQ(Push(1).Wait().outcome, PushResult::Outcome::kApplied);
  cluster_.StopServer(0);
  Future<absl::Status> pull = Pull();
  Future<PushResult> push = Push(2);
  absl::SleepFor(absl::Milliseconds(900));  // until the coordinator has noticed and acted
  const absl::Time told = absl::Now();
  MoveAll(0, 1, true);
  const absl::Status pulled = pull.Wait();
  const PushResult pushed = push.Wait();
  EXPECT_LT(absl::Now() - told, absl::Milliseconds(500));
  EXPECT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(pushed.outcome, PushResult::Outcome::kApplied) << pushed.status;
  ExpectApplied(2);
}

// Streams do not notice a paused process or a host that is cut off; the map reports it.
TEST_F(FailoverTest, ASilentServerIsLeftWhenTheMapSaysSo) {
  ASSERT_EQ(Push(1).Wait().outcome, PushResult::Outcome::kApplied);
  cluster_.SetHanging(0, true);
  Future<absl::Status> pull = Pull();
  Future<PushResult> push = Push(2);
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Time told = absl::Now();
  MoveAll(0, 2, true);
  cluster_.SetLive(0, false);
  const absl::Status pulled = pull.Wait();
  const PushResult pushed = push.Wait();
  EXPECT_LT(absl::Now() - told, absl::Seconds(2));
  EXPECT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(pushed.outcome, PushResult::Outcome::kApplied) << pushed.status;
  ExpectApplied(2);
  cluster_.SetHanging(0, false);
  cluster_.SetLive(0, true);
  MoveAll(2, 0, true);
  ASSERT_EQ(Push(3).Wait().outcome, PushResult::Outcome::kApplied);
  ExpectApplied(3);
}

TEST_F(FailoverTest, APushThatWaitsSaysForWhichShards) {
  ASSERT_EQ(Push(1).Wait().outcome, PushResult::Outcome::kApplied);
  EXPECT_TRUE(client_->UnansweredPushes(absl::ZeroDuration()).empty());
  cluster_.SetHanging(0, true);
  std::set<uint32_t> hanging;
  for (uint32_t i = 0; i < kShards; ++i) {
    if (cluster_.shard({table_, i}).record.primary().server() == 1) hanging.insert(i);
  }
  ASSERT_LT(hanging.size(), kShards);
  const absl::Time begun = absl::Now();
  Future<PushResult> push = Push(2);
  std::vector<PushResult> waiting;
  do {  // until the other servers have answered
    waiting = client_->UnansweredPushes(absl::Milliseconds(100));
  } while ((waiting.size() != 1 || waiting[0].shards.size() > hanging.size()) &&
           absl::Now() - begun < absl::Seconds(10));
  EXPECT_GE(absl::Now() - begun, absl::Milliseconds(100));
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].step, 2u);
  std::set<uint32_t> named;
  for (const PushResult::Shard& shard : waiting[0].shards) named.insert(shard.index);
  EXPECT_EQ(named, hanging);
  EXPECT_TRUE(client_->UnansweredPushes(absl::Hours(1)).empty());
  cluster_.SetHanging(0, false);
  MoveAll(0, 2, true);
  cluster_.SetLive(0, false);
  EXPECT_EQ(push.Wait().outcome, PushResult::Outcome::kApplied);
  EXPECT_TRUE(client_->UnansweredPushes(absl::ZeroDuration()).empty());
}

// The new primary is known, and not active yet.
TEST_F(FailoverTest, AShardThatIsNotActiveIsAskedAgainSoon) {
  const absl::Time begun = absl::Now();
  const auto active = [&] { return absl::Now() - begun > absl::Milliseconds(1200); };
  const auto refusal = [] {
    v1::SegmentReply reply;
    reply.set_code(v1::UNAVAILABLE);
    return reply;
  };
  cluster_.set_push_script([&](int, const PushAsk&) -> std::optional<v1::SegmentReply> {
    if (active()) return std::nullopt;
    return refusal();
  });
  cluster_.set_pull_script([&](int, const PullAsk&) -> std::optional<v1::SegmentReply> {
    if (active()) return std::nullopt;
    return refusal();
  });
  Future<absl::Status> pull = Pull();
  Future<PushResult> push = Push(1);
  EXPECT_TRUE(pull.Wait().ok());
  EXPECT_EQ(push.Wait().outcome, PushResult::Outcome::kApplied);
  EXPECT_LT(absl::Now() - begun, absl::Milliseconds(1600)) << "no back-off of its own";
  ExpectApplied(1);
}

// Shards that move all the time under a pipeline of pushes and pulls.
TEST_F(FailoverTest, MovesWithoutEndShowNothing) {
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    for (uint32_t n = 0; !stop; ++n) {
      cluster_.Move({table_, n % kShards}, static_cast<int>(n / 5 % 3), n % 2 == 0);
      absl::SleepFor(absl::Milliseconds(1));
    }
  });
  constexpr uint64_t kSteps = 60;
  std::vector<Future<PushResult>> pushes;
  std::vector<absl::Status> pulls;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    pushes.push_back(Push(step));
    if (step % 4 == 0) pulls.push_back(Pull().Wait());
  }
  for (Future<PushResult>& push : pushes) {
    const PushResult result = push.Wait();
    EXPECT_EQ(result.outcome, PushResult::Outcome::kApplied) << result.status;
  }
  for (const absl::Status& pull : pulls) EXPECT_TRUE(pull.ok()) << pull;
  stop = true;
  mover.join();
  ExpectApplied(kSteps);
}

}  // namespace failover_test
}  // namespace hotbed
