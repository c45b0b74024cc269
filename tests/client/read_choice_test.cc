// The choice of the server that answers pulls, by itself and against the fake cluster.
#include "client/map/read_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace read_choice_test {

ShardRecord Record(bool replicas) {
  ShardRecord record;
  record.primary = {1, 1};
  record.members = {{1, 1}, {2, 1}};
  record.learners = {{3, 1}, {4, 1}};  // server 4 is becoming a member
  if (replicas) record.readers = {3};
  return record;
}

std::map<ServerId, int> Chosen(ReadChoice& choice, bool replicas, int64_t now_ns, int n = 600) {
  std::map<ServerId, int> chosen;
  for (int i = 0; i < n; ++i) ++chosen[choice.Choose(Record(replicas), choice.NextTurn(), now_ns)];
  return chosen;
}

TEST(ReadChoice, HoldersTakeTurns) {
  ReadChoice choice;
  EXPECT_EQ(choice.Choose({.primary = {5, 1}, .members = {{5, 1}}}, 3, 0), 5u);
  std::map<ServerId, int> chosen = Chosen(choice, false, 0);
  EXPECT_NEAR(chosen[1], 300, 10);
  EXPECT_EQ(chosen[1] + chosen[2], 600);
  EXPECT_THAT(Chosen(choice, true, 0), testing::SizeIs(3)) << "read replicas of every server";
}

TEST(ReadChoice, TheNearAnswerAndTheFarAreTriedNowAndThen) {
  ReadChoice choice;
  for (int i = 0; i < 20; ++i) {
    choice.Answered(1, 10'000'000);
    choice.Answered(2, 1'000'000);
    choice.Answered(3, 1'200'000);
  }
  std::map<ServerId, int> chosen = Chosen(choice, true, 0);
  EXPECT_LT(chosen[1], 10);
  EXPECT_GT(chosen[1], 0);
  EXPECT_GT(chosen[2], 250);
  EXPECT_GT(chosen[3], 250);
  for (int i = 0; i < 6; ++i) choice.Answered(1, 1'000'000);
  EXPECT_GT(Chosen(choice, true, 0)[1], 150) << "it has become fast";
}

TEST(ReadChoice, TheTimeOfAConnectionIsNotTheServers) {
  ReadChoice choice;
  choice.Answered(1, 1'000'000);
  choice.Answered(1, 1'000'000);
  choice.Answered(2, 50'000'000);
  EXPECT_NEAR(Chosen(choice, false, 0)[2], 600, 20) << "not known yet: to be tried";
  choice.Answered(2, 1'000'000);
  EXPECT_NEAR(Chosen(choice, false, 0)[2], 300, 20);
}

TEST(ReadChoice, WhoFailedIsPassedOverForAWhile) {
  ReadChoice choice;
  choice.Failed(2, 1000);
  EXPECT_EQ(Chosen(choice, false, 1000), (std::map<ServerId, int>{{1, 600}}));
  EXPECT_THAT(Chosen(choice, false, 1000 + ReadChoice::kForgetNs), testing::SizeIs(2));
  choice.Failed(1, 1000);
  EXPECT_EQ(Chosen(choice, false, 1000), (std::map<ServerId, int>{{1, 600}})) << "the primary";
  choice.Answered(2, 1000);
  EXPECT_EQ(Chosen(choice, false, 1000), (std::map<ServerId, int>{{2, 600}}));
}

// Both servers have answered after about 2 ms for a while. Returns the time.
int64_t Accustom(ReadChoice* choice) {
  choice->Answered(1, 1);  // includes the connection
  choice->Answered(2, 1);
  for (int i = 0; i < 100; ++i) choice->Answered(1 + i % 2, 2'000'000);
  choice->Watch(ReadChoice::kWatchNs);
  return ReadChoice::kWatchNs;
}
// Watches for `ns`, at the intervals that the contract asks for.
void WatchFor(ReadChoice* choice, int64_t ns, int64_t* now_ns) {
  for (const int64_t end = *now_ns + ns; *now_ns < end;) {
    choice->Watch(*now_ns += ReadChoice::kWatchNs);
  }
}

TEST(ReadChoice, ASilentServerIsLeftUntilItAnswers) {
  ReadChoice choice;
  int64_t now = Accustom(&choice);
  choice.Sent(2);
  WatchFor(&choice, 4'000'000, &now);
  EXPECT_FALSE(choice.Silent(2));
  EXPECT_EQ(choice.ChooseOther(Record(false), 1, 0), 2u);
  WatchFor(&choice, 4'000'000, &now);
  EXPECT_TRUE(choice.Silent(2)) << "8 ms without an answer, 2 ms are usual";
  EXPECT_FALSE(choice.Silent(1)) << "it owes none";
  EXPECT_EQ(Chosen(choice, false, now), (std::map<ServerId, int>{{1, 600}}));
  EXPECT_EQ(choice.ChooseOther(Record(false), 1, 0), std::nullopt);
  WatchFor(&choice, 2'000'000'000, &now);
  EXPECT_EQ(Chosen(choice, false, now), (std::map<ServerId, int>{{1, 600}}));
  choice.Answered(2, 2'000'000);
  EXPECT_FALSE(choice.Silent(2));
  EXPECT_THAT(Chosen(choice, false, now), testing::SizeIs(2));
}

TEST(ReadChoice, AServerThatAnswersIsNotSilentHoweverMuchItOwes) {
  ReadChoice choice;
  int64_t now = Accustom(&choice);
  for (int i = 0; i < 100; ++i) {
    choice.Sent(2);
    choice.Sent(2);
    WatchFor(&choice, 4'000'000, &now);
    choice.Answered(2, 2'000'000);
  }
  EXPECT_FALSE(choice.Silent(2));
}

TEST(ReadChoice, AClientThatWasStoppedItselfBlamesNobody) {
  ReadChoice choice;
  int64_t now = Accustom(&choice);
  choice.Sent(1);
  choice.Sent(2);
  now += 10'000'000'000;
  choice.Watch(now);
  EXPECT_FALSE(choice.Silent(1) || choice.Silent(2));
}

TEST(ReadChoice, WhenAllAreSilentThePrimaryIsAsked) {
  ReadChoice choice;
  int64_t now = Accustom(&choice);
  choice.Sent(1);
  choice.Sent(2);
  WatchFor(&choice, 10'000'000, &now);
  EXPECT_TRUE(choice.Silent(1) && choice.Silent(2));
  EXPECT_EQ(Chosen(choice, false, now), (std::map<ServerId, int>{{1, 600}}));
}

TEST(ReadChoice, OneCallTriesAServerThatFailedOrWasSilent) {
  ReadChoice choice;
  int64_t now = Accustom(&choice);
  choice.Sent(2);
  WatchFor(&choice, 10'000'000, &now);
  choice.NotSent(2);  // nothing is in flight there any more
  WatchFor(&choice, ReadChoice::kWatchNs, &now);
  EXPECT_EQ(Chosen(choice, false, now), (std::map<ServerId, int>{{1, 600}}));
  now += ReadChoice::kForgetNs;
  EXPECT_EQ(Chosen(choice, false, now), (std::map<ServerId, int>{{1, 599}, {2, 1}}));
  now += ReadChoice::kForgetNs;
  const uint64_t turn = choice.NextTurn();
  EXPECT_EQ(choice.Choose(Record(false), turn, now), 2u) << "there was no answer";
  EXPECT_EQ(choice.Choose(Record(false), turn, now), 2u) << "another shard of the same call";
  EXPECT_EQ(choice.Choose(Record(false), choice.NextTurn(), now), 1u);
  choice.Answered(2, 2'000'000);
  EXPECT_NEAR(Chosen(choice, false, now)[2], 300, 20);
}

TEST(ReadChoice, AnAnswerIsLateAfterTheUsualTimeOfTheLastSeconds) {
  ReadChoice choice;
  EXPECT_EQ(choice.HedgeAfterNs(), ReadChoice::kHedgeAfterUnknownNs);
  int64_t now = Accustom(&choice);
  EXPECT_GE(choice.HedgeAfterNs(), 2'000'000);
  EXPECT_LE(choice.HedgeAfterNs(), 2'500'000);
  for (int i = 0; i < 3; ++i) choice.Answered(1, 900'000'000);
  WatchFor(&choice, ReadChoice::kWatchNs, &now);
  EXPECT_LE(choice.HedgeAfterNs(), 2'500'000) << "three of a hundred";
  for (int second = 0; second < 8; ++second) {
    now += 1'000'000'000;
    choice.Watch(now);
    for (int i = 0; i < 20; ++i) choice.Answered(2, 40'000'000);
  }
  WatchFor(&choice, ReadChoice::kWatchNs, &now);
  EXPECT_GE(choice.HedgeAfterNs(), 40'000'000) << "what was usual is forgotten";
  EXPECT_LE(choice.HedgeAfterNs(), 50'000'000);
}

TEST(ReadChoice, HedgesAreATwentiethOfTheMessages) {
  ReadChoice choice;
  const auto spend = [&] {
    int64_t hedges = 0;
    while (choice.TakeHedges(1)) ++hedges;
    EXPECT_FALSE(choice.MayHedge());
    return hedges;
  };
  EXPECT_EQ(spend(), ReadChoice::kHedgesMax);
  for (int i = 0; i < 200; ++i) choice.Sent(1);
  EXPECT_FALSE(choice.TakeHedges(11)) << "all of a call's messages, or none";
  EXPECT_EQ(spend(), 10);
  for (int i = 0; i < 100'000; ++i) choice.Sent(1);
  EXPECT_EQ(spend(), ReadChoice::kHedgesMax) << "a quiet time is not saved up";
}

TEST(UsualTime, QuantilesAreThoseOfTheTimesWithinAQuarter) {
  const TestSeed seed(20261123);
  Random random(seed.value());
  std::vector<int64_t> times;
  UsualTime usual;
  for (uint32_t i = 0; i + 1 < UsualTime::kTimesMin; ++i) usual.Add(1000);
  EXPECT_EQ(usual.Quantile(0.5), 0) << "too few";
  usual = {};
  for (int i = 0; i < 5000; ++i) {
    times.push_back(static_cast<int64_t>(std::exp(random.Double() * 20) * 100));
    usual.Add(times.back());
  }
  std::sort(times.begin(), times.end());
  for (const double q : {0.05, 0.5, 0.95, 0.99}) {
    const auto exact = static_cast<double>(times[static_cast<size_t>(q * 5000)]);
    EXPECT_GE(static_cast<double>(usual.Quantile(q)), exact) << q;
    EXPECT_LE(static_cast<double>(usual.Quantile(q)), 1.26 * exact) << q;
  }
  for (int i = 0; i < 20; ++i) usual.Age();
  EXPECT_EQ(usual.Quantile(0.5), 0);
}

class ReadFromTest : public testing::Test {
 protected:
  // Server 1 has a replica; for a data-parallel table servers 1 and 2 have read replicas.
  void Connect(ReadFrom from, bool data_parallel = false, uint32_t replicas = 2) {
    v1::TableSpec spec;
    spec.set_name("t");
    spec.set_rows(100);
    spec.set_dim(4);
    spec.set_data_parallel(data_parallel);
    if (!data_parallel && replicas > 1) {
      spec.set_durability(v1::DURABILITY_REPLICATED);
      spec.set_replicas(replicas);
    }
    table_ = cluster_.AddTable(spec, 1);  // the primary is server 0
    cluster_.SetReplicas({table_, 0}, data_parallel ? std::vector<int>() : std::vector<int>{1},
                         data_parallel ? std::vector<int>{1, 2} : std::vector<int>());
    ClientOptions options;
    options.deadline = absl::Seconds(10);
    options.session_name = "read-test";
    options.read_from = from;
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    t_ = *client_->OpenTable("t");
  }
  absl::Status Pull(const PullOptions& options = {}) {
    std::vector<float> rows(8);
    const PullFeature feature{t_, ids_, rows.data()};
    return client_->Pull({&feature, 1}, options).Wait();
  }
  void Pulls(int n, const PullOptions& options = {}) {
    for (int i = 0; i < n; ++i) {
      const absl::Status pulled = Pull(options);
      ASSERT_TRUE(pulled.ok()) << pulled;
    }
  }
  PushResult Push(uint64_t step) {
    const std::vector<float> gradients(8, 1.0f);
    const PushFeature feature{t_, ids_, gradients.data()};
    return client_->Push(step, {&feature, 1}).Wait();
  }
  std::vector<uint64_t> Asked() const {
    return {cluster_.pull_messages_of(0), cluster_.pull_messages_of(1),
            cluster_.pull_messages_of(2)};
  }

  FakeCluster cluster_{3};
  uint32_t table_ = 0;
  std::unique_ptr<Client> client_;
  const Table* t_ = nullptr;
  const std::vector<uint64_t> ids_ = {3, 5};
};

TEST_F(ReadFromTest, ThePrimaryByDefault) {
  Connect(ReadFrom::kDefault);
  Pulls(20);
  EXPECT_EQ(Asked(), (std::vector<uint64_t>{20, 0, 0}));
  EXPECT_FALSE(cluster_.last_pull_of(0).strict());
  EXPECT_EQ(cluster_.last_pull_of(0).staleness_ms_max(), 0u);
}

TEST_F(ReadFromTest, AnyReplicaOnRequest) {
  Connect(ReadFrom::kAny);
  Pulls(100);
  // The choice follows measured times, so a server that was slow once may only get its probes.
  EXPECT_GE(Asked()[0], 1u);
  EXPECT_GE(Asked()[1], 1u);
  EXPECT_GE(Asked()[0] + Asked()[1], 100u);
  // Hedges are counted by another thread once they are sent.
  const auto hedges = [&] { return client_->Stats().hedges_of_silent + client_->Stats().hedges; };
  const absl::Time until = absl::Now() + absl::Seconds(10);
  while (Asked()[0] + Asked()[1] > 100u + hedges() && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_LE(Asked()[0] + Asked()[1], 100u + hedges());
  PullOptions primary;
  primary.read_from = ReadFrom::kPrimary;
  const uint64_t before = Asked()[0];
  Pulls(20, primary);
  EXPECT_GE(Asked()[0], before + 20);
}

// The replica that a move adds for a while may be behind the state that this client has seen.
TEST_F(ReadFromTest, NotTheTargetOfAMove) {
  Connect(ReadFrom::kAny, /*data_parallel=*/false, /*replicas=*/1);
  Pulls(50);
  EXPECT_EQ(Asked(), (std::vector<uint64_t>{50, 0, 0}));
}

TEST_F(ReadFromTest, StrictPullsAskThePrimaryAndSaySo) {
  Connect(ReadFrom::kAny);
  PullOptions options;
  options.strict = true;
  Pulls(10, options);
  EXPECT_EQ(Asked(), (std::vector<uint64_t>{10, 0, 0}));
  EXPECT_TRUE(cluster_.last_pull_of(0).strict());
  options.read_from = ReadFrom::kAny;
  EXPECT_EQ(Pull(options).code(), absl::StatusCode::kInvalidArgument);
  options = {};
  options.staleness_max = absl::Microseconds(1500);
  Pulls(10, options);
  EXPECT_EQ(std::max(cluster_.last_pull_of(0).staleness_ms_max(),
                     cluster_.last_pull_of(1).staleness_ms_max()),
            2u)
      << "rounded up";
  options.staleness_max = -absl::Seconds(1);
  EXPECT_EQ(Pull(options).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReadFromTest, EveryServersReplicaOfADataParallelTable) {
  Connect(ReadFrom::kDefault, /*data_parallel=*/true);
  Pulls(600);
  for (int s = 0; s < 3; ++s) EXPECT_GE(Asked()[s], 1u) << s;
}

TEST_F(ReadFromTest, AReplicaThatIsBehindOrDownIsNoError) {
  Connect(ReadFrom::kAny);
  cluster_.set_pull_script([](int server, const PullAsk&) -> std::optional<v1::SegmentReply> {
    if (server != 1) return std::nullopt;
    v1::SegmentReply behind;
    behind.set_code(v1::UNAVAILABLE);
    behind.set_retry_after_ms(600'000);  // beyond every deadline: the primary is asked at once
    return behind;
  });
  Pulls(40);
  EXPECT_GE(Asked()[0], 40u);
  cluster_.set_pull_script(nullptr);
  cluster_.StopServer(1);
  Pulls(40);
  EXPECT_GE(Asked()[0], 80u);
}

// Without a second question each of these calls would wait until the coordinator acts, which it
// never does here.
TEST_F(ReadFromTest, NobodyWaitsForASilentReplica) {
  Connect(ReadFrom::kAny);
  Pulls(100);
  cluster_.SetHanging(1, true);
  Pulls(300);
  // A client on a busy machine may have found server 1 slow before, and asks it rarely.
  for (int i = 0; i < 20'000 && client_->Stats().hedges_won == 0; ++i) Pulls(1);
  const ClientStats stats = client_->Stats();
  EXPECT_GE(stats.hedges + stats.hedges_of_silent, 1u);
  EXPECT_GE(stats.hedges_won, 1u);
  EXPECT_LE(stats.hedges, stats.messages / 20 + 20);
  std::vector<float> rows(8);
  const PullFeature feature{t_, ids_, rows.data()};
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client_->Lookup({&feature, 1}).Wait().ok());
  // It answers again, and is asked again.
  cluster_.SetHanging(1, false);
  const uint64_t before = Asked()[1];
  for (int i = 0; i < 20'000 && Asked()[1] < before + 10; ++i) Pulls(1);
  EXPECT_GE(Asked()[1], before + 10);
}

TEST_F(ReadFromTest, ThePrimaryAloneIsWaitedFor) {
  Connect(ReadFrom::kPrimary);
  Pulls(50);
  cluster_.SetHanging(0, true);
  PullOptions options;
  options.deadline = absl::Milliseconds(300);
  EXPECT_EQ(Pull(options).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client_->Stats().hedges + client_->Stats().hedges_of_silent, 0u);
}

// Rows that are asked for twice are written once, pooled ones are counted once.
TEST_F(ReadFromTest, TheFirstOfTwoAnswersCounts) {
  Connect(ReadFrom::kAny);
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_EQ(Push(step).outcome, PushResult::Outcome::kApplied);
  }
  Pulls(60);
  const std::vector<uint32_t> lengths = {2};
  for (int round = 0; round < 20; ++round) {
    cluster_.SetHanging(round % 2, true);
    std::vector<float> rows(8, 7.0f), bag(4, 7.0f);
    std::vector<uint8_t> exists(2, 9);
    PullFeature features[2] = {{t_, ids_, rows.data(), RowType::kFp32, exists.data()},
                               {t_, ids_, bag.data()}};
    features[1].bag_lengths = lengths;
    const Future<absl::Status> pulled = client_->Pull(features);
    ASSERT_TRUE(pulled.Wait().ok()) << pulled.Wait();
    cluster_.SetHanging(round % 2, false);
    EXPECT_EQ(rows, std::vector<float>(8, -3.0f));
    EXPECT_EQ(bag, std::vector<float>(4, -6.0f));
    EXPECT_EQ(exists, std::vector<uint8_t>(2, 1));
  }
}

// Pulls see this client's acknowledged pushes and earlier reads, also after a change of epochs.
TEST_F(ReadFromTest, NothingOlderThanSeenIsAskedFor) {
  Connect(ReadFrom::kAny);
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_EQ(Push(step).outcome, PushResult::Outcome::kApplied);
  }
  uint64_t least = ~0ull;
  cluster_.set_pull_script([&](int, const PullAsk& segment) -> std::optional<v1::SegmentReply> {
    least = std::min<uint64_t>(least, segment.lsn_min);
    return std::nullopt;
  });
  Pulls(10);
  EXPECT_EQ(least, 3u);
  cluster_.Move({table_, 0}, 2, true);
  least = ~0ull;
  Pulls(10);
  EXPECT_EQ(least, 3u) << "LSNs of replicas go on over epochs";
  // Another client pushes: once this client has read the push, it never reads an older state.
  ClientOptions options;
  options.session_name = "other";
  auto other = Client::Connect(cluster_.target(), options);
  ASSERT_TRUE(other.ok());
  const std::vector<float> gradients(8, 1.0f);
  const PushFeature feature{*(*other)->OpenTable("t"), ids_, gradients.data()};
  ASSERT_TRUE((*other)->Push(1, {&feature, 1}).Wait().status.ok());
  PullOptions primary;
  primary.read_from = ReadFrom::kPrimary;  // is asked once: no second question comes late
  Pulls(1, primary);
  least = ~0ull;
  Pulls(10);
  EXPECT_EQ(least, 4u);
}

}  // namespace read_choice_test
}  // namespace hotbed
