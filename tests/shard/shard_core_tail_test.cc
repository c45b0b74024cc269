// The part of its log that a primary keeps for others, and the members that it does not hear from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shard/core_group.h"

namespace hotbed {
namespace shard_core_tail_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ShardCoreTailTest : public CoreGroup {
 protected:
  using CoreGroup::CoreGroup;
  void PushAndSettle(int i) {
    const PushToken token = Push(i);
    DeliverAll();
    EXPECT_EQ(Answer(i, token), SegmentCode::kOk);
  }
};

TEST_F(ShardCoreTailTest, AMemberThatAnswersNothingIsSilent) {
  Establish(1, {0, 1});
  PushAndSettle(0);
  for (int i = 0; i < 2 * Follower::kSilentTicks; ++i) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_THAT(core(0).SilentMembers(), IsEmpty());
  for (int i = 0; i < Follower::kSilentTicks; ++i) {
    EXPECT_THAT(core(0).SilentMembers(), IsEmpty());
    Tick(0);
    network_.clear();
  }
  EXPECT_THAT(core(0).SilentMembers(), ElementsAre(replicas_[1].member));
  Tick(0);
  DeliverAll();
  EXPECT_THAT(core(0).SilentMembers(), IsEmpty());
  // Nor is one of an epoch that is not active, before it had its time.
  Learn(0, Record(2, {0, 1}, {}, false));
  for (int i = 0; i < Follower::kSilentTicks; ++i) {
    EXPECT_THAT(core(0).SilentMembers(), IsEmpty());
    Tick(0);
    network_.clear();
  }
  EXPECT_THAT(core(0).SilentMembers(), ElementsAre(replicas_[1].member));
}

// A replica alone in an epoch that never became active keeps the entries that only it has logged:
// they are there for others when it is primary again.
TEST_F(ShardCoreTailTest, AnEpochAloneThatNeverWasActiveCostsNoneOfTheTail) {
  Establish(1, {0, 1});
  PushAndSettle(0);
  Push(0);
  network_.clear();  // in its own log only
  Learn(0, Record(2, {0}, {}, false));
  Tick(0);
  Establish(3, {1}, {0});
  EXPECT_EQ(core(0).last_lsn(), 2u);
  EXPECT_LE(core(0).retained_lsn(), core(0).commit_lsn());
  ASSERT_THAT(core(1).JoinReady(), ElementsAre(replicas_[0].member));
  Establish(4, {1, 0});
  Establish(5, {0, 1});
  EXPECT_TRUE(core(0).active());
  EXPECT_EQ(core(1).commit_lsn(), 2u);
  EXPECT_EQ(replicas_[0].rows, replicas_[1].rows);
}

class KeptTailTest : public ShardCoreTailTest {
 protected:
  KeptTailTest() : ShardCoreTailTest({.keep_tail = true}) {}
};

TEST_F(KeptTailTest, AReplicaThatWasAwayForAShortWhileGoesOnFromTheLog) {
  Establish(1, {0, 1});
  PushAndSettle(0);
  Restart(1);
  Establish(2, {0});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 0u);
  Establish(3, {0}, {1});
  EXPECT_THAT(replicas_[0].snapshots, IsEmpty());
  EXPECT_EQ(replicas_[1].rows, replicas_[0].rows);
  core(0).DropRetained(2);
  EXPECT_EQ(core(0).retained_lsn(), 2u);
}

// Pushes were in flight when 0 was told to stop, and 1 has them in no log. Until a push comes,
// nothing else would take them out of 0's.
TEST_F(KeptTailTest, APrimaryThatHandedOverWithPushesInFlightGoesOnFromTheLog) {
  Establish(1, {0, 1});
  const PushToken kept = Push(0);
  DeliverAll();
  Push(0, 6);
  Push(0, 7);
  DeliverAll(Any());
  Establish(2, {1, 0});
  EXPECT_EQ(core(0).last_lsn(), 2u) << "one entry of the new epoch replaced them";
  EXPECT_EQ(replicas_[0].entries.at(2).kind, RecordKind::kNoop);
  EXPECT_EQ(replicas_[0].entries.at(2).epoch, 2u);
  Establish(3, {1});
  Restart(0);
  const PushToken next = Push(1, 8);
  Establish(4, {1}, {0});
  EXPECT_THAT(replicas_[1].snapshots, IsEmpty());
  EXPECT_THAT(replicas_[0].rows, ElementsAre(kept, 0, next));
  EXPECT_THAT(core(1).JoinReady(), ElementsAre(replicas_[0].member));
}

TEST_F(KeptTailTest, ALogThatIsNoLongerIsLeftAlone) {
  Establish(1, {0, 1});
  Push(0);
  DeliverAll(To(0));  // 1 has it, 0 does not know
  Establish(2, {1, 0});
  EXPECT_EQ(core(0).last_lsn(), 1u);
  EXPECT_EQ(core(1).commit_lsn(), 1u);
}

// It could not take the entry, and the epoch would never be active.
TEST_F(KeptTailTest, NobodyWaitsForAFullDiskToEndItsLongerLog) {
  Establish(1, {0, 1});
  Push(0);
  replicas_[0].hold_log = true;
  Push(0, 6);
  DeliverAll(Any());
  const CoreEntry refused = replicas_[0].appending.back();
  replicas_[0].appending.clear();
  core(0).AppendFailed(refused.lsn, refused.ticket);
  replicas_[0].entries.erase(refused.lsn);
  Drain(0);
  ASSERT_EQ(core(0).last_lsn(), 1u);
  Establish(2, {1, 0});
  EXPECT_EQ(core(1).last_lsn(), 0u);
  EXPECT_TRUE(core(1).active());
}

TEST_F(KeptTailTest, WhatIsKeptInCaseIsNotNeeded) {
  Establish(1, {0, 1});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 0u);
  EXPECT_EQ(core(0).needed_lsn(), 3u) << "the follower has all of it";
  EXPECT_EQ(core(1).needed_lsn(), 3u);
  core(0).DropRetained(3);
  Establish(2, {0}, {2});
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(1));
  PushAndSettle(0);
  EXPECT_EQ(core(0).needed_lsn(), 4u) << "the transfer has not begun";
  core(0).SnapshotTaken(replicas_[2].member, 4);
  PushAndSettle(0);
  EXPECT_EQ(core(0).needed_lsn(), 4u) << "the transfer in progress lacks the entries since";
}

}  // namespace shard_core_tail_test
}  // namespace hotbed
