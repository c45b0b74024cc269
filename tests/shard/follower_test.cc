// One follower's states, by the messages that its primary sends it. How several replicas agree is
// shown by shard_core_followers_test.cc and tests/sim.
#include "server/protocol/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace hotbed {
namespace follower_test {

using testing::IsEmpty;
using testing::SizeIs;

constexpr Member kPeer{2, 20};

class FollowerTest : public testing::Test {
 protected:
  FollowerTest() { Log(10); }

  // The primary's log grows to `last`, and holds it.
  void Log(Lsn last) {
    while (log_.last() < last) log_.Append(CoreEntry(), 1);
    log_.Hold(last, log_.At(last).entry.ticket);
  }
  Follower::Primary Primary() { return {log_, 1, retained_, log_.commit(), true, sends_}; }
  std::vector<CoreSend> Pump() {
    follower_.Pump(Primary());
    return Sent();
  }
  std::vector<CoreSend> Sent() {
    EXPECT_EQ(follower_.BrokenInvariant(log_), "");
    return std::exchange(sends_, {});
  }
  std::vector<CoreSend> Tick() {
    follower_.Tick(Primary(), /*joins=*/true);
    return Sent();
  }
  bool Ok(Lsn lsn, Lsn applied = 0) {
    return follower_.OnReply(Primary(), {1, true, false, lsn, lsn, applied});
  }
  void Refuse(Lsn prev_lsn, Lsn hint, bool needs_snapshot = false) {
    EXPECT_FALSE(follower_.OnReply(Primary(), {1, false, needs_snapshot, hint, prev_lsn}));
  }

  LogTail log_;
  Lsn retained_ = 0;
  std::vector<CoreSend> sends_;
  Follower follower_{kPeer, /*acknowledges=*/false, /*held=*/10};
};

TEST_F(FollowerTest, IsAskedOnceThenStreams) {
  const std::vector<CoreSend> probe = Pump();
  ASSERT_THAT(probe, SizeIs(1));
  EXPECT_EQ(probe[0].prev_lsn, 10u);
  EXPECT_EQ(probe[0].last_lsn, 10u);
  EXPECT_THAT(Pump(), IsEmpty()) << "it has not answered";
  EXPECT_EQ(follower_.acknowledged(), 0u);
  EXPECT_TRUE(Ok(10));
  EXPECT_TRUE(follower_.Holds(10));
  Log(12);
  const std::vector<CoreSend> entries = Pump();
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].prev_lsn, 10u);
  EXPECT_EQ(entries[0].last_lsn, 12u);
}

TEST_F(FollowerTest, AFewAppendsAreInFlightAndTheRestWaits) {
  Pump();
  Ok(10);
  for (Lsn last = 11; last <= 14; ++last) {
    Log(last);
    EXPECT_THAT(Pump(), SizeIs(1));
  }
  Log(20);
  EXPECT_THAT(Pump(), IsEmpty());
  Ok(11);
  const std::vector<CoreSend> rest = Pump();
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_EQ(rest[0].prev_lsn, 14u);
  EXPECT_EQ(rest[0].last_lsn, 20u);
}

TEST_F(FollowerTest, AHintIsFollowedDownToWhatIsRetained) {
  retained_ = 4;
  Pump();
  Refuse(10, 6);
  const std::vector<CoreSend> again = Sent();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].prev_lsn, 6u);
  Refuse(6, 2);
  EXPECT_EQ(Sent().at(0).prev_lsn, 4u);
  Refuse(4, 2);
  const std::vector<CoreSend> snapshot = Sent();
  ASSERT_THAT(snapshot, SizeIs(1));
  EXPECT_EQ(snapshot[0].kind, CoreSend::Kind::kSnapshot);
  EXPECT_EQ(snapshot[0].last_lsn, 4u);
}

TEST_F(FollowerTest, NothingIsSentDuringASnapshotTransfer) {
  Pump();
  Refuse(10, 0, /*needs_snapshot=*/true);
  Sent();
  EXPECT_EQ(follower_.NeededLsn(retained_, log_.applied()), 0u) << "it has not begun";
  EXPECT_TRUE(follower_.SnapshotTaken(8));
  EXPECT_EQ(follower_.NeededLsn(retained_, log_.applied()), 8u);
  EXPECT_THAT(Pump(), IsEmpty());
  EXPECT_THAT(Tick(), IsEmpty());
  EXPECT_FALSE(Ok(10)) << "of before the transfer";
  follower_.SnapshotDone(Primary(), 8, /*installed=*/true);
  EXPECT_EQ(Sent().at(0).prev_lsn, 8u);
  EXPECT_FALSE(Ok(7)) << "older than what was installed";
  EXPECT_TRUE(Ok(10));
}

TEST_F(FollowerTest, AMemberGetsNoSnapshot) {
  Follower member(kPeer, /*acknowledges=*/true, 10);
  member.OnReply(Primary(), {1, false, /*needs_snapshot=*/true, 0, 10});
  for (const CoreSend& send : Sent()) EXPECT_NE(send.kind, CoreSend::Kind::kSnapshot);
  EXPECT_FALSE(member.SnapshotTaken(10));
}

TEST_F(FollowerTest, SilenceIsCountedUntilItAnswers) {
  Pump();
  for (int i = 0; i < Follower::kSilentTicks; ++i) {
    EXPECT_FALSE(follower_.silent());
    EXPECT_THAT(Tick(), SizeIs(1)) << "asked again";
  }
  EXPECT_TRUE(follower_.silent());
  Ok(10);
  EXPECT_FALSE(follower_.silent());
}

TEST_F(FollowerTest, JoinsOnceItsRowsHaveNearlyCaughtUp) {
  Log(200);
  while (log_.commit() < 200) log_.CommitNext();
  Pump();
  Ok(10);
  Pump();
  Ok(200, /*applied=*/100);
  follower_.JoinIfCaughtUp(log_.commit());
  EXPECT_FALSE(follower_.acknowledges()) << "100 entries are not applied";
  Ok(200, /*applied=*/150);
  follower_.JoinIfCaughtUp(log_.commit());
  EXPECT_TRUE(follower_.acknowledges());
}

TEST_F(FollowerTest, AReplicaThatIsLostIsAskedByTheNextTick) {
  Pump();
  Ok(10);
  follower_.OnLost(log_);
  EXPECT_THAT(Pump(), IsEmpty()) << "a peer that refuses connections is not asked in a loop";
  EXPECT_THAT(Tick(), SizeIs(1));
}

}  // namespace follower_test
}  // namespace hotbed
