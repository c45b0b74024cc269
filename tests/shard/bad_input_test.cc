// Wrong requests of clients: each is refused by itself, with an error that names the thing, the
// value and the limit, and changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace bad_input_test {

using testing::HasSubstr;

constexpr uint32_t kDim = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class BadInputTest : public testing::Test {
 protected:
  BadInputTest() : server_(Options(), Tables(), 2) { server_.Start(); }

  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.pull_ids_max = 8;
    options.sessions_max = 4;
    return options;
  }

  static std::vector<TableSpec> Tables() {
    std::vector<TableSpec> tables;
    for (const NanPolicy policy : {NanPolicy::kReject, NanPolicy::kSkip, NanPolicy::kAllow}) {
      const TableId id = static_cast<TableId>(policy) + 1;
      TableSpec table = TestTable(id, absl::StrCat("t", id), 100, kDim, OptimizerKind::kSgd);
      table.optimizer.learning_rate = 1.0f;
      table.initializer = {InitializerKind::kZero, 0, 0};
      table.nan_policy = policy;
      tables.push_back(table);
    }
    TableSpec padded = tables[0];
    padded.id = 4;
    padded.name = "t4";
    padded.has_padding_id = true;
    padded.padding_id = 7;
    tables.push_back(padded);
    TableSpec none = tables[0];
    none.id = 5;
    none.name = "t5";
    none.optimizer.kind = OptimizerKind::kNone;
    tables.push_back(none);
    return tables;
  }

  // One push to the shard of `ids`; the segment may be spoiled before it is sent.
  SegmentResult Push(TableId table, const std::vector<uint64_t>& ids, uint64_t seq, uint64_t prev,
                     bool open, float gradient = 1.0f,
                     const std::function<void(TestPush*)>& spoil = nullptr) {
    auto push = server_.MakePush(session_, incarnation_, table, ids,
                                 std::vector<float>(ids.size() * kDim, gradient));
    EXPECT_EQ(push->segments.size(), 1u);
    push->segments[0].seq = seq;
    push->segments[0].prev_seq = prev;
    push->segments[0].open = open;
    if (spoil) spoil(push.get());
    server_.Run(push.get());
    return push->segments[0].result;
  }

  SegmentResult Pull(TableId table, const std::vector<uint64_t>& ids,
                     const std::function<void(TestPull*)>& spoil) {
    auto pull = server_.MakePull(table, ids);
    spoil(pull.get());
    server_.Run(pull.get());
    return pull->segments[0].result;
  }

  float First(TableId table, uint64_t id) { return server_.Pull(table, {id})[0]; }

  TempDir dir_;
  TestServer server_;
  SessionId session_ = 9;
  Incarnation incarnation_ = 2;
};

TEST_F(BadInputTest, UnknownSession) {
  const SegmentResult result = Push(1, {3}, 10, 0, /*open=*/false);
  EXPECT_EQ(result.code, SegmentCode::kUnknownSession);
  EXPECT_THAT(result.detail, HasSubstr("10"));
  EXPECT_EQ(First(1, 3), 0.0f);
}

TEST_F(BadInputTest, OldIncarnation) {
  ASSERT_EQ(Push(1, {3}, 10, 0, true).code, SegmentCode::kOk);
  incarnation_ = 1;
  EXPECT_EQ(Push(1, {3}, 11, 10, false).code, SegmentCode::kFenced);
  EXPECT_EQ(Push(1, {3}, 11, 0, true).code, SegmentCode::kFenced);
  EXPECT_EQ(First(1, 3), -1.0f);
}

TEST_F(BadInputTest, GapInTheSequence) {
  ASSERT_EQ(Push(1, {3}, 10, 0, true).code, SegmentCode::kOk);
  const SegmentResult result = Push(1, {3}, 30, 20, false);
  EXPECT_EQ(result.code, SegmentCode::kGap);
  EXPECT_EQ(result.last_seq, 10u);
  EXPECT_THAT(result.detail, HasSubstr("30 follows 20"));
  EXPECT_EQ(First(1, 3), -1.0f);
  EXPECT_EQ(Push(1, {3}, 30, 10, false).code, SegmentCode::kOk);
}

TEST_F(BadInputTest, SequenceZeroAndSessionZero) {
  EXPECT_EQ(Push(1, {3}, 0, 0, true).code, SegmentCode::kInvalidArgument);
  session_ = 0;
  EXPECT_EQ(Push(1, {3}, 10, 0, true).code, SegmentCode::kInvalidArgument);
  EXPECT_EQ(First(1, 3), 0.0f);
}

TEST_F(BadInputTest, EpochsFromThePastAndTheFuture) {
  server_.Assign();
  const Epoch now = server_.records()[0].epoch;
  for (const Epoch epoch : {now - 1, now + 1}) {
    const SegmentResult pushed =
        Push(1, {3}, 10, 0, true, 1.0f, [&](TestPush* push) { push->segments[0].epoch = epoch; });
    EXPECT_EQ(pushed.code, SegmentCode::kWrongEpoch);
    EXPECT_EQ(pushed.epoch, now);
    EXPECT_THAT(pushed.detail, HasSubstr(absl::StrCat("epoch ", epoch, " asked for")));
    const SegmentResult pulled =
        Pull(1, {3}, [&](TestPull* pull) { pull->segments[0].epoch = epoch; });
    EXPECT_EQ(pulled.code, SegmentCode::kWrongEpoch);
  }
  EXPECT_EQ(First(1, 3), 0.0f);
}

TEST_F(BadInputTest, IdOutsideOfTheShard) {
  const SegmentResult pulled = Pull(1, {3}, [](TestPull* pull) { pull->ids[0][0] = 777; });
  EXPECT_EQ(pulled.code, SegmentCode::kOutOfRange);
  EXPECT_THAT(pulled.detail, HasSubstr("id 777"));
  EXPECT_THAT(pulled.detail, HasSubstr("[0, 50)"));
  const SegmentResult pushed =
      Push(1, {3, 4}, 10, 0, true, 1.0f, [](TestPush* push) { push->ids[0][1] = 50; });
  EXPECT_EQ(pushed.code, SegmentCode::kOutOfRange);
  EXPECT_THAT(pushed.detail, HasSubstr("id 50"));
  EXPECT_EQ(First(1, 3), 0.0f) << "a segment is applied as a whole or not at all";
  // The pushes behind it are taken: the refused push is a noop in the log.
  EXPECT_EQ(Push(1, {3}, 11, 10, false).code, SegmentCode::kOk);
  // Sent again, it is refused again.
  EXPECT_EQ(Push(1, {3, 4}, 10, 0, true, 1.0f, [](TestPush* push) { push->ids[0][1] = 50; }).code,
            SegmentCode::kOutOfRange);
  EXPECT_EQ(First(1, 3), -1.0f);
}

TEST_F(BadInputTest, TheSameIdTwice) {
  const SegmentResult pushed =
      Push(1, {3, 4}, 10, 0, true, 1.0f, [](TestPush* push) { push->ids[0][1] = 3; });
  EXPECT_EQ(pushed.code, SegmentCode::kInvalidArgument);
  EXPECT_THAT(pushed.detail, HasSubstr("id 3 occurs twice"));
}

TEST_F(BadInputTest, EmptySegmentsAndTooManyIds) {
  EXPECT_EQ(Pull(1, {3}, [](TestPull* pull) { pull->segments[0].count = 0; }).code,
            SegmentCode::kInvalidArgument);
  const SegmentResult pulled = Pull(1, {0, 1, 2, 3, 4, 5, 6, 7, 8}, [](TestPull*) {});
  EXPECT_EQ(pulled.code, SegmentCode::kInvalidArgument);
  EXPECT_THAT(pulled.detail, HasSubstr("9 ids in a segment, allowed are 1 to 8"));
  EXPECT_EQ(Push(1, {3}, 10, 0, true, 1.0f, [](TestPush* p) { p->segments[0].count = 0; }).code,
            SegmentCode::kInvalidArgument);
  EXPECT_EQ(Push(1, {0, 1, 2, 3, 4, 5, 6, 7, 8}, 11, 10, false).code,
            SegmentCode::kInvalidArgument);
}

TEST_F(BadInputTest, NanAndInfinityByPolicy) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    session_ += 1;
    const SegmentResult rejected = Push(1, {3, 4}, 10, 0, true, bad);
    EXPECT_EQ(rejected.code, SegmentCode::kNanGradient);
    EXPECT_THAT(rejected.detail, HasSubstr("id 3"));
    EXPECT_EQ(Push(1, {3, 4}, 10, 0, true, bad).code, SegmentCode::kNanGradient) << "sent again";
    EXPECT_EQ(Push(1, {4}, 11, 10, false, 0.0f).code, SegmentCode::kOk);
    EXPECT_EQ(First(1, 3), 0.0f);
  }
  const SegmentResult skipped =
      Push(2, {3, 4}, 10, 0, true, 1.0f, [](TestPush* push) { push->gradients[0][1] = kNan; });
  EXPECT_EQ(skipped.code, SegmentCode::kOk);
  EXPECT_EQ(First(2, 3), 0.0f);
  EXPECT_EQ(First(2, 4), -1.0f);
  EXPECT_EQ(Push(3, {3}, 10, 0, true, kNan).code, SegmentCode::kOk);
  EXPECT_TRUE(std::isnan(First(3, 3)));
}

TEST_F(BadInputTest, ALearningRateThatIsNotFinite) {
  const SegmentResult result = Push(1, {3}, 10, 0, true, 1.0f, [](TestPush* push) {
    push->segments[0].has_learning_rate = true;
    push->segments[0].learning_rate = kNan;
  });
  EXPECT_EQ(result.code, SegmentCode::kInvalidArgument);
  EXPECT_EQ(First(1, 3), 0.0f);
}

TEST_F(BadInputTest, TooManySessions) {
  for (session_ = 1; session_ <= 4; ++session_) {
    EXPECT_EQ(Push(1, {3}, 10, 0, true).code, SegmentCode::kOk);
  }
  const SegmentResult result = Push(1, {3}, 10, 0, true);
  EXPECT_EQ(result.code, SegmentCode::kResourceExhausted);
  EXPECT_GT(result.retry_after_ms, 0u);
  session_ = 2;
  EXPECT_EQ(Push(1, {3}, 11, 10, false).code, SegmentCode::kOk);
}

TEST_F(BadInputTest, ADeadlineThatHasPassed) {
  EXPECT_EQ(Pull(1, {3}, [](TestPull* pull) { pull->deadline_ns = 1; }).code,
            SegmentCode::kDeadlineExceeded);
  EXPECT_EQ(Push(1, {3}, 10, 0, true, 1.0f, [](TestPush* push) { push->deadline_ns = 1; }).code,
            SegmentCode::kDeadlineExceeded);
  EXPECT_EQ(First(1, 3), 0.0f);
}

TEST_F(BadInputTest, AnLsnFromTheFuture) {
  const SegmentResult result = Pull(1, {3}, [](TestPull* pull) { pull->segments[0].lsn_min = 99; });
  EXPECT_EQ(result.code, SegmentCode::kUnavailable);
  EXPECT_THAT(result.detail, HasSubstr("99"));
}

TEST_F(BadInputTest, AShardThatIsNotHeld) {
  const SegmentResult result = Pull(1, {3}, [](TestPull* pull) {
    pull->segments[0].shard = nullptr;
    pull->segments[0].shard_id = {55, 0};
  });
  EXPECT_EQ(result.code, SegmentCode::kUnknownShard);
  EXPECT_THAT(result.detail, HasSubstr("shard 55/0"));
}

TEST_F(BadInputTest, ThePaddingIdTakesNoGradient) {
  const SegmentResult result = Push(4, {3, 7}, 10, 0, true);
  EXPECT_EQ(result.code, SegmentCode::kInvalidArgument);
  EXPECT_THAT(result.detail, HasSubstr("table t4"));
  EXPECT_THAT(result.detail, HasSubstr("id 7 is the table's padding id"));
  EXPECT_EQ(Push(4, {3}, 11, 10, false).code, SegmentCode::kOk) << "the refusal took sequence 10";
  EXPECT_EQ(First(4, 3), -1.0f);
  EXPECT_EQ(Push(1, {7}, 12, 0, true).code, SegmentCode::kOk) << "in a table without one";
}

TEST_F(BadInputTest, ATableWithoutAnOptimizerTakesNoGradient) {
  const SegmentResult result = Push(5, {3}, 10, 0, true);
  EXPECT_EQ(result.code, SegmentCode::kInvalidArgument);
  EXPECT_THAT(result.detail, HasSubstr("optimizer is none"));
  EXPECT_EQ(First(5, 3), 0.0f);
}

TEST_F(BadInputTest, ARefusedSegmentHarmsNoNeighbour) {
  auto push = server_.MakePush(session_, incarnation_, 1, {3, 70}, std::vector<float>(8, 1.0f));
  ASSERT_EQ(push->segments.size(), 2u);
  for (PushSegment& segment : push->segments) {
    segment.seq = 10;
    segment.open = true;
  }
  push->segments[0].epoch += 1;
  server_.Run(push.get());
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kWrongEpoch);
  EXPECT_EQ(push->segments[1].result.code, SegmentCode::kOk);
  EXPECT_EQ(First(1, 70), -1.0f);
}

// Refused, and as if they had never come: not in the log, and no bar to the true session.
TEST_F(BadInputTest, NumbersThatTheCoordinatorHasNotGivenOutAreNotTaken) {
  server_.host()->LearnGivenOut(9, {});
  ASSERT_EQ(Push(1, {3}, 10, 0, true).code, SegmentCode::kOk);
  const uint64_t appends = server_.host()->Status().log_appends;
  const auto forge = [](SessionId session, Incarnation incarnation) {
    return [=](TestPush* push) {
      push->session = session;
      push->incarnation = incarnation;
    };
  };
  for (const auto& spoil : {forge(9, ~uint64_t{0}), forge(9, 10), forge(10, 9)}) {
    const SegmentResult result = Push(1, {3}, 11, 0, true, 1.0f, spoil);
    EXPECT_EQ(result.code, SegmentCode::kUnavailable);
    EXPECT_THAT(result.detail, HasSubstr("the coordinator has opened no session"));
  }
  EXPECT_EQ(server_.host()->Status().log_appends, appends);
  EXPECT_EQ(Push(1, {3}, 11, 10, false).code, SegmentCode::kOk);
  EXPECT_EQ(First(1, 3), -2.0f);
  server_.host()->LearnGivenOut(10, {});
  EXPECT_EQ(Push(1, {3}, 12, 11, true, 1.0f, forge(9, 10)).code, SegmentCode::kOk);
}

}  // namespace bad_input_test
}  // namespace hotbed
