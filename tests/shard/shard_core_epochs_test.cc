// Promises, fail-over, activation and restarts in a group of cores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/protocol/shard_core.h"
#include "tests/shard/core_group.h"

namespace hotbed {
namespace shard_core_epochs_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ShardCoreEpochsTest : public CoreGroup {
 protected:
  // What was replied, last.
  CoreAppendReply LastReply() const {
    CoreAppendReply reply;
    for (const Message& message : network_) {
      if (message.send.kind == CoreSend::Kind::kAppendReply) reply = message.send.reply;
    }
    return reply;
  }
};

// --- promises

TEST_F(ShardCoreEpochsTest, NothingOfAHigherEpochIsTakenBeforeThePromise) {
  replicas_[1].hold_promise = true;
  hear_records_ = false;
  const ShardRecord record = Record(1, {0, 1}, {}, false);
  Learn(0, record);
  DeliverAll();
  EXPECT_EQ(replicas_[1].promise, 0u) << "the append alone could name any epoch";
  Learn(1, record);
  EXPECT_EQ(replicas_[1].promise, 1u);
  EXPECT_FALSE(core(0).wants_activation());
  EXPECT_TRUE(network_.empty()) << "no answer either";
  FinishPromise(1);
  DeliverAll();
  EXPECT_TRUE(core(0).wants_activation()) << "the follower spoke first: nobody waited for a tick";
}

TEST_F(ShardCoreEpochsTest, ALowerEpochIsNeverTakenAgain) {
  Establish(1, {0, 1});
  Push(0);
  const auto late = DeliverAll(To(1));
  Establish(2, {1, 2});
  for (const Message& message : late) Deliver(message);
  EXPECT_TRUE(network_.empty());
  EXPECT_EQ(core(1).last_lsn(), 0u);
  Learn(1, Record(1, {0, 1}, {}, true));
  EXPECT_EQ(core(1).epoch(), 2u);
}

// A forged append: nothing is promised, and nothing of it is remembered.
TEST_F(ShardCoreEpochsTest, AnEpochThatNoRecordNamesIsNotTaken) {
  Establish(1, {0, 1});
  CoreAppend append;
  append.epoch = ~Epoch{0};
  append.commit = ~Lsn{0};
  for (const int i : {0, 1}) {
    core(i).OnAppend(replicas_[2].member, append);
    Drain(i);
    core(i).Tick();
    Drain(i);
    EXPECT_EQ(core(i).promised(), 1u) << i;
  }
  append.epoch = 1;  // of this epoch, and not from its primary
  core(1).OnAppend(replicas_[2].member, append);
  Drain(1);
  DeliverAll();
  const PushToken token = Push(0);
  DeliverAll();
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk);
  Establish(2, {1, 0});
  EXPECT_EQ(core(1).promised(), 2u);
  EXPECT_EQ(core(1).commit_lsn(), 1u);
}

TEST_F(ShardCoreEpochsTest, APromiseForAnotherEndsAnEpoch) {
  Establish(1, {0, 1});
  const PushToken token = Push(0);
  const auto late = DeliverAll(To(1));
  const ShardRecord record = Record(2, {1, 0}, {}, false);
  hear_records_ = false;
  Learn(1, record);
  DeliverAll();
  EXPECT_EQ(core(0).promised(), 1u) << "0 has not heard of the record";
  EXPECT_TRUE(core(0).active());
  Learn(0, record);
  DeliverAll();
  EXPECT_EQ(core(0).promised(), 2u);
  EXPECT_FALSE(core(0).active());
  EXPECT_EQ(Answer(0, token), SegmentCode::kWrongEpoch);
  EXPECT_EQ(core(0).CheckEpoch(1), SegmentCode::kWrongEpoch);
  for (const Message& message : late) Deliver(message);
  DeliverAll();
  EXPECT_EQ(core(0).commit_lsn(), 0u);
  EXPECT_TRUE(core(1).wants_activation());
}

// --- A1: replies belong to (epoch, lsn)

TEST_F(ShardCoreEpochsTest, APushInFlightIsNotAnsweredByAnotherEntryAtItsLsn) {
  Establish(1, {0, 1});
  const PushToken lost = Push(0, 5);
  DeliverAll(Any());
  const ShardRecord second = Record(2, {1}, {}, false);
  Learn(1, second);
  Learn(1, Record(2, {1}, {}, true));
  const PushToken other = Push(1, 6);
  EXPECT_EQ(Answer(1, other), SegmentCode::kOk);
  Learn(0, second);
  EXPECT_EQ(Answer(0, lost), SegmentCode::kWrongEpoch);
  Establish(3, {1}, {0});
  SendSnapshot(1, 0);  // 1 was alone, and kept nothing
  DeliverAll();
  EXPECT_THAT(replicas_[0].rows, ElementsAre(other));
  EXPECT_EQ(Answer(0, lost), SegmentCode::kWrongEpoch) << "once, and for good";
  EXPECT_EQ(core(0).session_count(), 1u);
}

TEST_F(ShardCoreEpochsTest, APrimaryThatStaysAnswersWrongEpochToo) {
  Establish(1, {0, 1});
  const PushToken token = Push(0);
  DeliverAll(Any());
  Establish(2, {0, 2});
  EXPECT_EQ(Answer(0, token), SegmentCode::kWrongEpoch);
  EXPECT_THAT(replicas_[2].rows, ElementsAre(token)) << "what survives of the tail is applied";
  EXPECT_EQ(replicas_[2].entries.at(1).epoch, 1u) << "and keeps its own epoch";
}

// --- fail-over

TEST_F(ShardCoreEpochsTest, ANewPrimaryBringsAllToItsOwnTailBeforeItIsActive) {
  Establish(1, {0, 1, 2});
  const PushToken held = Push(0);
  DeliverAll();
  const PushToken tail = Push(0);
  DeliverAll([](const Message& message) { return message.to != 1; });  // only 1 has it
  const ShardRecord record = Record(2, {1, 2}, {}, false);
  Learn(1, record);
  Learn(2, record);
  EXPECT_FALSE(core(1).wants_activation()) << "2 has not answered";
  EXPECT_EQ(core(1).commit_lsn(), 1u);
  DeliverAll();
  EXPECT_TRUE(core(1).wants_activation());
  EXPECT_EQ(core(1).commit_lsn(), 1u) << "nothing is committed by an epoch that is not active";
  EXPECT_EQ(core(2).last_lsn(), 2u);
  Learn(1, Record(2, {1, 2}, {}, true));
  DeliverAll();
  EXPECT_THAT(replicas_[1].rows, ElementsAre(held, tail));
  EXPECT_THAT(replicas_[2].rows, ElementsAre(held, tail));
}

TEST_F(ShardCoreEpochsTest, ActivationIsWantedUntilItIsRecorded) {
  const ShardRecord record = Record(1, {0, 1}, {}, false);
  Learn(0, record);
  Learn(1, record);
  DeliverAll();
  EXPECT_TRUE(core(0).wants_activation());
  for (int i = 0; i < 3; ++i) {
    Tick(0);
    EXPECT_TRUE(core(0).wants_activation());
  }
  EXPECT_FALSE(core(0).active());
  Learn(0, Record(1, {0, 1}, {}, true));
  EXPECT_FALSE(core(0).wants_activation());
  EXPECT_TRUE(core(0).active());
}

TEST_F(ShardCoreEpochsTest, NobodyIsActiveWithoutAllMembers) {
  const ShardRecord record = Record(1, {0, 1, 2}, {}, false);
  for (int i = 0; i < 2; ++i) Learn(i, record);
  DeliverAll(To(2));
  Tick(0);
  DeliverAll(To(2));
  EXPECT_FALSE(core(0).wants_activation());
  // Even if the record says so: another life of this shard in the same process asked for it.
  Learn(0, Record(1, {0, 1, 2}, {}, true));
  EXPECT_EQ(core(0).CheckEpoch(1), SegmentCode::kUnavailable);
  Tick(0);
  DeliverAll();
  EXPECT_EQ(core(0).CheckEpoch(1), SegmentCode::kOk);
}

TEST_F(ShardCoreEpochsTest, DuplicatesAreToldByTheNextPrimary) {
  Establish(1, {0, 1});
  const PushToken token = Push(0);
  DeliverAll();
  ASSERT_EQ(Answer(0, token), SegmentCode::kOk);
  Establish(2, {1});
  seqs_[5] = 0;
  const PushToken again = Push(1);
  EXPECT_EQ(Answer(1, again), SegmentCode::kOk);
  EXPECT_THAT(replicas_[1].rows, ElementsAre(token));
  seqs_[5] = 7;
  EXPECT_EQ(Answer(1, Push(1)), SegmentCode::kGap);
}

// --- a process that held a replica

TEST_F(ShardCoreEpochsTest, ARestartedReplicaGoesOnFromItsLog) {
  Establish(1, {0, 1, 2});
  std::vector<PushToken> rows = {Push(0)};
  DeliverAll();
  Restart(1);
  EXPECT_TRUE(core(1).unproven());
  EXPECT_FALSE(core(1).serves_reads());
  // 2 still follows, so what 1 lacks is kept from the commit on.
  Establish(2, {0, 2}, {1});
  EXPECT_FALSE(core(1).unproven());
  EXPECT_TRUE(core(1).serves_reads());
  EXPECT_THAT(replicas_[0].snapshots, IsEmpty());
  rows.push_back(Push(0));
  DeliverAll();
  EXPECT_EQ(replicas_[1].rows, rows);
  EXPECT_THAT(core(0).JoinReady(), ElementsAre(replicas_[1].member));
}

// Its process replayed, and so applied, what was never committed.
TEST_F(ShardCoreEpochsTest, ARestartedReplicaThatHoldsMoreThanItsPrimaryNeedsASnapshot) {
  Establish(1, {0, 1});
  const PushToken held = Push(0);
  DeliverAll();
  const PushToken lost = Push(0, 6);
  DeliverAll(Any());
  Restart(0);
  EXPECT_THAT(replicas_[0].rows, ElementsAre(held, lost));
  Establish(2, {1}, {0});
  EXPECT_TRUE(core(0).unproven());
  EXPECT_THAT(core(1).JoinReady(), IsEmpty());
  ASSERT_THAT(replicas_[1].snapshots, SizeIs(1));
  SendSnapshot(1, 0);
  DeliverAll();
  const PushToken next = Push(1);
  DeliverAll();
  EXPECT_THAT(replicas_[0].rows, ElementsAre(held, next));
  EXPECT_EQ(core(0).session_count(), 1u);
  EXPECT_THAT(core(1).JoinReady(), ElementsAre(replicas_[0].member));
}

TEST_F(ShardCoreEpochsTest, ARestartedReplicaWithAnotherEntryAtItsEndNeedsASnapshot) {
  Establish(1, {0, 1});
  Push(0);
  DeliverAll(Any());
  Restart(0);
  Establish(2, {1}, {2});
  const PushToken kept = Push(1, 6);
  DeliverAll();
  Establish(3, {1}, {2, 0});
  EXPECT_TRUE(core(0).unproven());
  ASSERT_FALSE(replicas_[1].snapshots.empty());
  EXPECT_EQ(replicas_[1].snapshots.back().to, replicas_[0].member);
  SendSnapshot(1, 0);
  DeliverAll();
  EXPECT_THAT(replicas_[0].rows, ElementsAre(kept));
}

// Else the group could count on it, and lose its primary to another member that lacks the entry.
TEST_F(ShardCoreEpochsTest, ARestartedReplicaWaitsUntilWhatItHoldsIsCommitted) {
  Establish(1, {0, 1, 2});
  const PushToken token = Push(0);
  DeliverAll(To(2));  // 2 has not got it: not committed
  network_.clear();
  Restart(1);
  EXPECT_THAT(replicas_[1].rows, ElementsAre(token));
  const ShardRecord record = Record(2, {0, 2}, {1}, false);
  for (int i = 0; i < 3; ++i) Learn(i, record);
  DeliverAll(To(2));
  Tick(0);
  DeliverAll(To(2));
  EXPECT_TRUE(core(1).unproven()) << "the same entry, and still";
  EXPECT_THAT(replicas_[0].snapshots, IsEmpty());
  Tick(0);
  DeliverAll();
  Learn(0, Record(2, {0, 2}, {1}, true));
  DeliverAll();
  EXPECT_EQ(core(0).commit_lsn(), 1u);
  Tick(0);
  DeliverAll();
  EXPECT_FALSE(core(1).unproven());
}

// Nor does it tell others to apply it, before its epoch is active: one that never is may end in the
// members of the epoch before it, which may lack the entry.
TEST_F(ShardCoreEpochsTest, ARestartedPrimaryCommitsNothingForOthersBeforeItsEpochIsActive) {
  Establish(1, {0, 2}, {1});
  const PushToken token = Push(0);
  DeliverAll(To(2));  // 2 has not got it: not committed
  network_.clear();
  Restart(0);
  EXPECT_THAT(replicas_[0].rows, ElementsAre(token));
  for (int i = 0; i < 2; ++i) Learn(i, Record(2, {0}, {1}, false));
  for (int i = 0; i < 3; ++i) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_TRUE(core(0).wants_activation());
  EXPECT_THAT(replicas_[1].rows, IsEmpty());
  EXPECT_EQ(core(1).commit_lsn(), 0u);
  Learn(0, Record(2, {0}, {1}, true));
  for (int i = 0; i < 3; ++i) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_THAT(replicas_[1].rows, ElementsAre(token));
  EXPECT_FALSE(core(0).unproven());
}

// Where the only member lost the end of its log with the machine's power: what a learner has heard
// to be committed is nobody's.
TEST_F(ShardCoreEpochsTest, ALearnerProvesItselfAnewInEachEpoch) {
  Establish(1, {0}, {1});
  std::vector<PushToken> rows;
  for (int i = 0; i < 3; ++i) rows.push_back(Push(0));
  DeliverAll();
  EXPECT_EQ(core(1).commit_lsn(), 3u);
  replicas_[0].entries.erase(3);
  Restart(0);
  Establish(2, {0}, {1});
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(1));
  SendSnapshot(0, 1);
  DeliverAll();
  rows.back() = Push(0, 6);
  DeliverAll();
  EXPECT_EQ(replicas_[0].rows, rows);
  EXPECT_EQ(replicas_[1].rows, rows);
}

// Its commit may lag behind what the primary keeps: entries behind it tell as much.
TEST_F(ShardCoreEpochsTest, ALearnerProvesItselfWhereItsLogReachesTo) {
  Establish(1, {0}, {1});
  for (int i = 0; i < 3; ++i) {
    Push(0);
    DeliverAll([](const Message& message) {  // entries and answers, not the word of the commit
      return message.to == 1 && message.entries.empty();
    });
  }
  EXPECT_EQ(core(1).last_lsn(), 3u);
  EXPECT_LT(core(1).commit_lsn(), core(0).retained_lsn());
  Establish(2, {0}, {1});
  EXPECT_THAT(replicas_[0].snapshots, IsEmpty());
  EXPECT_THAT(core(0).JoinReady(), SizeIs(1));
}

TEST_F(ShardCoreEpochsTest, TheOnlyReplicaThatIsBackIsWhatTheShardHolds) {
  Establish(1, {0, 1});
  const PushToken committed = Push(0);
  DeliverAll();
  const PushToken tail = Push(0);
  DeliverAll(Any());
  Restart(0);
  Restart(1);
  Establish(2, {0});
  EXPECT_EQ(core(0).CheckEpoch(2), SegmentCode::kOk);
  EXPECT_THAT(replicas_[0].rows, ElementsAre(committed, tail))
      << "unacknowledged entries may survive";
  Establish(3, {0}, {1});
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(1)) << "nothing of the log was kept for it";
  SendSnapshot(0, 1);
  DeliverAll();
  EXPECT_THAT(replicas_[1].rows, ElementsAre(committed, tail));
}

// A machine lost its unsynced tail, and rows have LSNs beyond it: nobody's log can agree with that.
TEST_F(ShardCoreEpochsTest, AfterALostTailNoOtherLogAgrees) {
  Establish(1, {0, 1});
  for (int i = 0; i < 3; ++i) Push(0);
  DeliverAll();
  replicas_[0].entries.erase(2);
  replicas_[0].entries.erase(3);
  Restart(0);
  core(0).SkipTo(3);
  EXPECT_EQ(core(0).AppliedMeta().applied_epoch, 0u);
  Establish(2, {0}, {1});
  EXPECT_EQ(core(1).last_lsn(), 3u);
  EXPECT_THAT(replicas_[0].snapshots, SizeIs(1));
  EXPECT_EQ(core(0).AppliedMeta().applied_epoch, 2u) << "it is this epoch's from now on";
  SendSnapshot(0, 1);
  DeliverAll();
  EXPECT_THAT(core(0).JoinReady(), ElementsAre(replicas_[1].member));
}

// All members lost their logs, and one of them has its rows. Another one goes on, and gives the
// same LSNs to other entries.
TEST_F(ShardCoreEpochsTest, RowsAheadOfTheirLogAreReplaced) {
  Establish(1, {0, 1});
  for (int i = 0; i < 3; ++i) Push(0);
  DeliverAll();
  for (const int i : {0, 1}) {
    replicas_[i].entries.clear();
    Restart(i);
  }
  core(1).LostTail();
  Establish(2, {0}, {1});
  ASSERT_THAT(replicas_[0].snapshots, SizeIs(1)) << "though both logs are empty";
  EXPECT_THAT(core(0).JoinReady(), IsEmpty());
  SendSnapshot(0, 1);
  DeliverAll();
  EXPECT_THAT(core(0).JoinReady(), ElementsAre(replicas_[1].member));
  const PushToken token = Push(0, /*session=*/6);
  DeliverAll();
  EXPECT_THAT(replicas_[1].rows, ElementsAre(token));
}

TEST_F(ShardCoreEpochsTest, ReplayRefusesALogThatIsNone) {
  ShardMeta meta;
  meta.applied_lsn = 5;
  meta.applied_epoch = 3;
  Start(0, 3, meta);
  CoreEntry entry;
  entry.lsn = 5;
  entry.epoch = 2;
  EXPECT_FALSE(*core(0).Replay(entry)) << "older than the meta";
  entry.lsn = 6;
  EXPECT_EQ(core(0).Replay(entry).status().code(), absl::StatusCode::kDataLoss);
  entry.epoch = 3;
  EXPECT_TRUE(*core(0).Replay(entry));
  EXPECT_FALSE(*core(0).Replay(entry)) << "twice";
}

}  // namespace shard_core_epochs_test
}  // namespace hotbed
