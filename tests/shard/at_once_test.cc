// The short ways of pulls and pushes (PullGate, PushGate) and the long ones are twins: two equal
// tables get the same requests, one by the way that the host chooses, the other by the long way.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/random.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/shard.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace at_once_test {

constexpr uint64_t kRows = 64;
constexpr uint32_t kDim = 4;
constexpr uint32_t kShards = 2;
constexpr uint64_t kSteps = 150;

// As ShardHost::Pull and Push, without the short way. Pushes that have a deadline, and do not say
// when they came, take the long way to the log.
void TakeLongWay(TestPull* pull) {
  pull->pending = static_cast<int32_t>(pull->segments.size());
  for (PullSegment& segment : pull->segments) segment.shard->Pull(pull, &segment);
  pull->done.WaitForNotification();
}
void TakeLongWay(TestPush* push, ShardHost* host) {
  push->pending = static_cast<int32_t>(push->segments.size());
  if (push->deadline_ns == 0) push->deadline_ns = std::numeric_limits<int64_t>::max();
  for (PushSegment& segment : push->segments) segment.shard->Push(push, &segment);
  TestPush commits;  // what the log was given is written
  host->Push(&commits);
  push->done.WaitForNotification();
}

std::string TextOf(const SegmentResult& result) {
  return absl::StrCat(static_cast<int>(result.code), " epoch ", result.epoch, " lsn ", result.lsn,
                      " last ", result.last_seq, " retry ", result.retry_after_ms);
}

struct Case {
  OptimizerKind optimizer;
  Durability durability;
};

// No tick of the host is in a shard when the test expects that nothing is, nor lets the log write.
const Clock* StandingClock() {
  static const ManualClock clock;
  return &clock;
}

class AtOnceTest : public testing::TestWithParam<Case> {
 protected:
  explicit AtOnceTest(const Clock* clock = Clock::Real()) {
    for (const TableId id : {1, 2}) {
      TableSpec table = TestTable(id, absl::StrCat("t", id), kRows, kDim, GetParam().optimizer);
      table.durability = GetParam().durability;
      table.seed = 7;
      tables_.push_back(table);
    }
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.change_memory = std::make_shared<ChangeMemory>(1 << 20);
    server_ = std::make_unique<TestServer>(options, tables_, kShards);
    server_->UseClock(clock);
    server_->Start();
  }

  // The same requests for both tables.
  struct Requests {
    std::unique_ptr<TestPush> push[2];
    std::unique_ptr<TestPull> pull[2];
  };
  Requests Make(const std::vector<uint64_t>& ids, const std::vector<float>& gradients,
                SessionId session, Incarnation incarnation) {
    Requests made;
    for (const TableId table : {1, 2}) {
      made.push[table - 1] = server_->MakePush(session, incarnation, table, ids, gradients);
      made.pull[table - 1] = server_->MakePull(table, ids);
    }
    return made;
  }
  void ExpectEqual(const Requests& requests) {
    for (size_t s = 0; s < requests.push[0]->segments.size(); ++s) {
      EXPECT_EQ(TextOf(requests.push[0]->segments[s].result),
                TextOf(requests.push[1]->segments[s].result))
          << "push, segment " << s << "; " << requests.push[1]->segments[s].result.detail;
    }
    for (size_t s = 0; s < requests.pull[0]->segments.size(); ++s) {
      EXPECT_EQ(TextOf(requests.pull[0]->segments[s].result),
                TextOf(requests.pull[1]->segments[s].result))
          << "pull, segment " << s << "; " << requests.pull[1]->segments[s].result.detail;
    }
    EXPECT_EQ(requests.pull[0]->rows, requests.pull[1]->rows);
    EXPECT_EQ(requests.pull[0]->flags, requests.pull[1]->flags);
  }

  TempDir dir_;
  std::vector<TableSpec> tables_;
  std::unique_ptr<TestServer> server_;
};

TEST_P(AtOnceTest, BothWaysGiveTheSameAnswersAndRows) {
  const TestSeed seed(5);
  Random random(seed.value());
  uint64_t last_seq[kShards] = {};  // of session 7
  Incarnation incarnation = 1;
  bool opened[kShards] = {};
  uint64_t at_once = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    std::vector<uint64_t> ids;
    for (uint64_t id = random.Uniform(4); id < kRows; id += 1 + random.Uniform(12)) {
      ids.push_back(id);
    }
    std::vector<float> gradients(ids.size() * kDim);
    for (float& g : gradients) g = static_cast<float>(random.Uniform(9)) - 4;
    if (random.OneIn(20)) gradients[0] = std::numeric_limits<float>::quiet_NaN();
    if (random.OneIn(40)) {
      ++incarnation;
      opened[0] = opened[1] = false;
    }
    Requests requests = Make(ids, gradients, 7, incarnation);
    const uint64_t trouble = random.Uniform(12);  // mostly none
    for (auto& push : requests.push) {
      for (PushSegment& segment : push->segments) {
        const uint32_t s = segment.shard_id.index;
        segment.seq = step << 20 | 1;
        segment.prev_seq = opened[s] ? last_seq[s] : 0;
        segment.open = !opened[s];
        if (trouble == 1) segment.prev_seq += 1;                             // a gap
        if (trouble == 2) segment.seq = std::max<uint64_t>(last_seq[s], 1);  // a duplicate
        if (trouble == 3) segment.epoch += 1;
        if (trouble == 4) segment.assign = true;
        if (trouble == 5) {
          segment.has_learning_rate = true;
          segment.learning_rate = 0.5f;
        }
      }
      if (trouble == 6) push->incarnation -= incarnation > 1 ? 1 : 0;
      if (trouble == 7) push->deadline_ns = 1;
    }
    for (auto& pull : requests.pull) {
      for (PullSegment& segment : pull->segments) {
        if (trouble == 8) segment.epoch -= 1;
        if (trouble == 9) pull->strict = true;
        segment.lsn_min = random.OneIn(2) ? 0 : segment.shard->applied_lsn();
      }
    }
    server_->Run(requests.push[0].get());
    TakeLongWay(requests.push[1].get(), server_->host());
    server_->Run(requests.pull[0].get());
    TakeLongWay(requests.pull[1].get());
    ExpectEqual(requests);
    ASSERT_FALSE(HasFailure()) << "step " << step << ", trouble " << trouble;
    for (const PushSegment& segment : requests.push[0]->segments) {
      const uint32_t s = segment.shard_id.index;
      const bool known = segment.result.code == SegmentCode::kOk ||
                         segment.result.code == SegmentCode::kNanGradient;
      if (!known) continue;
      last_seq[s] = std::max(last_seq[s], segment.result.last_seq);
      opened[s] = true;
    }
    // The usual requests do take the short way.
    Requests usual = Make({1, kRows - 1}, std::vector<float>(2 * kDim, 1.0f), 7, incarnation);
    for (PullSegment& segment : usual.pull[0]->segments) {
      at_once += segment.shard->PullAtOnce(*usual.pull[0], &segment) ? 1 : 0;
    }
  }
  EXPECT_GT(at_once, kSteps);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AtOnceTest,
                         testing::Values(Case{OptimizerKind::kSgd, Durability::kCheckpoint},
                                         Case{OptimizerKind::kRowwiseAdagrad,
                                              Durability::kCheckpoint},
                                         Case{OptimizerKind::kAdam, Durability::kCheckpoint},
                                         Case{OptimizerKind::kAdam, Durability::kLog}));

class GateTest : public AtOnceTest {
 protected:
  GateTest() : AtOnceTest(StandingClock()) {}
};

// A push that the gate admits, and what shuts it.
TEST_P(GateTest, WhatHindersAPushShutsTheGate) {
  uint64_t step = 0;
  std::unique_ptr<TestPush> push;
  const auto at_once = [&](PushSegment** out = nullptr) {
    ++step;
    push = server_->MakePush(9, 1, 1, {1}, std::vector<float>(kDim, 1.0f));
    PushSegment& segment = push->segments[0];
    segment.seq = step << 20 | 1;
    segment.prev_seq = step == 1 ? 0 : (step - 1) << 20 | 1;
    segment.open = step == 1;
    if (out != nullptr) *out = &segment;
    const bool done = segment.shard->PushAtOnce(*push, &segment);
    if (!done) TakeLongWay(push.get(), server_->host());
    EXPECT_EQ(segment.result.code, SegmentCode::kOk) << segment.result.detail;
    return done;
  };
  EXPECT_FALSE(at_once()) << "its session opens, and its row comes to exist";
  PushSegment* segment = nullptr;
  EXPECT_TRUE(at_once(&segment));
  EXPECT_EQ(segment->result.lsn, 2u);
  EXPECT_EQ(segment->result.last_seq, segment->seq);
  Shard* const shard = segment->shard;
  EXPECT_EQ(shard->applied_lsn(), 2u);
  EXPECT_TRUE(at_once());
  shard->Pause(true);
  auto paused = server_->MakePush(9, 1, 1, {1}, std::vector<float>(kDim, 1.0f));
  paused->segments[0].seq = (step + 1) << 20 | 1;
  paused->segments[0].prev_seq = step << 20 | 1;
  EXPECT_FALSE(shard->PushAtOnce(*paused, &paused->segments[0]));
  shard->Pause(false);
  EXPECT_TRUE(at_once());
  // Pushes at once are in the feed of whoever has begun to follow the rows.
  const ReadPosition here{shard->AppliedPosition(), shard->AppliedPosition()};
  EXPECT_TRUE(shard->BeginFollowing(here, /*opens_feed=*/true).status.ok());
  EXPECT_TRUE(at_once());
  const ChangeFeed::Changes changes =
      shard->feed()->Read(here, /*skip=*/0, /*ids_max=*/10, Clock::Real()->NowNs());
  EXPECT_TRUE(changes.known);
  EXPECT_EQ(changes.ids, std::vector<uint64_t>{1});
  // No log ends there, so it never comes.
  auto pull = server_->MakePull(1, {1});
  pull->segments[0].lsn_min = shard->applied_lsn() + 1;
  EXPECT_FALSE(shard->PullAtOnce(*pull, &pull->segments[0]));
  pull->segments[0].lsn_min -= 1;
  EXPECT_TRUE(shard->PullAtOnce(*pull, &pull->segments[0]));
  server_->Assign();  // the next epoch
  auto late = server_->MakePull(1, {1});
  late->segments[0].epoch -= 1;
  EXPECT_FALSE(shard->PullAtOnce(*late, &late->segments[0]));
  EXPECT_TRUE(at_once());
  shard->Close();
  late->segments[0].epoch += 1;
  EXPECT_FALSE(shard->PullAtOnce(*late, &late->segments[0]));
}

INSTANTIATE_TEST_SUITE_P(Sgd, GateTest,
                         testing::Values(Case{OptimizerKind::kSgd, Durability::kCheckpoint}));

// Pushes to a shard with a log. The log has been given them, and writes when the test commits.
class PutOffTest : public AtOnceTest {
 protected:
  PutOffTest() : AtOnceTest(StandingClock()) {
    Give();  // it opens the session, and makes the row
    Commit();
    EXPECT_TRUE(newest()->done.HasBeenNotified());
  }

  // The next push of the session, to row 1.
  void Give() {
    const uint64_t number = pushes_.size() + 1;
    pushes_.push_back(server_->MakePush(9, 1, 1, {1}, std::vector<float>(kDim, 1.0f)));
    PushSegment& segment = newest()->segments[0];
    segment.seq = number << 20 | 1;
    segment.prev_seq = number == 1 ? 0 : (number - 1) << 20 | 1;
    segment.open = number == 1;
    newest()->pending = 1;
    shard_ = segment.shard;
    shard_->Push(newest(), &segment);
  }
  void Commit() {
    TestPush commits;
    server_->host()->Push(&commits);
  }
  // All pushes were applied in their order.
  void ExpectAllApplied() {
    for (size_t i = 0; i < pushes_.size(); ++i) {
      ASSERT_TRUE(pushes_[i]->done.HasBeenNotified()) << i;
      const SegmentResult& result = pushes_[i]->segments[0].result;
      EXPECT_EQ(result.code, SegmentCode::kOk) << i << ": " << result.detail;
      EXPECT_EQ(result.lsn, i + 1);
    }
    EXPECT_EQ(shard_->applied_lsn(), pushes_.size());
  }
  TestPush* newest() { return pushes_.back().get(); }

  std::vector<std::unique_ptr<TestPush>> pushes_;
  Shard* shard_ = nullptr;
};

TEST_P(PutOffTest, PullsReadOnWhileTheLogWrites) {
  const std::vector<float> before = server_->Pull(1, {1});
  Give();
  EXPECT_FALSE(newest()->done.HasBeenNotified());
  auto pull = server_->MakePull(1, {1});
  EXPECT_TRUE(shard_->PullAtOnce(*pull, &pull->segments[0]));
  EXPECT_EQ(pull->segments[0].result.lsn, 1u);
  EXPECT_EQ(shard_->core().last_lsn(), 1u) << "the core has not heard of it";
  EXPECT_EQ(server_->Pull(1, {1}), before);
  Commit();
  ExpectAllApplied();
  EXPECT_NE(server_->Pull(1, {1}), before);
}

TEST_P(PutOffTest, TheNextPushFindsItInTheCore) {
  Give();
  Give();
  EXPECT_EQ(shard_->core().last_lsn(), 3u);
  EXPECT_EQ(shard_->core().applied_lsn(), 1u);
  Give();
  Commit();
  ExpectAllApplied();
  Give();  // the short way is open again
  EXPECT_EQ(shard_->core().last_lsn(), 4u);
  Commit();
  ExpectAllApplied();
}

TEST_P(PutOffTest, OtherTasksFindItInTheCore) {
  Give();
  EXPECT_FALSE(shard_->Pause(true)) << "an accepted push is not applied yet";
  EXPECT_EQ(shard_->core().last_lsn(), 2u);
  Commit();
  EXPECT_TRUE(shard_->Pause(true));
  shard_->Pause(false);
  Give();
  shard_->Close();
  EXPECT_FALSE(shard_->idle()) << "the log holds the push";
  Commit();
  EXPECT_TRUE(shard_->idle());
  EXPECT_TRUE(newest()->done.HasBeenNotified());
}

TEST_P(PutOffTest, ADuplicateWaitsForTheFirst) {
  Give();
  auto again = server_->MakePush(9, 1, 1, {1}, std::vector<float>(kDim, 1.0f));
  again->segments[0].seq = newest()->segments[0].seq;
  again->segments[0].prev_seq = newest()->segments[0].prev_seq;
  again->pending = 1;
  shard_->Push(again.get(), again->segments.data());
  EXPECT_FALSE(again->done.HasBeenNotified());
  Commit();
  EXPECT_TRUE(again->done.HasBeenNotified());
  EXPECT_EQ(again->segments[0].result.code, SegmentCode::kOk);
  ExpectAllApplied();
}

INSTANTIATE_TEST_SUITE_P(Logged, PutOffTest,
                         testing::Values(Case{OptimizerKind::kSgd, Durability::kLog}));

}  // namespace at_once_test
}  // namespace hotbed
