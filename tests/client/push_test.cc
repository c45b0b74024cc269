// Pushes against the fake cluster: sums, exactly once over lost answers, gaps, moves, refusals,
// deadlines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "tests/client/fake_cluster.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace push_test {

using Outcome = PushResult::Outcome;

class PushTest : public testing::Test {
 protected:
  void Connect(ClientOptions options = {}) {
    options.deadline = absl::Seconds(20);
    options.session_name = "push-test";
    auto client = Client::Connect(cluster_.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  const Table* Open(const std::string& name) {
    auto table = client_->OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *table : nullptr;
  }
  // Adds -1 in every column of each id, so that a row counts its pushes.
  Future<PushResult> Count(const Table* table, uint64_t step, const std::vector<uint64_t>& ids,
                           absl::Duration deadline = absl::ZeroDuration()) {
    const std::vector<float> gradients(ids.size() * table->dim(), -1.0f);
    const PushFeature feature{table, ids, gradients.data()};
    PushOptions options;
    options.deadline = deadline;
    return client_->Push(step, {&feature, 1}, options);
  }
  static v1::SegmentReply Refusal(v1::Code code) {
    v1::SegmentReply reply;
    reply.set_code(code);
    reply.set_retry_after_ms(1);
    return reply;
  }
  // Refuses the next `times` segments of any shard with `code`.
  void RefuseNext(v1::Code code, int times) {
    auto left = std::make_shared<int>(times);
    cluster_.set_push_script([left, code](int, const PushAsk&) -> std::optional<v1::SegmentReply> {
      if ((*left)-- <= 0) return std::nullopt;
      return Refusal(code);
    });
  }

  FakeCluster cluster_{2};
  std::unique_ptr<Client> client_;
};

TEST_F(PushTest, DuplicatesAreSummedOverFeaturesAndTablesTravelTogether) {
  const uint32_t a = cluster_.AddTable("a", 100, 3, 4);
  const uint32_t b = cluster_.AddTable("b", 100, 2, 2);
  Connect();
  const std::vector<uint64_t> ia = {5, 80, 5}, ia2 = {80, 6}, ib = {1, 99};
  const std::vector<float> ga = {1, 2, 3, 10, 20, 30, 4, 5, 6}, ga2 = {100, 200, 300, 7, 7, 7},
                           gb = {1, 1, 2, 2};
  const std::vector<PushFeature> features = {
      {Open("a"), ia, ga.data()}, {Open("a"), ia2, ga2.data()}, {Open("b"), ib, gb.data()}};
  const PushResult result = client_->Push(7, features).Wait();
  ASSERT_EQ(result.outcome, Outcome::kApplied) << result.status;
  EXPECT_EQ(cluster_.push_messages(), 2);
  EXPECT_EQ(cluster_.Row(a, 5), (std::vector<float>{-5, -7, -9}));
  EXPECT_EQ(cluster_.Row(a, 80), (std::vector<float>{-110, -220, -330}));
  EXPECT_EQ(cluster_.Row(a, 6), (std::vector<float>{-7, -7, -7}));
  EXPECT_EQ(cluster_.Row(b, 99), (std::vector<float>{-2, -2}));
}

TEST_F(PushTest, NarrowGradientsArriveRounded) {
  const uint32_t t = cluster_.AddTable("t", 10, 9, 1);
  for (RowType type : {RowType::kFp16, RowType::kBf16}) {
    ClientOptions options;
    options.push_type = type;
    Connect(options);
    const std::vector<uint64_t> ids = {type == RowType::kFp16 ? 1u : 2u};
    const std::vector<float> gradients = {1, -2, 3.5, 0, 0.25, -64, 8, 5, 6};
    const PushFeature feature{Open("t"), ids, gradients.data()};
    ASSERT_TRUE(client_->Push(ids[0], {&feature, 1}).Wait().status.ok());
    std::vector<float> expected;
    for (float g : gradients) expected.push_back(-g);
    EXPECT_EQ(cluster_.Row(t, ids[0]), expected);
    client_.reset();
  }
}

TEST_F(PushTest, PipelinedStepsApplyInOrder) {
  const uint32_t t = cluster_.AddTable("t", 1, 1, 1);
  Connect();
  const Table* table = Open("t");
  std::vector<Future<PushResult>> pushed;
  for (uint64_t step = 0; step < 200; ++step) pushed.push_back(Count(table, step, {0}));
  for (auto& p : pushed) ASSERT_EQ(p.Wait().outcome, Outcome::kApplied) << p.Wait().status;
  EXPECT_EQ(cluster_.Row(t, 0), std::vector<float>{200});
  EXPECT_EQ(cluster_.shard({t, 0}).applied, 200);
}

TEST_F(PushTest, AStreamThatBreaksAfterTheServerAppliedIsResentAndAppliedOnce) {
  const uint32_t t = cluster_.AddTable("t", 10, 1, 2);
  ClientOptions options;
  options.join_requests = false;  // one message per push: every seventh answer is lost
  Connect(options);
  const Table* table = Open("t");
  std::atomic<int> messages{0};
  cluster_.set_break_after_push([&] { return ++messages % 7 == 3; });
  std::vector<Future<PushResult>> pushed;
  for (uint64_t step = 1; step <= 40; ++step) pushed.push_back(Count(table, step, {1, 8}));
  for (auto& p : pushed) ASSERT_EQ(p.Wait().outcome, Outcome::kApplied) << p.Wait().status;
  EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{40});
  EXPECT_EQ(cluster_.Row(t, 8), std::vector<float>{40});
  EXPECT_GT(cluster_.shard({t, 0}).duplicates, 0);
  EXPECT_GT(client_->Stats().reconnects, 0);
}

TEST_F(PushTest, RefusedForNowIsSentAgainInOrder) {
  for (v1::Code code : {v1::READ_ONLY, v1::UNAVAILABLE, v1::RESOURCE_EXHAUSTED, v1::GAP,
                        v1::UNKNOWN_SESSION, v1::UNKNOWN_SHARD, v1::DEADLINE_EXCEEDED}) {
    SCOPED_TRACE(v1::Code_Name(code));
    const uint32_t t = cluster_.AddTable(v1::Code_Name(code), 10, 1, 2);
    Connect();
    const Table* table = Open(v1::Code_Name(code));
    RefuseNext(code, 5);
    std::vector<Future<PushResult>> pushed;
    for (uint64_t step = 1; step <= 20; ++step) pushed.push_back(Count(table, step, {1, 8}));
    for (auto& p : pushed) ASSERT_EQ(p.Wait().outcome, Outcome::kApplied) << p.Wait().status;
    EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{20});
    EXPECT_EQ(cluster_.Row(t, 8), std::vector<float>{20});
    EXPECT_GT(client_->Stats().retries, 0);
    client_.reset();
  }
}

TEST_F(PushTest, FollowsMovesWhileStepsAreInFlight) {
  const uint32_t t = cluster_.AddTable("t", 10, 1, 2);
  Connect();
  const Table* table = Open("t");
  std::vector<Future<PushResult>> pushed;
  for (uint64_t step = 1; step <= 60; ++step) {
    if (step % 10 == 5) cluster_.Move({t, 0}, step % 20 == 5 ? 1 : 0, step % 30 == 5);
    pushed.push_back(Count(table, step, {1, 8}));
  }
  for (auto& p : pushed) ASSERT_EQ(p.Wait().outcome, Outcome::kApplied) << p.Wait().status;
  EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{60});
  EXPECT_EQ(cluster_.Row(t, 8), std::vector<float>{60});
  EXPECT_EQ(cluster_.shard({t, 0}).applied, 60);
}

TEST_F(PushTest, AFinalRefusalFailsItsPushAndNotThoseBehindIt) {
  const uint32_t t = cluster_.AddTable("t", 10, 1, 2);
  Connect();
  const Table* table = Open("t");
  RefuseNext(v1::OUT_OF_RANGE, 1);
  auto first = Count(table, 1, {1, 8});
  auto second = Count(table, 2, {1, 8});
  ASSERT_EQ(first.Wait().outcome, Outcome::kFailed);
  EXPECT_EQ(first.Wait().status.code(), absl::StatusCode::kOutOfRange) << first.Wait().status;
  ASSERT_EQ(first.Wait().shards.size(), 1);
  EXPECT_EQ(first.Wait().shards[0].table, "t");
  EXPECT_EQ(second.Wait().outcome, Outcome::kApplied) << second.Wait().status;
  EXPECT_EQ(cluster_.Row(t, 1)[0] + cluster_.Row(t, 8)[0], 3);
}

TEST_F(PushTest, ASecondClientOfTheNameFencesTheFirst) {
  cluster_.AddTable("t", 10, 1, 1);
  Connect();
  const Table* table = Open("t");
  ASSERT_EQ(Count(table, 1, {1}).Wait().outcome, Outcome::kApplied);
  auto first = std::move(client_);
  Connect();
  ASSERT_EQ(Count(Open("t"), 2, {1}).Wait().outcome, Outcome::kApplied);
  client_ = std::move(first);
  const PushResult fenced = Count(table, 3, {1}).Wait();
  EXPECT_EQ(fenced.outcome, Outcome::kFailed);
  EXPECT_THAT(std::string(fenced.status.message()), testing::HasSubstr("session name"));
}

TEST_F(PushTest, ARestartedTrainerThatRepeatsStepsIsAnsweredAndNotAppliedTwice) {
  const uint32_t t = cluster_.AddTable("t", 10, 1, 2);
  Connect();
  for (uint64_t step = 1; step <= 5; ++step) Count(Open("t"), step, {1, 8}).Wait();
  client_.reset();
  Connect();
  const Table* table = Open("t");
  std::vector<Future<PushResult>> pushed;
  for (uint64_t step = 3; step <= 8; ++step) pushed.push_back(Count(table, step, {1, 8}));
  for (auto& p : pushed) ASSERT_EQ(p.Wait().outcome, Outcome::kApplied) << p.Wait().status;
  EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{8});
  EXPECT_EQ(cluster_.Row(t, 8), std::vector<float>{8});
}

// The step was partly applied when the trainer died. It restarts, and cuts the step differently.
TEST_F(PushTest, ARepeatedStepThatIsCutAnewIsAppliedOnce) {
  for (const uint32_t dim : {16u, 200u}) {
    for (const bool finer : {false, true}) {
      SCOPED_TRACE(absl::StrCat("dim ", dim, finer ? ", then finer" : ", then coarser"));
      const std::string name = absl::StrCat("t", dim, finer);
      const uint32_t t = cluster_.AddTable(name, 20000, dim, 2);
      std::vector<uint64_t> ids;
      for (uint64_t i = 0; i < 20000; i += dim == 16 ? 1 : 16) ids.push_back(i * 7 % 20000);
      ClientOptions options;
      options.message_bytes_max = finer ? 150'000 : 70'000;
      Connect(options);
      std::atomic<int> parts[2] = {0, 0};
      cluster_.set_push_script([&](int server, const PushAsk&) -> std::optional<v1::SegmentReply> {
        if (++parts[server] > 2) return Refusal(v1::UNAVAILABLE);
        return std::nullopt;
      });
      const Future<PushResult> cut = Count(Open(name), 1, ids);
      while (parts[0] <= 2 || parts[1] <= 2) absl::SleepFor(absl::Milliseconds(1));
      client_.reset();
      ASSERT_EQ(cut.Wait().outcome, Outcome::kIndeterminate);
      ASSERT_GT(cluster_.shard({t, 0}).applied_ids.size(), 0);
      ASSERT_LT(cluster_.shard({t, 0}).applied_ids.size(), ids.size() / 2);
      cluster_.set_push_script(nullptr);
      options.message_bytes_max = finer ? 70'000 : 150'000;
      Connect(options);
      const PushResult result = Count(Open(name), 1, ids).Wait();
      ASSERT_EQ(result.outcome, Outcome::kApplied) << result.status;
      for (const uint64_t id : ids) {
        ASSERT_EQ(cluster_.Row(t, id), std::vector<float>(dim, 1.0f)) << id;
      }
      client_.reset();
    }
  }
}

TEST_F(PushTest, ADeadlineWithoutAnAnswerIsIndeterminateAndRetryLearnsTheOutcome) {
  const uint32_t t = cluster_.AddTable("t", 10, 1, 2);
  Connect();
  const Table* table = Open("t");
  std::atomic<bool> away{true};
  cluster_.set_push_script([&](int server, const PushAsk&) -> std::optional<v1::SegmentReply> {
    if (server == 0 && away) return Refusal(v1::UNAVAILABLE);
    return std::nullopt;
  });
  const PushResult result = Count(table, 1, {1, 8}, absl::Milliseconds(400)).Wait();
  ASSERT_EQ(result.outcome, Outcome::kIndeterminate);
  ASSERT_EQ(result.shards.size(), 1);
  EXPECT_EQ(result.shards[0].status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(client_->Retry(result, absl::Milliseconds(20)).Wait().outcome, Outcome::kIndeterminate);
  away = false;
  const PushResult again = client_->Retry(result).Wait();
  EXPECT_EQ(again.outcome, Outcome::kApplied) << again.status;
  EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{1});
  EXPECT_EQ(cluster_.Row(t, 8), std::vector<float>{1});
  EXPECT_EQ(client_->Retry(again).Wait().outcome, Outcome::kApplied);
}

TEST_F(PushTest, LargePushesAreCutIntoPartsAndAppliedWhole) {
  const uint32_t t = cluster_.AddTable("t", 20000, 16, 2);
  ClientOptions options;
  options.message_bytes_max = 64 << 10;
  Connect(options);
  const Table* table = Open("t");
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 20000; ++i) ids.push_back(i * 7 % 20000);
  ASSERT_EQ(Count(table, 1, ids).Wait().outcome, Outcome::kApplied);
  EXPECT_LE(cluster_.largest_message(), (64 << 10) + 256);
  EXPECT_GT(cluster_.shard({t, 0}).applied, 5);
  for (uint64_t id = 0; id < 20000; id += 997) {
    ASSERT_EQ(cluster_.Row(t, id), std::vector<float>(16, 1.0f)) << id;
  }
}

TEST_F(PushTest, CutsToWhatTheServersRegistered) {
  const uint32_t t = cluster_.AddTable("t", 20000, 16, 2);
  cluster_.set_message_bytes_max(64 << 10, /*registered=*/true);
  Connect();
  const Table* table = Open("t");
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 20000; ++i) ids.push_back(i * 7 % 20000);
  ASSERT_EQ(Count(table, 1, ids).Wait().outcome, Outcome::kApplied);
  EXPECT_EQ(cluster_.refused_messages(), 0);
  EXPECT_LE(cluster_.largest_message(), 64 << 10);
  for (uint64_t id = 0; id < 20000; id += 997) {
    ASSERT_EQ(cluster_.Row(t, id), std::vector<float>(16, 1.0f)) << id;
  }
}

TEST_F(PushTest, AnOversizeRefusalFailsThePushAndTheHellosLimitCutsTheNext) {
  const uint32_t t = cluster_.AddTable("t", 20000, 16, 2);
  cluster_.set_message_bytes_max(64 << 10, /*registered=*/false);
  Connect();
  const Table* table = Open("t");
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 8000; ++i) ids.push_back(i * 7 % 20000);
  const PushResult refused = Count(table, 1, ids).Wait();
  EXPECT_EQ(refused.outcome, Outcome::kFailed);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument) << refused.status;
  const PushResult result = Count(table, 2, ids).Wait();
  EXPECT_EQ(result.outcome, Outcome::kApplied) << result.status;
  EXPECT_EQ(cluster_.Row(t, ids[5]), std::vector<float>(16, 1.0f));
}

TEST_F(PushTest, AFinalRefusalAfterALostAnswerIsIndeterminate) {
  for (v1::Code code : {v1::FENCED, v1::CORRUPT, v1::INVALID_ARGUMENT, v1::INTERNAL}) {
    SCOPED_TRACE(v1::Code_Name(code));
    cluster_.set_push_script(nullptr);
    const uint32_t t = cluster_.AddTable(v1::Code_Name(code), 10, 1, 2);
    Connect();
    const Table* table = Open(v1::Code_Name(code));
    auto lost = std::make_shared<bool>(false);
    cluster_.set_break_after_push([lost] { return !std::exchange(*lost, true); });
    cluster_.set_push_script([lost, code](int, const PushAsk&) -> std::optional<v1::SegmentReply> {
      return *lost ? std::optional(Refusal(code)) : std::nullopt;
    });
    const PushResult result = Count(table, 1, {1}).Wait();
    EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{1}) << "it was applied";
    EXPECT_EQ(result.outcome, Outcome::kIndeterminate);
    EXPECT_EQ(result.status.code(), absl::StatusCode::kUnknown) << result.status;
    ASSERT_EQ(result.shards.size(), 1);
    EXPECT_EQ(result.shards[0].status.code(), absl::StatusCode::kUnknown);
    const PushResult again = client_->Retry(result).Wait();
    EXPECT_EQ(again.outcome, Outcome::kIndeterminate);
    EXPECT_EQ(again.status, result.status);
    // A part that was never sent before is only refused.
    const PushResult first = Count(table, 2, {1}).Wait();
    EXPECT_EQ(first.outcome, Outcome::kFailed) << first.status;
    client_.reset();
  }
}

TEST_F(PushTest, AnAnswerThatLeavesItOpenMakesALaterFinalRefusalIndeterminate) {
  cluster_.AddTable("t", 10, 1, 1);
  Connect();
  uint64_t step = 0;
  for (v1::Code code : {v1::UNAVAILABLE, v1::WRONG_EPOCH, v1::READ_ONLY, v1::RESOURCE_EXHAUSTED}) {
    SCOPED_TRACE(v1::Code_Name(code));
    auto answers = std::make_shared<int>(0);
    cluster_.set_push_script([answers, code](int, const PushAsk&) {
      return std::optional(Refusal((*answers)++ == 0 ? code : v1::CORRUPT));
    });
    const bool open = code == v1::UNAVAILABLE || code == v1::WRONG_EPOCH;
    const PushResult result = Count(Open("t"), ++step, {1}).Wait();
    EXPECT_EQ(result.outcome, open ? Outcome::kIndeterminate : Outcome::kFailed) << result.status;
  }
}

TEST_F(PushTest, WhatNeverLeftTheClientFailsForCertain) {
  cluster_.AddTable("t", 10, 1, 1);
  Connect();
  const Table* table = Open("t");
  cluster_.StopServer(0);
  auto pushed = Count(table, 1, {1});
  while (client_->Stats().retries == 0) ASSERT_FALSE(pushed.WaitFor(absl::Milliseconds(5)));
  cluster_.set_push_script([](int, const PushAsk&) { return std::optional(Refusal(v1::CORRUPT)); });
  cluster_.StartServer(0);
  EXPECT_EQ(pushed.Wait().outcome, Outcome::kFailed) << pushed.Wait().status;
  EXPECT_EQ(pushed.Wait().status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(PushTest, AServerOfAnotherClusterFailsThePushUnlessItsAnswerWasLostBefore) {
  const uint32_t t = cluster_.AddTable("t", 10, 1, 1);
  Connect();
  const Table* table = Open("t");
  const grpc::Status never(grpc::StatusCode::FAILED_PRECONDITION, "hello.cluster_id is 'fake'");
  cluster_.set_greeting([never] { return never; });
  const PushResult refused = Count(table, 1, {1}).Wait();
  EXPECT_EQ(refused.outcome, Outcome::kFailed);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()), testing::HasSubstr("cluster_id"));
  client_.reset();
  Connect();
  auto streams = std::make_shared<int>(0);
  cluster_.set_greeting([never, streams] { return ++*streams > 1 ? never : grpc::Status::OK; });
  cluster_.set_break_after_push([] { return true; });
  const PushResult lost = Count(Open("t"), 2, {1}).Wait();
  EXPECT_EQ(lost.outcome, Outcome::kIndeterminate) << lost.status;
  EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{1});
}

TEST_F(PushTest, WhoWaitsForTheSessionHonoursItsOwnDeadline) {
  const uint32_t t = cluster_.AddTable("t", 10, 1, 1);
  Connect();
  const Table* table = Open("t");
  std::atomic<int> opens{0};
  absl::Notification entered, go;
  cluster_.set_open_delay([&] {
    if (++opens > 1) return;
    entered.Notify();
    go.WaitForNotification();
  });
  std::thread first([&] {
    EXPECT_EQ(Count(table, 1, {1}, absl::Seconds(20)).Wait().outcome, Outcome::kApplied);
  });
  entered.WaitForNotification();
  const PushResult late = Count(table, 2, {1}, absl::Milliseconds(20)).Wait();
  EXPECT_FALSE(go.HasBeenNotified());
  EXPECT_EQ(late.outcome, Outcome::kFailed);
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded) << late.status;
  EXPECT_THAT(std::string(late.status.message()), testing::HasSubstr("push-test"));
  EXPECT_EQ(opens, 1) << "one caller at a time asks";
  go.Notify();
  first.join();
  EXPECT_EQ(cluster_.Row(t, 1), std::vector<float>{1});
}

TEST_F(PushTest, WhoWaitsForTheSessionGoesOnWhereTheFirstGaveUp) {
  cluster_.AddTable("t", 10, 1, 1);
  Connect();
  const Table* table = Open("t");
  struct Gate {  // the coordinator's thread may still wait in it when the test is over
    std::atomic<int> opens{0};
    absl::Notification entered, go;
  };
  const auto gate = std::make_shared<Gate>();
  cluster_.set_open_delay([gate] {
    if (++gate->opens > 1) return;
    gate->entered.Notify();
    gate->go.WaitForNotification();
  });
  std::thread first([&] {
    EXPECT_EQ(Count(table, 1, {1}, absl::Milliseconds(50)).Wait().status.code(),
              absl::StatusCode::kDeadlineExceeded);
  });
  gate->entered.WaitForNotification();
  EXPECT_EQ(Count(table, 2, {1}, absl::Seconds(20)).Wait().outcome, Outcome::kApplied);
  first.join();
  gate->go.Notify();
}

TEST_F(PushTest, ALearningRateThatIsNotFiniteSpendsNoStep) {
  cluster_.AddTable("t", 10, 1, 1);
  Connect();
  const std::vector<uint64_t> ids = {1};
  const float gradient = 1;
  const PushFeature feature{Open("t"), ids, &gradient};
  PushOptions options;
  options.has_learning_rate = true;
  for (float rate :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    options.learning_rate = rate;
    const PushResult result = client_->Push(1, {&feature, 1}, options).Wait();
    EXPECT_EQ(result.outcome, Outcome::kFailed);
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status.message()), testing::HasSubstr("learning_rate"));
  }
  EXPECT_EQ(cluster_.push_messages(), 0);
  options.learning_rate = 0.5f;
  EXPECT_EQ(client_->Push(1, {&feature, 1}, options).Wait().outcome, Outcome::kApplied);
}

TEST_F(PushTest, BadStepsAreRefusedWholeBeforeAnythingIsSent) {
  cluster_.AddTable("t", 10, 2, 2);
  cluster_.AddTable("loose", 10, 2, 2, v1::NAN_ALLOW);
  Connect();
  const Table* t = Open("t");
  const Table* loose = Open("loose");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<uint64_t> ids = {1, 8};
  const std::vector<float> bad = {1, 1, 1, nan}, good = {1, 1, 1, 1};
  const std::vector<PushFeature> features = {{loose, ids, good.data()}, {t, ids, bad.data()}};
  const PushResult result = client_->Push(1, features).Wait();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status.message()),
              testing::AllOf(testing::HasSubstr("table t"), testing::HasSubstr("id 8")));
  EXPECT_EQ(client_->Push(1, {}).Wait().status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Count(t, 1, {10}).Wait().status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(cluster_.push_messages(), 0);
  const PushFeature allowed{loose, ids, bad.data()};
  EXPECT_EQ(client_->Push(1, {&allowed, 1}).Wait().outcome, Outcome::kApplied);
  EXPECT_EQ(Count(loose, 1, {1}).Wait().status.code(), absl::StatusCode::kInvalidArgument);
  const PushFeature empty{t, {}, nullptr};
  EXPECT_EQ(client_->Push(9, {&empty, 1}).Wait().outcome, Outcome::kApplied);
}

TEST_F(PushTest, PullsNameTheStateThatThePushWasAcknowledgedIn) {
  cluster_.AddTable("t", 10, 1, 1);
  Connect();
  const Table* table = Open("t");
  ASSERT_EQ(Count(table, 1, {1}).Wait().outcome, Outcome::kApplied);
  std::atomic<uint64_t> lsn_min{0};
  cluster_.set_pull_script([&](int, const PullAsk& s) -> std::optional<v1::SegmentReply> {
    lsn_min = s.lsn_min;
    return std::nullopt;
  });
  const std::vector<uint64_t> ids = {1};
  float row = 0;
  const PullFeature feature{table, ids, &row};
  ASSERT_TRUE(client_->Pull({&feature, 1}).Wait().ok());
  EXPECT_EQ(row, 1.0f);
  EXPECT_EQ(lsn_min, 1);
}

TEST_F(PushTest, RandomTroubleNeverLosesOrDoublesAPush) {
  const TestSeed seed(11);
  Random random(seed.value());
  const uint32_t t = cluster_.AddTable("t", 16, 1, 4);
  ClientOptions options;
  options.pushes_in_flight_max = 8;
  Connect(options);
  const Table* table = Open("t");
  auto trouble = std::make_shared<Random>(random.Next());
  cluster_.set_push_script([trouble](int, const PushAsk&) -> std::optional<v1::SegmentReply> {
    const v1::Code codes[] = {v1::UNAVAILABLE, v1::READ_ONLY, v1::RESOURCE_EXHAUSTED};
    if (!trouble->OneIn(15)) return std::nullopt;
    return Refusal(codes[trouble->Uniform(3)]);
  });
  cluster_.set_break_after_push([trouble] { return trouble->OneIn(40); });
  std::vector<float> expected(16);
  std::vector<Future<PushResult>> pushed;
  for (uint64_t step = 1; step <= 300; ++step) {
    if (random.OneIn(30)) {
      cluster_.Move({t, static_cast<uint32_t>(random.Uniform(4))},
                    static_cast<int>(random.Uniform(2)), random.OneIn(2));
    }
    std::vector<uint64_t> ids;
    for (uint64_t n = 1 + random.Uniform(6); n > 0; --n) {
      ids.push_back(random.Uniform(16));
      expected[ids.back()] += 1;
    }
    pushed.push_back(Count(table, step, ids));
  }
  for (auto& p : pushed) ASSERT_EQ(p.Wait().outcome, Outcome::kApplied) << p.Wait().status;
  for (uint64_t id = 0; id < 16; ++id) EXPECT_EQ(cluster_.Row(t, id)[0], expected[id]) << id;
}

}  // namespace push_test
}  // namespace hotbed
