// What a primary keeps of its log for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shard/core_group.h"

namespace hotbed {
namespace {

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

class KeptTailTest : public ShardCoreTailTest {
 protected:
  KeptTailTest() : ShardCoreTailTest({.keep_tail = true}) {}
};

TEST_F(KeptTailTest, ACopyThatWasAwayForAShortWhileGoesOnFromTheLog) {
  Establish(1, {0, 1});
  PushAndSettle(0);
  Restart(1);
  Establish(2, {0});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 0u);
  Establish(3, {0}, {1});
  EXPECT_THAT(copies_[0].snapshots, IsEmpty());
  EXPECT_EQ(copies_[1].rows, copies_[0].rows);
  core(0).DropRetained(2);
  EXPECT_EQ(core(0).retained_lsn(), 2u);
}

TEST_F(KeptTailTest, WhatIsKeptInCaseIsNotNeeded) {
  Establish(1, {0, 1});
  for (int i = 0; i < 3; ++i) PushAndSettle(0);
  EXPECT_EQ(core(0).retained_lsn(), 0u);
  EXPECT_EQ(core(0).needed_lsn(), 3u) << "the follower has all of it";
  EXPECT_EQ(core(1).needed_lsn(), 3u);
  core(0).DropRetained(3);
  Establish(2, {0}, {2});
  ASSERT_THAT(copies_[0].snapshots, SizeIs(1));
  PushAndSettle(0);
  EXPECT_EQ(core(0).needed_lsn(), 4u) << "the copy has not begun";
  core(0).SnapshotTaken(copies_[2].member, 4);
  PushAndSettle(0);
  EXPECT_EQ(core(0).needed_lsn(), 4u) << "the copy under way lacks what came since";
}

}  // namespace
}  // namespace hotbed
