// Learners, joining, snapshots and what a primary keeps for its followers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/protocol/shard_core.h"
#include "tests/shard/core_group.h"
#include "tests/shard/shard_core_fixture.h"

namespace hotbed {
namespace shard_core_followers_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ShardCoreFollowersTest : public CoreGroup {
 protected:
  using CoreGroup::CoreGroup;

  PushToken PushAndSettle(int i, SessionId session = 5) {
    const PushToken token = Push(i, session);
    DeliverAll();
    EXPECT_EQ(Answer(i, token), SegmentCode::kOk);
    return token;
  }
  void AddLearner(int primary, Epoch epoch, const std::vector<int>& members, int learner) {
    const ShardRecord record = Record(epoch, members, {learner}, true);
    Learn(primary, record);
    Learn(learner, record);
    DeliverAll();
  }
};

// --- joining (A2)

TEST_F(ShardCoreFollowersTest, ALearnerIsWaitedForBeforeAnybodyIsTold) {
  Establish(1, {0});
  PushAndSettle(0);
  AddLearner(0, 1, {0}, 1);
  SendSnapshot(0, 1);
  EXPECT_THAT(core(0).JoinReady(), IsEmpty()) << "it has not said that it has everything";
  DeliverAll();
  EXPECT_THAT(core(0).JoinReady(), ElementsAre(replicas_[1].member));
  EXPECT_EQ(core(0).backup_count(), 1u);
  const PushToken token = Push(0);
  DeliverAll(To(1));
  EXPECT_FALSE(Answered(0, token)) << "it may be a member of the next epoch";
}

TEST_F(ShardCoreFollowersTest, AJoinerLeavesTheSetOnlyByAnotherEpoch) {
  Establish(1, {0});
  AddLearner(0, 1, {0}, 1);
  ASSERT_THAT(core(0).JoinReady(), SizeIs(1));
  Learn(0, Record(1, {0}, {}, true));
  const PushToken token = Push(0);
  DeliverAll(To(1));
  EXPECT_FALSE(Answered(0, token));
  EXPECT_THAT(core(0).JoinReady(), IsEmpty()) << "the record does not name it any more";
  core(0).OnPeerLost(replicas_[1].member);
  Tick(0);
  DeliverAll(To(1));
  EXPECT_FALSE(Answered(0, token));
  Establish(2, {0});
  EXPECT_EQ(Answer(0, token), SegmentCode::kWrongEpoch);
  EXPECT_THAT(replicas_[0].rows, ElementsAre(token));
  EXPECT_EQ(Answer(0, PushAndSettle(0)), SegmentCode::kOk);
}

TEST_F(ShardCoreFollowersTest, ALearnerThatIsCountedOnAndAnswersNothingIsSilent) {
  Establish(1, {0});
  PushAndSettle(0);
  AddLearner(0, 1, {0}, 1);
  const auto be_silent = [&] {
    for (int i = 0; i < 2 * Follower::kSilentTicks; ++i) {
      Tick(0);
      network_.clear();
    }
  };
  be_silent();
  EXPECT_THAT(core(0).SilentMembers(), IsEmpty()) << "its rows are on their way";
  SendSnapshot(0, 1);
  DeliverAll();
  ASSERT_THAT(core(0).JoinReady(), ElementsAre(replicas_[1].member));
  be_silent();
  EXPECT_THAT(core(0).SilentMembers(), ElementsAre(replicas_[1].member));
}

TEST_F(ShardCoreFollowersTest, AReaderFollowsAndIsNeverWaitedFor) {
  Establish(1, {0});
  ShardRecord record = Record(1, {0}, {1}, true);
  record.readers = {replicas_[1].member.server};
  Learn(0, record);
  Learn(1, record);
  DeliverAll();
  PushAndSettle(0);
  EXPECT_EQ(core(1).applied_lsn(), 1u);
  EXPECT_TRUE(core(1).serves_reads());
  EXPECT_THAT(core(0).JoinReady(), IsEmpty());
  PushToken token = Push(0);
  DeliverAll(To(1));
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk);
  Tick(0);
  Tick(0);
  DeliverAll();
  Learn(0, Record(1, {0}, {1}, true));  // it is to be a member after all
  EXPECT_THAT(core(0).JoinReady(), SizeIs(1));
  token = Push(0);
  DeliverAll(To(1));
  EXPECT_FALSE(Answered(0, token));
}

TEST_F(ShardCoreFollowersTest, ALearnerThatIsBehindIsNotWaitedFor) {
  Establish(1, {0});
  Learn(0, Record(1, {0}, {1}, true));
  const PushToken token = Push(0);
  DeliverAll(To(1));
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk);
}

// --- moves

TEST_F(ShardCoreFollowersTest, AMoveLosesNothingAndKeepsSessions) {
  Establish(1, {0});
  std::vector<PushToken> rows;
  for (int i = 0; i < 5; ++i) rows.push_back(PushAndSettle(0));
  AddLearner(0, 1, {0}, 1);
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(1));
  rows.push_back(PushAndSettle(0));  // pushes continue meanwhile
  SendSnapshot(0, 1);
  rows.push_back(PushAndSettle(0));
  ASSERT_THAT(core(0).JoinReady(), SizeIs(1));
  Establish(2, {0, 1});
  rows.push_back(PushAndSettle(0));
  Establish(3, {1});
  seqs_[5] -= 1;
  const PushToken again = PushAndSettle(1);  // resent by its client: known here
  rows.push_back(PushAndSettle(1));
  EXPECT_EQ(replicas_[1].rows, rows);
  EXPECT_NE(again, rows.back());
  EXPECT_EQ(core(0).CheckEpoch(3), SegmentCode::kWrongEpoch);
}

// --- snapshots

TEST_F(ShardCoreFollowersTest, EntriesAboveTheSnapshotAreKept) {
  Establish(1, {0});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 3u) << "nobody needs anything";
  AddLearner(0, 1, {0}, 1);
  EXPECT_EQ(core(0).retained_lsn(), 3u);
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 3u);
  EXPECT_EQ(core(0).needed_lsn(), 6u) << "the write-back is yet to come, and will be of LSN 6";
  core(0).SnapshotTaken(replicas_[1].member, 6);
  EXPECT_EQ(core(0).retained_lsn(), 6u);
  PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 6u);
}

TEST_F(ShardCoreFollowersTest, ASnapshotWaitsForWhatWasLoggedBeforeAnybodyFollowed) {
  Establish(1, {0});
  replicas_[0].hold_log = true;
  Push(0);
  AddLearner(0, 1, {0}, 1);
  FinishLog(0);
  DeliverAll();
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(1));
  EXPECT_EQ(replicas_[0].snapshots[0].last_lsn, 1u);
  SendSnapshot(0, 1);
  DeliverAll();
  EXPECT_EQ(core(1).last_lsn(), 1u);
}

TEST_F(ShardCoreFollowersTest, AnAbandonedCopyBeginsAnew) {
  Establish(1, {0});
  PushAndSettle(0);
  AddLearner(0, 1, {0}, 1);
  core(0).SnapshotDone(replicas_[1].member, 0, false);
  Drain(0);
  EXPECT_TRUE(network_.empty()) << "not at once: a transfer that fails would fail without end";
  Tick(0);
  DeliverAll();
  EXPECT_THAT(replicas_[0].snapshots, SizeIs(2));
}

// An answer from before a snapshot transfer says nothing of the state that the transfer replaces.
TEST_F(ShardCoreFollowersTest, AnswersFromBeforeASnapshotDoNotCount) {
  Establish(1, {0});
  AddLearner(0, 1, {0}, 1);
  Establish(2, {0}, {1});
  ASSERT_THAT(core(0).JoinReady(), SizeIs(1));
  Establish(3, {0});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  AddLearner(0, 3, {0}, 1);
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(1));
  const CoreAppendReply late = {3, true, false, 2, 2};
  core(0).OnAppendReply(replicas_[1].member, late);
  Drain(0);
  core(0).SnapshotTaken(replicas_[1].member, 3);
  core(0).SnapshotDone(replicas_[1].member, 3, false);  // half of the rows are there, and wiped
  Drain(0);
  Start(1, 3, ShardMeta());
  replicas_[1].entries.clear();
  core(0).OnAppendReply(replicas_[1].member, late);
  Drain(0);
  DeliverAll();
  EXPECT_THAT(core(0).JoinReady(), IsEmpty());
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(2));
  SendSnapshot(0, 1);
  core(0).OnAppendReply(replicas_[1].member, late);
  DeliverAll();
  EXPECT_THAT(core(0).JoinReady(), SizeIs(1));
  EXPECT_EQ(replicas_[1].rows, replicas_[0].rows);
}

TEST_F(ShardCoreFollowersTest, WithoutMemoryAMemberLosesNothing) {
  Establish(1, {0, 1});
  PushAndSettle(0);
  for (int i = 0; i < 3; ++i) Push(0);
  DeliverAll(To(1));
  core(0).DropRetained(~Lsn{0});
  EXPECT_EQ(core(0).retained_lsn(), 1u) << "what is not committed is never dropped";
  for (int i = 0; i < 4; ++i) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_THAT(replicas_[0].snapshots, IsEmpty());
  EXPECT_EQ(core(1).last_lsn(), 4u);
}

TEST_F(ShardCoreFollowersTest, DroppedEntriesMeanASnapshotForALearner) {
  Establish(1, {0});
  AddLearner(0, 1, {0}, 1);
  Establish(2, {0}, {2});
  ASSERT_THAT(core(0).JoinReady(), SizeIs(1));
  Establish(3, {0});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  const ShardRecord record = Record(3, {0}, {2}, true);
  Learn(0, record);
  DeliverAll(Any());
  for (int i = 0; i < 3; ++i) Push(0);
  EXPECT_EQ(core(0).retained_lsn(), 3u);
  core(0).DropRetained(5);
  Learn(2, record);
  Tick(0);
  DeliverAll();
  EXPECT_THAT(replicas_[0].snapshots, SizeIs(1));
}

TEST_F(ShardCoreFollowersTest, ALateSnapshotNeverTakesAnythingBack) {
  Establish(1, {0});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  EXPECT_FALSE(core(1).MayInstall(1, 3)) << "before it promised the epoch";
  AddLearner(0, 1, {0}, 1);
  EXPECT_TRUE(core(1).MayInstall(1, 3));
  SendSnapshot(0, 1);
  DeliverAll();
  EXPECT_FALSE(core(1).MayInstall(1, 3)) << "the same once more";
  PushAndSettle(0);
  EXPECT_FALSE(core(1).MayInstall(1, 3));
  EXPECT_FALSE(core(1).MayInstall(1, 4)) << "held already";
  EXPECT_TRUE(core(1).MayInstall(1, 5));
  EXPECT_FALSE(core(1).MayInstall(0, 5));
  Establish(2, {0, 1});
  EXPECT_FALSE(core(1).MayInstall(2, 99)) << "a member is counted on";
  EXPECT_FALSE(core(1).MayInstall(1, 99)) << "of an epoch that is over";
}

TEST_F(ShardCoreFollowersTest, ATransferInFlightOutlivesAnEpochOfTheSamePrimary) {
  Establish(1, {0});
  PushAndSettle(0);
  AddLearner(0, 1, {0}, 1);
  ASSERT_TRUE(core(1).MayInstall(1, 1));
  core(0).SnapshotTaken(replicas_[1].member, 1);
  Establish(2, {0}, {1});
  PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 1u);
  EXPECT_THAT(replicas_[0].snapshots, SizeIs(1)) << "no second one";
  SendSnapshot(0, 1, /*began=*/true);
  DeliverAll();
  EXPECT_EQ(core(1).last_lsn(), 2u);
}

// A member that says it cannot follow is asked again, and never overwritten.
TEST_F(ShardCoreFollowersTest, AMemberIsNeverSentASnapshot) {
  Establish(1, {0, 1});
  PushAndSettle(0);
  core(0).OnAppendReply(replicas_[1].member, {1, false, true, 0, 1});
  core(0).OnAppendReply(replicas_[1].member, {1, false, false, 0, 0});
  Drain(0);
  DeliverAll();
  EXPECT_THAT(replicas_[0].snapshots, IsEmpty());
  Tick(0);
  PushAndSettle(0);
}

// --- lost peers, commits, reads

TEST_F(ShardCoreFollowersTest, ALostPeerIsAskedByTheNextTick) {
  Establish(1, {0, 1});
  const PushToken token = Push(0);
  DeliverAll(To(1));
  core(0).OnPeerLost(replicas_[1].member);
  Drain(0);
  EXPECT_TRUE(network_.empty()) << "a peer that refuses connections would be asked without end";
  Tick(0);
  EXPECT_THAT(network_, SizeIs(1));
  DeliverAll();
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk);
}

TEST_F(ShardCoreFollowersTest, AnswersOfOtherEpochsAndStrangersChangeNothing) {
  Establish(1, {0, 1});
  const PushToken token = Push(0);
  DeliverAll(To(1));
  core(0).OnAppendReply(replicas_[1].member, {2, true, false, 1, 0});
  core(0).OnAppendReply(replicas_[2].member, {1, true, false, 1, 0});
  core(0).OnAppendReply({2, 11}, {1, true, false, 1, 0});
  Drain(0);
  EXPECT_FALSE(Answered(0, token));
}

TEST_F(ShardCoreFollowersTest, AnIdleFollowerHearsThatItsPrimaryLives) {
  Establish(1, {0, 1});
  int sent = 0;
  for (int i = 0; i < 10; ++i) {
    Tick(0);
    sent += static_cast<int>(network_.size());
    DeliverAll();
  }
  EXPECT_GE(sent, 3);
  EXPECT_LE(sent, 10);
}

TEST_F(ShardCoreFollowersTest, ReadsAreServedByWhomThePrimaryOfThisEpochHasToldEverything) {
  Establish(1, {0, 1});
  EXPECT_TRUE(core(1).serves_reads());
  EXPECT_FALSE(core(0).serves_reads()) << "the primary has rules of its own";
  EXPECT_FALSE(core(2).serves_reads());
  PushAndSettle(0);
  EXPECT_TRUE(core(1).serves_reads());
  EXPECT_EQ(core(1).leader_commit(), 1u);
  Learn(1, Record(2, {0, 1}, {}, false));
  EXPECT_FALSE(core(1).serves_reads()) << "not heard in this epoch";
  Establish(3, {0});
  Learn(1, Record(3, {0}, {}, true));
  EXPECT_FALSE(core(1).serves_reads());
}

class SmallRingTest : public ShardCoreFollowersTest {
 protected:
  SmallRingTest() : ShardCoreFollowersTest({.entries_max = 8}) {}
};

TEST_F(SmallRingTest, AFollowerTakesNoMoreThanItMayHold) {
  Establish(1, {0, 1});
  replicas_[1].hold_log = true;
  for (int i = 0; i < 8; ++i) Push(0);
  EXPECT_EQ(Answer(0, Push(0)), SegmentCode::kResourceExhausted);
  DeliverAll();
  ASSERT_EQ(core(1).last_lsn(), 4u);
  std::vector<CoreEntry> entries;
  for (Lsn lsn = 5; lsn <= 12; ++lsn) {
    CoreEntry& entry = entries.emplace_back();
    entry.lsn = lsn;
    entry.epoch = 1;
    entry.session = 5;
    entry.incarnation = 1;
    entry.seq = lsn;
  }
  core(1).OnAppend(replicas_[0].member, {1, 1, 4, 0, entries});
  Drain(1);
  EXPECT_EQ(core(1).last_lsn(), 8u);
  FinishLog(1);
  DeliverAll();
  EXPECT_EQ(core(0).applied_lsn(), 8u);
}

// The shard's own log fails while a snapshot of an entry that it holds is asked for.
TEST_F(ShardCoreTest, ASnapshotThatWasAskedForBeforeTheTailWasCutIsContinued) {
  constexpr Member kLearner{2, 20};
  Activate(1);
  Push(1, 0, /*open=*/true);
  FinishAndReply();
  Push(2, 1);
  ShardRecord record = Record(1, 4, true);
  record.learners = {kLearner};
  core_.LearnRecord(record);
  Take();
  core_.OnAppendReply(kLearner, {.epoch = 1, .ok = false, .needs_snapshot = true, .prev_lsn = 2});
  const std::vector<CoreSend> asked = Take().sends;
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].kind, CoreSend::Kind::kSnapshot);
  EXPECT_EQ(asked[0].last_lsn, 2u);
  core_.AppendFailed(2, TicketOf(2));
  core_.Resume();
  core_.SnapshotTaken(kLearner, 1);
  core_.SnapshotDone(kLearner, 1, /*installed=*/true);
  Take();
  core_.OnAppendReply(kLearner, {.epoch = 1, .ok = true, .lsn = 1, .prev_lsn = 1, .applied = 1});
  Take();
  EXPECT_THAT(core_.JoinReady(), ElementsAre(kLearner));
  Push(2, 1);
  core_.Appended(2, TicketOf(2));
  const std::vector<CoreSend> sent = Take().sends;
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].kind, CoreSend::Kind::kAppend);
  EXPECT_EQ(sent[0].last_lsn, 2u);
}

}  // namespace shard_core_followers_test
}  // namespace hotbed
