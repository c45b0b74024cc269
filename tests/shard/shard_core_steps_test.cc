// Staged pushes and commits in the core, rule by rule; what happens when they meet is for
// tests/sim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/shard/shard_core_fixture.h"

namespace hotbed {
namespace shard_core_steps_test {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t Seq(uint64_t step, uint64_t part = 1) { return step << kStepShift | part; }

class ShardCoreStepsTest : public ShardCoreTest {
 protected:
  CoreReady Stage(SessionId session, uint64_t seq, uint64_t prev, bool no_room = false,
                  PushToken token = 1) {
    CorePush push;
    push.epoch = core_.epoch();
    push.session = session;
    push.incarnation = 1;
    push.seq = seq;
    push.prev_seq = prev;
    push.open = prev == 0;
    push.staged = true;
    push.no_room = no_room;
    push.token = token;
    core_.Push(push);
    return Take();
  }
  CoreReady Commit(uint64_t step, PushToken token = 1) {
    core_.Commit({core_.epoch(), step, token});
    return Take();
  }
};

TEST_F(ShardCoreStepsTest, StagedAcknowledgedThenCommitted) {
  Activate(1);
  EXPECT_TRUE(Stage(5, Seq(1), 0).appends[0].staged);
  Stage(6, Seq(1), 0);
  Stage(5, Seq(1, 2), Seq(1));
  for (const CoreReply& reply : FinishAndReply()) EXPECT_EQ(reply.code, SegmentCode::kOk);
  EXPECT_EQ(core_.committed_step(), 0u);
  // The order of the sessions, each one's own parts in theirs.
  EXPECT_THAT(core_.StagedOf(1, {6, 5}), ElementsAre(2, 1, 3));
  EXPECT_THAT(core_.StagedOf(1, {5}), ElementsAre(1, 3));
  EXPECT_THAT(core_.StagedOf(2, {5, 6}), IsEmpty());
  const CoreReady ready = Commit(1, /*token=*/9);
  ASSERT_EQ(ready.appends.size(), 1u);
  EXPECT_EQ(ready.appends[0].kind, RecordKind::kStepCommit);
  EXPECT_EQ(ready.appends[0].session, 0u);
  EXPECT_THAT(core_.StagedOf(1, {6, 5}), ElementsAre(2, 1, 3)) << "until it is applied";
  const std::vector<CoreReply> replies = FinishAndReply();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].token, 9u);
  EXPECT_EQ(replies[0].code, SegmentCode::kOk);
  EXPECT_EQ(replies[0].lsn, 4u);
  EXPECT_THAT(core_.AppliedMeta().staged, IsEmpty());
}

TEST_F(ShardCoreStepsTest, ARepeatedCommitWaitsForTheFirst) {
  Activate(1);
  Stage(5, Seq(3), 0);
  FinishAndReply();
  EXPECT_EQ(Commit(3, 8).appends.size(), 1u);
  CoreReady again = Commit(3, 9);
  EXPECT_THAT(again.appends, IsEmpty());
  EXPECT_THAT(again.replies, IsEmpty()) << "in the log is not applied";
  EXPECT_EQ(FinishAndReply().size(), 2u);
  again = Commit(2, 10);
  ASSERT_EQ(again.replies.size(), 1u) << "of an earlier step";
  EXPECT_EQ(again.replies[0].code, SegmentCode::kOk);
  EXPECT_EQ(again.replies[0].lsn, 2u);
}

TEST_F(ShardCoreStepsTest, APushOfACommittedStepIsANoop) {
  Activate(1);
  Stage(5, Seq(4), 0);
  Commit(4);
  FinishAndReply();
  const CoreReady late = Stage(6, Seq(4), 0);
  ASSERT_EQ(late.appends.size(), 1u);
  EXPECT_EQ(late.appends[0].kind, RecordKind::kNoop);
  EXPECT_FALSE(late.appends[0].staged);
  EXPECT_EQ(FinishAndReply()[0].code, SegmentCode::kStepOver);
  Stage(6, Seq(5), Seq(4));
  EXPECT_EQ(FinishAndReply()[0].code, SegmentCode::kOk) << "the pipeline behind it goes on";
  EXPECT_THAT(core_.StagedOf(5, {6}), ElementsAre(4));
}

TEST_F(ShardCoreStepsTest, AFailedAppendTakesBackWhatItStagedAndCommitted) {
  Activate(1);
  Stage(5, Seq(1), 0);
  FinishAndReply();
  Stage(6, Seq(1), 0);
  Commit(1);
  EXPECT_EQ(core_.committed_step(), 1u);
  core_.AppendFailed(2, TicketOf(2));
  EXPECT_EQ(core_.committed_step(), 0u);
  EXPECT_THAT(core_.StagedOf(1, {5, 6}), ElementsAre(1));
}

TEST_F(ShardCoreStepsTest, NoRoomRefusesWhatIsNewOnly) {
  Activate(1);
  Stage(5, Seq(1), 0);
  FinishAndReply();
  CoreReady refused = Stage(5, Seq(1, 2), Seq(1), /*no_room=*/true);
  ASSERT_EQ(refused.replies.size(), 1u);
  EXPECT_EQ(refused.replies[0].code, SegmentCode::kResourceExhausted);
  refused = Stage(5, Seq(1), 0, /*no_room=*/true);
  ASSERT_EQ(refused.replies.size(), 1u) << "sent again: its memory is held already";
  EXPECT_EQ(refused.replies[0].code, SegmentCode::kOk);
}

TEST_F(ShardCoreStepsTest, MetaIsThatOfTheAppliedState) {
  Activate(1);
  Stage(5, Seq(1), 0);
  Commit(1);
  Stage(5, Seq(2), Seq(1));
  core_.Appended(3, TicketOf(3));
  Take();
  core_.Applied(1);
  ShardMeta meta = core_.AppliedMeta();
  EXPECT_EQ(meta.committed_step, 0u);
  ASSERT_EQ(meta.staged.size(), 1u);
  EXPECT_EQ(meta.staged[0].lsn, 1u);
  core_.Applied(2);
  core_.Applied(3);
  meta = core_.AppliedMeta();
  EXPECT_EQ(meta.committed_step, 1u);
  ASSERT_EQ(meta.staged.size(), 1u);
  EXPECT_EQ(meta.staged[0].lsn, 3u);

  meta.staged[0].payload = "rows";
  absl::StatusOr<ShardMeta> parsed = ShardMeta::Parse(meta.Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->staged[0].payload, "rows");
  ShardCore restored{ShardCoreOptions()};
  restored.Recover(1, *std::move(parsed));
  EXPECT_EQ(restored.committed_step(), 1u);
  EXPECT_THAT(restored.StagedOf(2, {5}), ElementsAre(3));
}

TEST_F(ShardCoreStepsTest, ReplayGivesTheSame) {
  CoreEntry staged;
  staged.staged = true;
  staged.open = true;
  staged.epoch = staged.lsn = 1;
  staged.session = 5;
  staged.incarnation = 1;
  staged.seq = Seq(7);
  ASSERT_TRUE(*core_.Replay(staged));
  staged.lsn = 2;
  staged.session = 6;
  staged.seq = Seq(8);
  ASSERT_TRUE(*core_.Replay(staged));
  EXPECT_THAT(core_.StagedOf(7, {5, 6}), ElementsAre(1));
  CoreEntry commit;
  commit.kind = RecordKind::kStepCommit;
  commit.epoch = 1;
  commit.lsn = 3;
  commit.seq = 7 << kStepShift;
  ASSERT_TRUE(*core_.Replay(commit));
  EXPECT_EQ(core_.committed_step(), 7u);
  EXPECT_THAT(core_.StagedOf(8, {6}), ElementsAre(2));
  EXPECT_EQ(core_.AppliedMeta().staged.size(), 1u);
  EXPECT_EQ(core_.session_count(), 2u) << "a commit is of no session";
}

TEST_F(ShardCoreStepsTest, CommitsAreFencedByEpoch) {
  Activate(2);
  core_.Commit({1, 5, 3});
  const CoreReady ready = Take();
  ASSERT_EQ(ready.replies.size(), 1u);
  EXPECT_EQ(ready.replies[0].code, SegmentCode::kWrongEpoch);
  EXPECT_THAT(ready.appends, IsEmpty());
}

TEST_F(ShardCoreStepsTest, AStepThatIsNotCommittedAtTheCoordinatorEndsNothing) {
  Activate(1);
  Stage(5, Seq(1), 0);
  FinishAndReply();
  core_.LearnGiven({5, 1});
  for (const uint64_t forged : {uint64_t{2}, (uint64_t{1} << 44) - 1}) {
    const CoreReady ready = Commit(forged);
    EXPECT_THAT(ready.appends, IsEmpty());
    ASSERT_EQ(ready.replies.size(), 1u);
    EXPECT_EQ(ready.replies[0].code, SegmentCode::kUnavailable);
  }
  EXPECT_EQ(Commit(1).appends.size(), 1u);
  FinishAndReply();
  EXPECT_EQ(core_.committed_step(), 1u);
  EXPECT_TRUE(Stage(5, Seq(2), Seq(1)).appends[0].staged);
}

}  // namespace shard_core_steps_test
}  // namespace hotbed
