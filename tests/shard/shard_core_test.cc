// The core's rules one by one; what happens when they meet is for tests/sim.
#include "server/protocol/shard_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/shard/shard_core_fixture.h"

namespace hotbed {
namespace shard_core_test {

TEST_F(ShardCoreTest, ServesOnlyAfterPromiseAndActivation) {
  EXPECT_EQ(core_.CheckEpoch(1), SegmentCode::kUnavailable);
  core_.LearnRecord(Record(1, 1, false));
  CoreReady ready = Take();
  EXPECT_EQ(ready.promise, 1u);
  EXPECT_FALSE(core_.wants_activation()) << "not before the promise is durable";
  core_.PromiseDurable(1);
  EXPECT_TRUE(core_.wants_activation());
  EXPECT_EQ(core_.CheckEpoch(1), SegmentCode::kUnavailable);
  core_.LearnRecord(Record(1, 2, true));
  EXPECT_EQ(core_.CheckEpoch(1), SegmentCode::kOk);
  EXPECT_EQ(core_.CheckEpoch(0), SegmentCode::kWrongEpoch);
  EXPECT_EQ(core_.CheckEpoch(2), SegmentCode::kWrongEpoch);
}

TEST_F(ShardCoreTest, APromiseOutlivesARestart) {
  core_.Recover(5, ShardMeta());
  core_.LearnRecord(Record(4, 1, true));
  EXPECT_EQ(core_.epoch(), 0u) << "a lower epoch is never acted on again";
  core_.LearnRecord(Record(5, 2, false));
  EXPECT_EQ(Take().promise, 0u) << "durable already";
  EXPECT_TRUE(core_.wants_activation());
}

// Any other record only says that another process goes on.
TEST_F(ShardCoreTest, AFenceEndsTheEpochAndIsPromisedByThoseItNames) {
  Activate(1);
  core_.LearnRecord(Record(2, 8, false, Member{1, 11}));
  EXPECT_EQ(Take().promise, 0u);
  EXPECT_FALSE(core_.primary());
  core_.LearnRecord(Record(3, 9, false, Member{2, 0}));
  EXPECT_EQ(Take().promise, 0u) << "it names other servers";
  core_.LearnRecord(Record(4, 10, false, Member{1, 0}));
  EXPECT_EQ(Take().promise, 4u);
  core_.PromiseDurable(4);
  EXPECT_EQ(core_.promised(), 4u);
  EXPECT_FALSE(core_.wants_activation());
}

TEST_F(ShardCoreTest, RepliesAfterAppendAndApply) {
  Activate(1);
  CoreReady ready = Push(7, 0, /*open=*/true, /*token=*/42);
  ASSERT_EQ(ready.appends.size(), 1u);
  EXPECT_EQ(ready.appends[0].lsn, 1u);
  EXPECT_TRUE(ready.appends[0].open);
  EXPECT_TRUE(ready.replies.empty());
  core_.Appended(1, TicketOf(1));
  ready = Take();
  ASSERT_EQ(ready.applies.size(), 1u);
  EXPECT_TRUE(ready.replies.empty());
  core_.Applied(1);
  ready = Take();
  ASSERT_EQ(ready.replies.size(), 1u);
  EXPECT_EQ(ready.replies[0].token, 42u);
  EXPECT_EQ(ready.replies[0].code, SegmentCode::kOk);
  EXPECT_EQ(ready.replies[0].epoch, 1u);
  EXPECT_EQ(ready.replies[0].lsn, 1u);
  EXPECT_EQ(ready.replies[0].last_seq, 7u);
}

// Rows that a policy takes.
TEST_F(ShardCoreTest, OnlyAnActivePrimaryDeletesByItself) {
  EXPECT_FALSE(core_.Delete(9));
  core_.LearnRecord(Record(1, 1, false));
  core_.PromiseDurable(1);
  EXPECT_FALSE(core_.Delete(9)) << "not active";
  core_.LearnRecord(Record(1, 2, true));
  Take();
  Push(7, 0, /*open=*/true, /*token=*/42);
  ASSERT_TRUE(core_.Delete(9));
  CoreReady ready = Take();
  ASSERT_EQ(ready.appends.size(), 1u);
  EXPECT_EQ(ready.appends[0].kind, RecordKind::kDelete);
  EXPECT_EQ(ready.appends[0].lsn, 2u);
  EXPECT_EQ(ready.appends[0].session, 0u);
  EXPECT_EQ(ready.appends[0].payload, 9u);
  core_.Appended(2, TicketOf(2));
  EXPECT_EQ(Take().applies.size(), 2u);
  core_.Applied(1);
  EXPECT_EQ(Take().replies.size(), 1u);
  core_.Applied(2);
  EXPECT_TRUE(Take().replies.empty()) << "nobody waits for it";
  EXPECT_EQ(core_.session_count(), 1u);
  ASSERT_TRUE(core_.Delete(10));
  Take();
  core_.AppendFailed(3, TicketOf(3));
  EXPECT_FALSE(core_.Delete(11)) << "the log takes nothing";
  core_.LearnRecord(Record(2, 8, false, Member{1, 11}));
  EXPECT_FALSE(core_.Delete(12)) << "another process is the primary";
}

TEST_F(ShardCoreTest, ADuplicateInFlightWaitsForItsEntry) {
  Activate(1);
  Push(7, 0, true, 1);
  Push(8, 7, false, 2);
  EXPECT_TRUE(Push(7, 0, false, 3).replies.empty());
  core_.Appended(2, TicketOf(2));
  Take();
  core_.Applied(1);
  const std::vector<CoreReply> replies = Take().replies;
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].token, 1u);
  EXPECT_EQ(replies[1].token, 3u);
  EXPECT_EQ(replies[1].last_seq, 7u) << "8 is not applied yet";
}

TEST_F(ShardCoreTest, ADuplicateOfAnAppliedPushIsAnsweredAtOnce) {
  Activate(1);
  Push(7, 0, true);
  FinishAndReply();
  const CoreReady ready = Push(7, 0, false, 9);
  EXPECT_TRUE(ready.appends.empty());
  ASSERT_EQ(ready.replies.size(), 1u);
  EXPECT_EQ(ready.replies[0].code, SegmentCode::kOk);
}

TEST_F(ShardCoreTest, AGapNamesTheLastSequenceOfTheTail) {
  Activate(1);
  Push(7, 0, true);
  const CoreReady ready = Push(9, 8);
  ASSERT_EQ(ready.replies.size(), 1u);
  EXPECT_EQ(ready.replies[0].code, SegmentCode::kGap);
  EXPECT_EQ(ready.replies[0].last_seq, 7u);
}

TEST_F(ShardCoreTest, OpeningWithAnEarlierStepRecordsAnOpenAndSaysHowFarItWas) {
  Activate(1);
  Push(7, 0, true);
  Push(8, 7);
  FinishAndReply();
  incarnation_ = 2;
  EXPECT_EQ(Push(7, 0).replies[0].code, SegmentCode::kUnknownSession);
  const CoreReady ready = Push(7, 0, true);
  ASSERT_EQ(ready.appends.size(), 1u);
  EXPECT_EQ(ready.appends[0].kind, RecordKind::kOpen);
  const std::vector<CoreReply> replies = FinishAndReply();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].code, SegmentCode::kOk);
  EXPECT_EQ(replies[0].last_seq, 8u);
  incarnation_ = 1;
  EXPECT_EQ(Push(9, 8).replies[0].code, SegmentCode::kFenced);
}

TEST_F(ShardCoreTest, ANewIncarnationMayNotKnowWhatWasSentLast) {
  Activate(1);
  Push(7, 0, true);
  FinishAndReply();
  incarnation_ = 2;
  constexpr uint64_t kNextStep = 1 << kStepShift | 1;
  EXPECT_EQ(Push(kNextStep, 8, true).replies[0].code, SegmentCode::kGap);
  EXPECT_EQ(Push(kNextStep, 0, true).appends.size(), 1u);
}

// It may have cut the step elsewhere: what it calls its first part has rows that are applied.
TEST_F(ShardCoreTest, ANewIncarnationInTheSameStepGoesOnWhereTheShardIs) {
  Activate(1);
  constexpr uint64_t kStep = 5 << kStepShift;
  Push(kStep | 7, 0, true);
  FinishAndReply();
  incarnation_ = 2;
  const CoreReady refused = Push(kStep | 10, 0, true);
  ASSERT_EQ(refused.replies.size(), 1u);
  EXPECT_EQ(refused.replies[0].code, SegmentCode::kGap);
  EXPECT_EQ(refused.replies[0].last_seq, kStep | 7);
  EXPECT_EQ(Push(kStep | 10, kStep | 7, true).appends.size(), 1u);
}

TEST_F(ShardCoreTest, ARefusedPushIsANoopAndThePipelineGoesOn) {
  Activate(1);
  const CoreReady ready = Push(7, 0, true, 1, SegmentCode::kNanGradient);
  ASSERT_EQ(ready.appends.size(), 1u);
  EXPECT_EQ(ready.appends[0].kind, RecordKind::kNoop);
  EXPECT_EQ(Push(8, 7).appends.size(), 1u);
  const std::vector<CoreReply> replies = FinishAndReply();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].code, SegmentCode::kNanGradient);
  EXPECT_EQ(replies[0].last_seq, 7u);
  EXPECT_EQ(replies[1].code, SegmentCode::kOk);
}

TEST_F(ShardCoreTest, AFailedAppendCutsTheTailAndTheSessions) {
  Activate(1);
  Push(7, 0, true, 1);
  FinishAndReply();
  Push(8, 7, false, 2);
  session_ = 6;
  Push(3, 0, true, 3);
  core_.AppendFailed(2, TicketOf(2));
  const CoreReady ready = Take();
  ASSERT_EQ(ready.replies.size(), 2u);
  for (const CoreReply& reply : ready.replies) EXPECT_EQ(reply.code, SegmentCode::kReadOnly);
  core_.AppendFailed(3, TicketOf(3));  // its own completion
  EXPECT_EQ(core_.last_lsn(), 1u);
  EXPECT_EQ(core_.session_count(), 1u);
  EXPECT_EQ(Push(4, 0, true).replies[0].code, SegmentCode::kReadOnly);
  core_.Resume();
  session_ = 5;
  EXPECT_EQ(Push(8, 7).appends[0].lsn, 2u);
}

TEST_F(ShardCoreTest, SteppingDownFailsRepliesAndKeepsTheTail) {
  Activate(1);
  Push(7, 0, true, 1);
  core_.LearnRecord(Record(2, 9, false, Member{2, 20}));
  const CoreReady ready = Take();
  EXPECT_TRUE(ready.stepped_down);
  ASSERT_EQ(ready.replies.size(), 1u);
  EXPECT_EQ(ready.replies[0].code, SegmentCode::kWrongEpoch);
  EXPECT_TRUE(FinishAndReply().empty()) << "answered once";
  EXPECT_EQ(core_.last_lsn(), 1u);
  EXPECT_EQ(core_.applied_lsn(), 0u) << "what is committed is for the new primary to say";
}

TEST_F(ShardCoreTest, ANewEpochWaitsForItsOwnTail) {
  Activate(1);
  Push(7, 0, true, 1);
  core_.LearnRecord(Record(2, 9, false));
  core_.PromiseDurable(2);
  EXPECT_FALSE(core_.wants_activation());
  core_.Appended(1, TicketOf(1));
  EXPECT_TRUE(core_.wants_activation());
}

TEST_F(ShardCoreTest, TheMetaIsTheStateAtTheAppliedLsn) {
  Activate(1);
  Push(7, 0, true, 1);
  FinishAndReply();
  Push(8, 7, false, 2);
  const ShardMeta meta = core_.AppliedMeta();
  EXPECT_EQ(meta.applied_lsn, 1u);
  ASSERT_NE(meta.sessions.Find(5), nullptr);
  EXPECT_EQ(meta.sessions.Find(5)->last_seq, 7u);
  const auto parsed = ShardMeta::Parse(meta.Serialize());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->sessions, meta.sessions);
  EXPECT_EQ(parsed->applied_epoch, 1u);
  EXPECT_FALSE(ShardMeta::Parse(meta.Serialize().substr(0, 30)).ok());
}

TEST_F(ShardCoreTest, AMetaOfTheFirstVersionIsRead) {
  std::string bytes;
  AppendLittle<uint32_t>(1, &bytes);
  AppendLittle<uint64_t>(12, &bytes);
  AppendLittle<uint64_t>(3, &bytes);
  AppendLittle<uint32_t>(0, &bytes);
  const auto meta = ShardMeta::Parse(bytes);
  ASSERT_TRUE(meta.ok()) << meta.status();
  EXPECT_EQ(meta->applied_lsn, 12u);
  EXPECT_EQ(meta->applied_epoch, 3u);
  EXPECT_EQ(meta->forgotten, 0u);
  bytes[0] = 3;
  EXPECT_EQ(ShardMeta::Parse(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShardCoreTest, ReplayRebuildsWhatTheLogHeld) {
  Activate(1);
  std::vector<CoreEntry> log;
  for (const auto& [seq, prev] : {std::pair{7, 0}, {8, 7}, {12, 8}}) {
    log.push_back(Push(seq, prev, seq == 7).appends[0]);
  }
  FinishAndReply();
  ShardCore again{ShardCoreOptions()};
  again.Recover(1, ShardMeta());
  for (const CoreEntry& entry : log) EXPECT_TRUE(*again.Replay(entry));
  EXPECT_FALSE(*again.Replay(log[1])) << "known already";
  EXPECT_EQ(again.AppliedMeta().sessions, core_.AppliedMeta().sessions);
  log[0].lsn = 9;
  EXPECT_EQ(again.Replay(log[0]).status().code(), absl::StatusCode::kDataLoss);
}

class SmallShardCoreTest : public ShardCoreTest {
 protected:
  SmallShardCoreTest() : ShardCoreTest({.sessions_max = 2, .entries_max = 40}) {}
};

TEST_F(SmallShardCoreTest, LimitsAreAnsweredNotExceeded) {
  Activate(1);
  uint64_t prev = 0;
  for (uint64_t seq = 1; seq <= 40; ++seq) {
    EXPECT_EQ(Push(seq, prev, seq == 1).appends.size(), 1u);
    prev = seq;
  }
  EXPECT_EQ(Push(41, 40).replies[0].code, SegmentCode::kResourceExhausted);
  EXPECT_EQ(FinishAndReply().size(), 40u);
  session_ = 6;
  Push(1, 0, true);
  session_ = 7;
  EXPECT_EQ(Push(1, 0, true).replies[0].code, SegmentCode::kResourceExhausted);
}

TEST_F(SmallShardCoreTest, WithoutMemoryForSessionsANewOneTakesTheRoomOfAnIdleOne) {
  constexpr int64_t kHour = 3'600'000'000'000;
  Activate(1);
  core_.SetNow(kHour);
  Push(1, 0, true);
  FinishAndReply();
  CorePush push;
  push.epoch = 1;
  push.session = 6;
  push.incarnation = 1;
  push.seq = 1;
  push.open = true;
  push.no_session_room = true;
  push.token = 99;
  core_.Push(push);
  CoreReady ready = Take();
  ASSERT_EQ(ready.replies.size(), 1u);
  EXPECT_EQ(ready.replies[0].code, SegmentCode::kResourceExhausted);
  core_.SetNow(2 * kHour);
  core_.Push(push);
  ready = Take();
  ASSERT_EQ(ready.appends.size(), 2u);
  EXPECT_EQ(ready.appends[0].kind, RecordKind::kForget);
  EXPECT_EQ(ready.appends[1].session, 6u);
}

TEST_F(SmallShardCoreTest, IdleSessionsMakeRoomForNewOnes) {
  constexpr int64_t kHour = 3'600'000'000'000;
  ShardMeta meta;
  meta.sessions.Set(5, {1, 9});
  core_.Recover(0, std::move(meta));
  Activate(1);
  core_.SetNow(kHour);  // session 5 is heard of from here
  session_ = 6;
  Push(1, 0, true);
  core_.SetNow(2 * kHour - 1);
  session_ = 7;
  EXPECT_EQ(Push(1, 0, true).replies[0].code, SegmentCode::kResourceExhausted) << "none is idle";
  session_ = 6;
  Push(1, 0);  // a repetition is a sign of life too
  core_.SetNow(2 * kHour);
  session_ = 7;
  const CoreReady ready = Push(1, 0, true);
  ASSERT_EQ(ready.appends.size(), 2u);
  EXPECT_EQ(ready.appends[0].kind, RecordKind::kForget);
  EXPECT_EQ(ready.appends[0].session, 5u);
  EXPECT_EQ(ready.appends[1].session, 7u);
  FinishAndReply();
  session_ = 5;
  EXPECT_EQ(Push(10, 9).replies[0].code, SegmentCode::kFenced);
  incarnation_ = 2;
  EXPECT_EQ(Push(10, 9).replies[0].code, SegmentCode::kUnknownSession);
  EXPECT_EQ(Push(10, 0, true).replies[0].code, SegmentCode::kResourceExhausted);

  ShardCore again({.sessions_max = 2, .entries_max = 40});
  ShardMeta before;
  before.sessions.Set(5, {1, 9});
  again.Recover(1, std::move(before));
  CoreEntry opened;
  opened.lsn = 1;
  opened.session = 6;
  opened.incarnation = opened.seq = 1;
  ASSERT_TRUE(again.Replay(opened).ok());
  for (const CoreEntry& entry : ready.appends) ASSERT_TRUE(again.Replay(entry).ok());
  EXPECT_EQ(again.AppliedMeta().sessions, core_.AppliedMeta().sessions);
  EXPECT_EQ(again.AppliedMeta().forgotten, 1u);
}

// Its first push to this shard carries the open flag and no sequence before it, each time it is
// sent: nothing but the memory of having forgotten tells the repetition from the first.
TEST_F(SmallShardCoreTest, ARepetitionFromAForgottenSessionIsNotApplied) {
  constexpr int64_t kHour = 3'600'000'000'000;
  Activate(1);
  core_.SetNow(1);
  const auto push = [this](SessionId session, Incarnation incarnation) {
    session_ = session;
    incarnation_ = incarnation;
    CoreReady ready = Push(1, 0, true);
    for (const CoreReply& reply : FinishAndReply()) ready.replies.push_back(reply);
    return ready.replies.back().code;
  };
  EXPECT_EQ(push(5, 10), SegmentCode::kOk);
  EXPECT_EQ(push(6, 11), SegmentCode::kOk);
  core_.SetNow(1 + kHour);
  EXPECT_EQ(push(7, 12), SegmentCode::kOk) << "in the place of those that were silent";
  const Lsn before = core_.last_lsn();
  EXPECT_EQ(push(5, 10), SegmentCode::kFenced);
  EXPECT_EQ(push(6, 11), SegmentCode::kFenced);
  EXPECT_EQ(push(4, 9), SegmentCode::kFenced) << "may have been one of them";
  EXPECT_EQ(core_.last_lsn(), before);
  EXPECT_EQ(push(5, 13), SegmentCode::kOk) << "opened again";

  ShardCore again({.sessions_max = 2, .entries_max = 40});
  again.Recover(1, core_.AppliedMeta());
  EXPECT_EQ(again.AppliedMeta().forgotten, 11u) << "over a restart";
}

TEST_F(SmallShardCoreTest, ACutTailBringsAForgottenSessionBack) {
  Activate(1);
  core_.SetNow(1);
  for (session_ = 6; session_ <= 7; ++session_) Push(1, 0, true);
  FinishAndReply();
  core_.SetNow(3'600'000'000'001);
  session_ = 8;
  const Lsn first = Push(1, 0, true).appends[0].lsn;
  EXPECT_EQ(core_.session_count(), 1u) << "both were idle";
  EXPECT_EQ(core_.AppliedMeta().forgotten, 0u) << "the forget entries are not applied yet";
  core_.AppendFailed(first, TicketOf(first));
  EXPECT_EQ(core_.session_count(), 2u);
  core_.Resume();
  session_ = 6;
  EXPECT_EQ(Push(2, 1).appends.size(), 1u);
  EXPECT_EQ(core_.AppliedMeta().forgotten, 0u);
}

TEST_F(ShardCoreTest, ASessionThatIsNotGivenOutLeavesNoTrace) {
  Activate(1);
  core_.LearnGiven({7, 0});
  for (const auto& [session, incarnation] :
       {std::pair<SessionId, Incarnation>{5, ~Incarnation{0}}, {5, 8}, {8, 1}}) {
    session_ = session;
    incarnation_ = incarnation;
    const CoreReady ready = Push(1, 0, /*open=*/true);
    EXPECT_TRUE(ready.appends.empty());
    ASSERT_EQ(ready.replies.size(), 1u);
    EXPECT_EQ(ready.replies[0].code, SegmentCode::kUnavailable);
  }
  EXPECT_EQ(core_.session_count(), 0u);
  session_ = 5;
  incarnation_ = 7;
  EXPECT_EQ(Push(1, 0, true).appends.size(), 1u);
  core_.LearnGiven({8, 0});
  incarnation_ = 8;
  EXPECT_EQ(Push(2, 1, true).appends.size(), 1u);
}

}  // namespace shard_core_test
}  // namespace hotbed
