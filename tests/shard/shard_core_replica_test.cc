// A group of cores: a follower's log, acknowledging, fail-over. Learners, snapshots and restarts
// are in shard_core_followers_test.cc; what happens when all of it meets is for tests/sim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/protocol/shard_core.h"
#include "tests/shard/core_group.h"

namespace hotbed {
namespace shard_core_replica_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class ShardCoreReplicaTest : public CoreGroup {};

// --- acknowledging

TEST_F(ShardCoreReplicaTest, AnsweredOnlyWhenEveryMemberHoldsIt) {
  Establish(1, {0, 1, 2});
  const PushToken token = Push(0);
  const auto kept = DeliverAll(To(2));
  EXPECT_FALSE(Answered(0, token)) << "member 3 has not got it";
  EXPECT_EQ(core(0).commit_lsn(), 0u);
  for (const Message& message : kept) Deliver(message);
  DeliverAll();
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(replicas_[i].rows, ElementsAre(token)) << i;
}

TEST_F(ShardCoreReplicaTest, AMemberAnswersWhenItsOwnLogHasIt) {
  Establish(1, {0, 1});
  replicas_[1].hold_log = true;
  const PushToken token = Push(0);
  DeliverAll();
  EXPECT_FALSE(Answered(0, token));
  EXPECT_THAT(replicas_[1].rows, SizeIs(0)) << "a row never holds what could still be cut";
  FinishLog(1);
  DeliverAll();
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk);
  EXPECT_THAT(replicas_[1].rows, ElementsAre(token)) << "told of the commit without another push";
}

// Else a record that the primary's disk refuses, and that stands in a follower's log, would share
// its (epoch, lsn) with the next one.
TEST_F(ShardCoreReplicaTest, NothingIsSentThatItsOwnLogMayRefuse) {
  Establish(1, {0, 1});
  replicas_[0].hold_log = true;
  const PushToken first = Push(0);
  EXPECT_TRUE(network_.empty());
  core(0).AppendFailed(1, replicas_[0].entries[1].ticket);
  replicas_[0].appending.clear();
  replicas_[0].entries.clear();
  Drain(0);
  EXPECT_EQ(Answer(0, first), SegmentCode::kReadOnly);
  core(0).Resume();
  replicas_[0].hold_log = false;
  seqs_[5] = 0;
  const PushToken second = Push(0);
  DeliverAll();
  EXPECT_THAT(replicas_[1].rows, ElementsAre(second));
}

TEST_F(ShardCoreReplicaTest, ADuplicateOfWhatIsNotCommittedWaits) {
  Establish(1, {0, 1});
  const PushToken first = Push(0);
  seqs_[5] = 0;
  const PushToken again = Push(0);
  DeliverAll(Any());
  EXPECT_FALSE(Answered(0, first));
  EXPECT_FALSE(Answered(0, again));
  Tick(0);
  Tick(0);
  Tick(0);  // what was lost is sent again
  DeliverAll();
  EXPECT_EQ(Answer(0, first), SegmentCode::kOk);
  EXPECT_EQ(Answer(0, again), SegmentCode::kOk);
  EXPECT_THAT(replicas_[1].rows, ElementsAre(first));
}

TEST_F(ShardCoreReplicaTest, SeveralAppendsAreOnTheirWayAndTheRestGoesAsOne) {
  Establish(1, {0, 1});
  for (int i = 0; i < 40; ++i) Push(0);
  EXPECT_THAT(network_, SizeIs(4));
  DeliverAll();
  EXPECT_EQ(core(1).applied_lsn(), 40u);
  EXPECT_EQ(core(0).commit_lsn(), 40u);
}

TEST_F(ShardCoreReplicaTest, LossesDoublesAndReorderingAreMadeUpFor) {
  Establish(1, {0, 1});
  std::vector<PushToken> tokens;
  for (int i = 0; i < 6; ++i) tokens.push_back(Push(0));
  std::vector<Message> sent = DeliverAll(Any());
  ASSERT_GE(sent.size(), 3u);
  Deliver(sent[2]);  // after a hole
  Deliver(sent[0]);
  Deliver(sent[2]);
  Deliver(sent[0]);
  DeliverAll();
  for (int i = 0; i < 6; ++i) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_EQ(replicas_[1].rows, tokens);
  EXPECT_EQ(replicas_[0].rows, tokens);
}

// --- the follower's log: Raft's check

struct LogCase {
  const char* name;
  std::vector<Epoch> log;  // epochs of LSN 1, 2, ...; all but `committed` of them not committed
  Lsn committed;
  Epoch prev_epoch;
  Lsn prev_lsn;
  std::vector<Epoch> entries;
  bool ok;
  Lsn answer;
  bool needs_snapshot;
  std::vector<Epoch> after;
};

class FollowerLogTest : public CoreGroup, public testing::WithParamInterface<LogCase> {
 protected:
  // `epochs` as entries behind (prev_lsn) with distinct payloads for each (epoch, lsn).
  static std::vector<CoreEntry> Entries(const std::vector<Epoch>& epochs, Lsn prev_lsn) {
    std::vector<CoreEntry> entries;
    for (const Epoch epoch : epochs) {
      CoreEntry& entry = entries.emplace_back();
      entry.lsn = ++prev_lsn;
      entry.epoch = epoch;
      entry.session = 5;
      entry.incarnation = 1;
      entry.seq = entry.lsn;
      entry.payload = epoch * 1000 + entry.lsn;
    }
    return entries;
  }
  CoreAppendReply Append(Epoch epoch, Epoch prev_epoch, Lsn prev_lsn, Lsn commit,
                         const std::vector<Epoch>& epochs) {
    const std::vector<CoreEntry> entries = Entries(epochs, prev_lsn);
    if (epoch > core(1).epoch()) core(1).LearnRecord(Record(epoch, {0}, {1}, false));
    network_.clear();
    core(1).OnAppend(replicas_[0].member, {epoch, prev_epoch, prev_lsn, commit, entries});
    Drain(1);
    CoreAppendReply last;
    for (const Message& message : network_) last = message.send.reply;
    return last;
  }
};

TEST_P(FollowerLogTest, AnswersAndKeeps) {
  const LogCase& c = GetParam();
  // Each epoch's primary logged its own.
  Lsn lsn = 0;
  for (const Epoch epoch : c.log) {
    Append(epoch, lsn == 0 ? 0 : c.log[lsn - 1], lsn, 0,
           {epoch});  // the first asks for the promise
    Append(epoch, lsn == 0 ? 0 : c.log[lsn - 1], lsn, c.committed, {epoch});
    ++lsn;
  }
  ASSERT_EQ(core(1).last_lsn(), c.log.size());
  ASSERT_EQ(core(1).commit_lsn(), c.committed);
  Append(9, 0, 999, 0, {});  // the promise
  const CoreAppendReply reply = Append(9, c.prev_epoch, c.prev_lsn, c.committed, c.entries);
  EXPECT_EQ(reply.ok, c.ok);
  EXPECT_EQ(reply.lsn, c.answer);
  EXPECT_EQ(reply.needs_snapshot, c.needs_snapshot);
  EXPECT_EQ(reply.epoch, 9u);
  std::vector<Epoch> after;
  for (const auto& [at, entry] : replicas_[1].entries) {
    after.push_back(entry.epoch);
    EXPECT_EQ(entry.payload, entry.epoch * 1000 + at);
  }
  EXPECT_EQ(after, c.after);
}

INSTANTIATE_TEST_SUITE_P(
    Raft, FollowerLogTest,
    testing::Values(
        LogCase{"Follows", {1, 1}, 0, 1, 2, {9}, true, 3, false, {1, 1, 9}},
        LogCase{"FromTheBeginning", {}, 0, 0, 0, {1, 9}, true, 2, false, {1, 9}},
        LogCase{"KnownEntriesStay", {1, 1, 1}, 0, 1, 1, {1}, true, 2, false, {1, 1, 1}},
        LogCase{"AQuestionCutsNothing", {1, 1, 1}, 0, 1, 1, {}, true, 1, false, {1, 1, 1}},
        LogCase{"AHole", {1, 1}, 0, 1, 3, {9}, false, 2, false, {1, 1}},
        LogCase{"AnotherEpochAtPrev", {1, 2, 2}, 0, 3, 3, {9}, false, 1, false, {1, 2, 2}},
        LogCase{"TheHintIsNotBelowTheCommit", {1, 2, 2}, 2, 3, 3, {9}, false, 2, false, {1, 2, 2}},
        LogCase{"AConflictCuts", {1, 2, 2}, 1, 1, 1, {3, 3}, true, 3, false, {1, 3, 3}},
        // Which of two uncommitted tails survives is for the primary that survives: the epoch of
        // its entry may be the lower one (Raft's figure 8).
        LogCase{"ALowerEpochMayReplace", {1, 5}, 1, 1, 1, {3}, true, 2, false, {1, 3}},
        LogCase{"APartConflicts", {1, 2, 2, 2}, 0, 1, 1, {2, 4}, true, 3, false, {1, 2, 4}},
        LogCase{"BelowTheCommit", {1, 1, 1}, 3, 1, 1, {1, 1, 9}, true, 4, false, {1, 1, 1, 9}},
        LogCase{"CommittedIsContradicted", {1, 1}, 2, 1, 1, {3}, false, 2, true, {1, 1}},
        LogCase{"CommittedIsContradictedAtPrev", {1, 1}, 2, 3, 2, {9}, false, 2, true, {1, 1}}),
    [](const testing::TestParamInfo<LogCase>& info) { return std::string(info.param.name); });

// Sessions, the newest committed step and what is staged are functions of the log.
TEST_F(FollowerLogTest, ACutTakesBackWhatTheTailDid) {
  Append(1, 0, 0, 0, {});
  std::vector<CoreEntry> tail = Entries({1, 1, 1, 1}, 0);
  tail[1].session = 6;
  tail[1].staged = true;
  tail[1].seq = 3 << kStepShift;
  tail[2].session = 0;
  tail[2].kind = RecordKind::kStepCommit;
  tail[2].seq = 4 << kStepShift;
  tail[3].kind = RecordKind::kForget;
  core(1).OnAppend(replicas_[0].member, {1, 0, 0, 1, tail});
  Drain(1);
  EXPECT_EQ(core(1).session_count(), 1u) << "5 is forgotten, 6 came";
  EXPECT_EQ(core(1).committed_step(), 4u);
  EXPECT_THAT(core(1).StagedOf(3, {6}), ElementsAre(2));
  Append(2, 0, 999, 0, {});
  EXPECT_TRUE(Append(2, 1, 1, 1, {2}).ok);
  EXPECT_EQ(core(1).session_count(), 1u);
  EXPECT_EQ(core(1).committed_step(), 0u);
  EXPECT_THAT(core(1).StagedOf(3, {6}), IsEmpty());
  EXPECT_EQ(Append(2, 2, 2, 2, {}).lsn, 2u);
  const ShardMeta meta = core(1).AppliedMeta();
  ASSERT_NE(meta.sessions.Find(5), nullptr);
  EXPECT_EQ(meta.sessions.Find(5)->last_seq, 2u);
  EXPECT_EQ(meta.applied_epoch, 2u);
}

// The completion of an entry that was cut says nothing of the one that stands there now.
TEST_F(FollowerLogTest, ALateCompletionOfACutEntryDoesNotCount) {
  Append(1, 0, 0, 0, {});
  replicas_[1].hold_log = true;
  Append(1, 0, 0, 0, {1});
  const CoreEntry cut = replicas_[1].appending.front();
  Append(2, 0, 999, 0, {});
  Append(2, 0, 0, 1, {2});
  network_.clear();
  core(1).Appended(cut.lsn, cut.ticket);
  Drain(1);
  EXPECT_TRUE(network_.empty());
  EXPECT_EQ(core(1).commit_lsn(), 0u);
  replicas_[1].appending.pop_front();
  FinishLog(1);
  ASSERT_THAT(network_, SizeIs(1));
  EXPECT_TRUE(network_[0].send.reply.ok);
  EXPECT_EQ(core(1).commit_lsn(), 1u);
}

TEST_F(FollowerLogTest, AFullDiskHoldsUpAndIsMadeUpFor) {
  Establish(1, {0, 1});
  replicas_[1].hold_log = true;
  const PushToken token = Push(0);
  const PushToken next = Push(0);
  DeliverAll();
  core(1).AppendFailed(1, replicas_[1].entries[1].ticket);
  core(1).AppendFailed(2, 0);  // its own completion
  replicas_[1].appending.clear();
  replicas_[1].entries.clear();
  Drain(1);
  EXPECT_EQ(core(1).last_lsn(), 0u);
  for (int i = 0; i < 5; ++i) {
    Tick(0);
    DeliverAll();
  }
  EXPECT_FALSE(Answered(0, token));
  replicas_[1].hold_log = false;
  core(1).Resume();
  Drain(1);
  DeliverAll();
  EXPECT_EQ(Answer(0, token), SegmentCode::kOk) << "without a tick: it spoke first";
  EXPECT_EQ(Answer(0, next), SegmentCode::kOk);
}

// --- refusals

// The simulation's seed 60980: the tail that only the old primary has is of the epoch of what it
// holds in common with the new one, and its hint leaves all of that epoch out.
TEST_F(ShardCoreReplicaTest, AHintBelowWhatIsKnownToAgreeIsNoEarlierOne) {
  Establish(1, {0, 1});
  Push(0);
  DeliverAll();
  Push(0);
  DeliverAll(To(0));  // both hold LSN 2, and the primary does not hear of it
  Push(0);
  network_.clear();            // LSN 3 stays alone
  core(1).AppendFailed(3, 0);  // its disk is full: it logs no entry that would cut LSN 3
  const ShardRecord record = Record(2, {1, 0}, {}, false);
  for (int i : {0, 1}) Learn(i, record);
  DeliverAll();
  ASSERT_TRUE(core(1).wants_activation());
  const ShardRecord active = Record(2, {1, 0}, {}, true);
  for (int i : {0, 1}) Learn(i, active);
  core(1).Resume();
  const PushToken token = Push(1, 6);
  network_.clear();  // the connection breaks: the word of the commit, and the new LSN 3
  core(1).OnPeerLost(replicas_[0].member);
  ASSERT_EQ(core(0).commit_lsn(), 1u);
  Tick(1);
  DeliverAll();
  EXPECT_EQ(Answer(1, token), SegmentCode::kOk);
  EXPECT_EQ(core(0).commit_lsn(), 3u);
  EXPECT_EQ(replicas_[0].rows, replicas_[1].rows);
}

}  // namespace shard_core_replica_test
}  // namespace hotbed
