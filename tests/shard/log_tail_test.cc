// The end of a log: positions that advance in order, and a cut that leaves no trace.
#include "server/protocol/log_tail.h"

#include <gtest/gtest.h>

#include <string>

namespace hotbed {
namespace log_tail_test {

class LogTailTest : public testing::Test {
 protected:
  // A push of `session` with `seq`; its LSN.
  Lsn Append(Epoch epoch, uint64_t seq, SessionId session = 5) {
    CoreEntry entry;
    entry.session = session;
    entry.incarnation = 1;
    entry.seq = seq;
    const LogTail::Slot& slot = tail_.Append(entry, epoch);
    EXPECT_EQ(tail_.BrokenInvariant(), "");
    return slot.entry.lsn;
  }
  bool Hold(Lsn lsn) { return tail_.Hold(lsn, tail_.At(lsn).entry.ticket); }
  uint64_t LastSeq(SessionId session) {
    const Session* const found = tail_.state().sessions().Find(session);
    return found == nullptr ? 0 : found->last_seq;
  }

  LogTail tail_;
};

TEST_F(LogTailTest, AnEntryIsHeldThenCommittedThenApplied) {
  EXPECT_EQ(Append(1, 7), 1u);
  EXPECT_EQ(Append(1, 8), 2u);
  EXPECT_EQ(tail_.last(), 2u);
  EXPECT_EQ(tail_.held(), 0u);
  EXPECT_TRUE(Hold(2));
  EXPECT_FALSE(Hold(1)) << "known already";
  EXPECT_EQ(tail_.held(), 2u);
  EXPECT_EQ(tail_.CommitNext().lsn, 1u);
  EXPECT_EQ(tail_.Apply(1).entry.seq, 7u);
  EXPECT_EQ(tail_.applied(), 1u);
  EXPECT_EQ(tail_.unapplied(), 1u);
  EXPECT_EQ(tail_.AppliedSeq(5), 7u);
  EXPECT_EQ(LastSeq(5), 8u);
  EXPECT_EQ(tail_.BrokenInvariant(), "");
}

// Whoever has read up to an entry knows by its epoch whether the shard goes on from there.
TEST_F(LogTailTest, KnowsTheEpochsOfAppliedEntriesAlsoAfterARestart) {
  constexpr Lsn kEntries = 4 * kHistoryRunsMax;
  for (Lsn lsn = 1; lsn <= kEntries; ++lsn) {
    EXPECT_EQ(tail_.AppliedEpochAt(lsn), 0u) << "not applied yet";
    Append(1 + lsn / 2, lsn);
    Hold(lsn);
    tail_.CommitNext();
    tail_.Apply(lsn);
    EXPECT_EQ(tail_.AppliedEpochAt(lsn), 1 + lsn / 2);
  }
  const absl::StatusOr<ShardMeta> meta = ShardMeta::Parse(tail_.AppliedMeta().Serialize());
  ASSERT_TRUE(meta.ok()) << meta.status();
  LogTail again;
  again.Recover(*meta, /*installed=*/false);
  const Lsn first_known = kEntries - 2 * (kHistoryRunsMax - 1);
  for (Lsn lsn = 1; lsn <= kEntries; ++lsn) {
    EXPECT_EQ(tail_.AppliedEpochAt(lsn), lsn < first_known ? 0 : 1 + lsn / 2);
    EXPECT_EQ(again.AppliedEpochAt(lsn), tail_.AppliedEpochAt(lsn));
  }
  // The end of the log is lost, and its LSNs are not used again.
  again.SkipTo(kEntries + 5);
  EXPECT_EQ(again.AppliedEpochAt(kEntries + 3), 0u);
  EXPECT_EQ(again.AppliedEpochAt(kEntries), 1 + kEntries / 2);
}

TEST_F(LogTailTest, ACutLeavesTheStateAsBefore) {
  Append(1, 7);
  Append(1, 8);
  Append(2, 1, /*session=*/6);
  const uint64_t ticket = tail_.At(2).entry.ticket;
  EXPECT_EQ(tail_.CutLast().entry.lsn, 3u);
  EXPECT_EQ(tail_.CutLast().entry.lsn, 2u);
  EXPECT_EQ(tail_.last(), 1u);
  EXPECT_EQ(LastSeq(5), 7u);
  EXPECT_EQ(tail_.state().sessions().Find(6), nullptr);
  EXPECT_EQ(tail_.last_epoch(), 1u);
  EXPECT_EQ(Append(2, 9), 2u);
  EXPECT_FALSE(tail_.Hold(2, ticket)) << "of the entry that was cut";
  EXPECT_FALSE(tail_.Awaits(2, ticket));
  EXPECT_TRUE(Hold(2));
}

TEST_F(LogTailTest, TheRingGrowsAndKeepsItsEntries) {
  for (uint64_t seq = 1; seq <= 100; ++seq) Append(1, seq);
  for (Lsn lsn = 1; lsn <= 100; ++lsn) EXPECT_EQ(tail_.At(lsn).entry.seq, lsn);
  EXPECT_EQ(tail_.AppliedMeta().sessions.size(), 0u) << "nothing is applied";
}

TEST_F(LogTailTest, WhatWasSkippedBelongsToTheEpochThatAdoptsIt) {
  tail_.SkipTo(10);
  EXPECT_EQ(tail_.EpochAt(10), 0u);
  tail_.AdoptUnknown(3);
  EXPECT_EQ(tail_.EpochAt(10), 3u);
  tail_.AdoptUnknown(4);
  EXPECT_EQ(tail_.EpochAt(10), 3u);
  EXPECT_EQ(Append(4, 1), 11u);
}

TEST_F(LogTailTest, LsnsThatWereSkippedMakeTheLogNoLonger) {
  EXPECT_EQ(tail_.end(), (LogEnd{0, 0}));
  Append(2, 1);
  EXPECT_EQ(tail_.end(), (LogEnd{0, 0})) << "the log has not completed it";
  Hold(1);
  EXPECT_EQ(tail_.end(), (LogEnd{2, 1}));
  tail_.SkipTo(10);
  tail_.AdoptUnknown(5);
  EXPECT_EQ(tail_.end(), (LogEnd{2, 1}));
  Append(5, 2);
  EXPECT_EQ(tail_.end(), (LogEnd{2, 1}));
  Hold(11);
  EXPECT_EQ(tail_.end(), (LogEnd{5, 11}));
}

using LogTailDeathTest = LogTailTest;

TEST_F(LogTailDeathTest, PositionsAdvanceInOrderOnly) {
  Append(1, 7);
  Append(1, 8);
  EXPECT_DEATH(tail_.CommitNext(), "the log holds 0");
  ASSERT_TRUE(Hold(2));
  tail_.CommitNext();
  EXPECT_DEATH(tail_.Apply(2), "applied 2 after 0, commit 1");
  tail_.CommitNext();
  EXPECT_DEATH(tail_.CutLast(), "entry 2 is cut, and committed is 2");
}

TEST_F(LogTailTest, AnEntryThatIsOverwrittenBreaksAnInvariant) {
  Append(1, 7);
  Append(2, 8);
  tail_.At(2).entry.epoch = 1;
  EXPECT_NE(tail_.BrokenInvariant(), "") << "its run is of epoch 2";
  tail_.At(2).entry.epoch = 2;
  EXPECT_EQ(tail_.BrokenInvariant(), "");
  tail_.At(1).entry.epoch = 3;
  EXPECT_NE(tail_.BrokenInvariant(), "") << "epochs never fall along the log";
}

}  // namespace log_tail_test
}  // namespace hotbed
