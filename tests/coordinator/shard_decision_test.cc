// The rules of membership, each on its own (all together: shard_decision_random_test.cc).
#include "planner/coordinator/membership/shard_decision.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "planner/coordinator/state/record_text.h"
#include "tests/coordinator/shard_decision_rig.h"

namespace hotbed {
namespace shard_decision_test {

// The first member is primary.
ShardRecord Active(Members members, Members learners = {}) {
  ShardRecord record;
  record.epoch = 7;
  record.primary = members.front();
  record.members = members;
  record.learners = std::move(learners);
  record.active = true;
  record.base = std::move(members);
  return record;
}

ShardRecord Inactive(Members members, Members base) {
  ShardRecord record = Active(std::move(members));
  record.active = false;
  record.base = std::move(base);
  return record;
}

ShardWish Wish(uint32_t replicas, std::vector<ServerId> servers = {}) {
  ShardWish wish;
  wish.replicas = replicas;
  wish.servers = std::move(servers);
  return wish;
}

TEST(ShardDecisionTest, NothingToDo) {
  const ShardRecord record = Active({{1, 1}, {2, 1}});
  for (const ShardWish& wish : {Wish(2), Wish(2, {1, 2})}) {
    const ShardDecision decision = AllLive(3).Decide(record, wish);
    EXPECT_EQ(decision.step, ShardStep::kNone);
    EXPECT_EQ(decision.reason, "");
    EXPECT_EQ(decision.next.epoch, 7u);
  }
}

TEST(ShardDecisionTest, RecordTextNamesAll) {
  EXPECT_EQ(RecordText(Active({{2, 5}, {3, 1}})),
            "primary s2/5, members s2/5 s3/1, learners -, epoch 7 active");
  EXPECT_EQ(RecordText(Inactive({{2, 5}}, {})), "primary s2/5, members s2/5, learners -, epoch 7");
}

TEST(ShardDecisionTest, FailsOverToTheLiveMemberThatIsWantedFirst) {
  Cluster cluster = AllLive(4);
  cluster.live.erase(1);
  cluster.awaited = {1};  // never holds off a fail-over
  const ShardDecision decision =
      cluster.Decide(Active({{1, 1}, {2, 1}, {3, 1}}, {{4, 1}}), Wish(3, {1, 3, 2}));
  EXPECT_EQ(decision.step, ShardStep::kFailOver);
  EXPECT_EQ(RecordText(decision.next), "primary s3/1, members s2/1 s3/1, learners s4/1, epoch 8");
  EXPECT_EQ(decision.next.base.size(), 3u);
  EXPECT_EQ(decision.reason, "lost s1/1, primary is now s3/1");
}

TEST(ShardDecisionTest, ABackupThatRestartedIsDroppedAndBecomesALearner) {
  Cluster cluster = AllLive(3);
  cluster.live[2] = 2;
  ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2, {1, 2}));
  EXPECT_EQ(decision.step, ShardStep::kFailOver);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners -, epoch 8");
  EXPECT_EQ(cluster.Decide(decision.next, Wish(2, {1, 2})).reason,
            "waits for s1/1 to activate epoch 8");
  decision = cluster.Decide(Active({{1, 1}}), Wish(2, {1, 2}));
  EXPECT_EQ(decision.step, ShardStep::kAddLearner);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners s2/2, epoch 7 active");
}

TEST(ShardDecisionTest, AReplicaThatIsLostCountsAsGone) {
  Cluster cluster = AllLive(3);
  cluster.lost = {2};
  ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2));
  EXPECT_EQ(decision.step, ShardStep::kFailOver);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners -, epoch 8");
  EXPECT_EQ(decision.reason,
            "lost the replica of s2/1 (it is damaged, or differs from its primary's)");
  // In the next epoch the same process may get another one.
  cluster.lost.clear();
  decision.next.active = true;
  decision.next.base = decision.next.members;
  cluster.room = {2};
  EXPECT_EQ(RecordText(cluster.Decide(decision.next, Wish(2)).next),
            "primary s1/1, members s1/1, learners s2/1, epoch 8 active");
  // The primary's.
  cluster.lost = {1};
  decision = cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2));
  EXPECT_EQ(RecordText(decision.next), "primary s2/1, members s2/1, learners -, epoch 8");
}

TEST(ShardDecisionTest, WhoseAnswersItsPrimaryDoesNotHearLeaves) {
  Cluster cluster = AllLive(4);
  cluster.silent = {2, 3};
  ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}, {3, 1}}), Wish(3));
  EXPECT_EQ(decision.step, ShardStep::kFailOver);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners -, epoch 8");
  EXPECT_EQ(decision.reason,
            "lost s2/1 s3/1 (they live, but s1/1, the primary, does not hear of them)");
  // The primary speaks, so it is not silent; and of a dead one nothing counts that it said.
  cluster.silent = {1, 2};
  cluster.live[1] = 5;
  decision = cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2));
  EXPECT_EQ(RecordText(decision.next), "primary s2/1, members s2/1, learners -, epoch 8");
  // The silent member's own report comes first.
  cluster = AllLive(4);
  cluster.silent = {2};
  cluster.lost = {2};
  decision = cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2));
  EXPECT_EQ(decision.reason,
            "lost the replica of s2/1 (it is damaged, or differs from its primary's)");
}

TEST(ShardDecisionTest, ALearnerWhoseAnswersItsPrimaryDoesNotHearLeaves) {
  Cluster cluster = AllLive(4);
  cluster.silent = {3};
  cluster.joined = {3};  // said before it fell silent
  const ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}}, {{3, 1}}), Wish(3));
  EXPECT_EQ(decision.step, ShardStep::kDropLearner);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1 s2/1, learners -, epoch 8");
  EXPECT_EQ(decision.reason,
            "lost learner s3/1 (it lives, but s1/1, the primary, does not hear of it)");
}

TEST(ShardDecisionTest, TheLastActiveEpochsPrimaryStaysThoughTheNextDoesNotHearIt) {
  Cluster cluster = AllLive(4);
  // A switch from s2 to s1, that is not active yet: s2 may answer strict pulls.
  ShardRecord before = Active({{1, 1}, {2, 1}});
  before.primary = {2, 1};
  ShardDecision decision = cluster.Decide(before, Wish(2, {1, 2}));
  ASSERT_EQ(decision.step, ShardStep::kSwitch);
  EXPECT_EQ(decision.next.base.front(), (Member{2, 1}));
  cluster.silent = {2};
  const ShardRecord switched = decision.next;
  decision = cluster.Decide(switched, Wish(2, {1, 2}));
  EXPECT_EQ(decision.step, ShardStep::kFailOver);
  EXPECT_EQ(RecordText(decision.next), "primary s2/1, members s2/1, learners -, epoch 9");
  EXPECT_EQ(
      decision.reason,
      "lost s1/1 (it lives, but does not hear of s2/1, the primary before it), primary is now "
      "s2/1");
  // Dead, its lease is over: it leaves. One that was no primary leaves, too.
  cluster.live.erase(2);
  EXPECT_EQ(RecordText(cluster.Decide(switched, Wish(2, {1, 2})).next),
            "primary s1/1, members s1/1, learners -, epoch 9");
  cluster = AllLive(4);
  cluster.silent = {2};
  EXPECT_EQ(RecordText(cluster.Decide(Inactive({{1, 1}, {2, 1}}, {{1, 1}, {2, 1}}), Wish(2)).next),
            "primary s1/1, members s1/1, learners -, epoch 8");
}

TEST(ShardDecisionTest, WhatNobodyHoldsWholeIsWaitedFor) {
  Cluster cluster = AllLive(3);
  cluster.lost = {1, 2};
  ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2));
  EXPECT_EQ(decision.step, ShardStep::kNone);
  EXPECT_EQ(decision.reason,
            "stopped: lost all of the replica of s1/1 s2/1 (it is damaged, or differs from its "
            "primary's); goes on when one of them is back with its data directory");
  // A dead member's server may come back with all that it acknowledged; the lost replica is no
  // help.
  cluster.lost = {2};
  cluster.live[1] = 5;
  decision = cluster.Decide(Active({{2, 1}, {1, 1}}), Wish(2));
  EXPECT_EQ(decision.step, ShardStep::kTakeBack);
  EXPECT_EQ(RecordText(decision.next),
            "primary s1/5, members s1/5, learners -, epoch 8, passed over s2 at LSN 50 of epoch 5")
      << "what is left of the damaged replica is kept";
  // An epoch of it alone that never was active: those of the one before hold everything.
  cluster = AllLive(3);
  cluster.lost = {2};
  decision = cluster.Decide(Inactive({{2, 1}}, {{1, 1}, {2, 1}}), Wish(1));
  EXPECT_EQ(decision.step, ShardStep::kTakeBase);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners -, epoch 8");
}

TEST(ShardDecisionTest, NobodyOfAnEpochThatNeverWasActiveGivesTheBaseBack) {
  Cluster cluster = AllLive(3);
  cluster.live.erase(2);
  const ShardDecision decision =
      cluster.Decide(Inactive({{2, 1}}, {{1, 1}, {2, 1}, {3, 9}}), Wish(2));
  EXPECT_EQ(decision.step, ShardStep::kTakeBase);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners -, epoch 8");
  EXPECT_EQ(decision.next.base.size(), 3u);  // of the last active epoch, until the next one is
}

TEST(ShardDecisionTest, TheBaseOfAnActiveEpochCountsForNothing) {
  Cluster cluster = AllLive(3);
  cluster.live.erase(2);
  ShardRecord record = Active({{2, 1}});
  record.base = {{1, 1}, {2, 1}};
  const ShardDecision decision = cluster.Decide(record, Wish(2));
  EXPECT_EQ(decision.step, ShardStep::kNone);
  EXPECT_EQ(decision.reason,
            "stopped: lost all of s2/1; goes on when one of them is back with its data directory");
}

// Three servers, of which the members s1 and s2 of epoch 7 have restarted.
Cluster BothBack(const HeldReplica& first, const HeldReplica& second) {
  Cluster cluster = AllLive(3);
  cluster.live[1] = 2;
  cluster.live[2] = 4;
  cluster.held = {{1, first}, {2, second}};
  return cluster;
}

TEST(ShardDecisionTest, NobodyLeftTakesTheMemberThatIsBackWithTheMost) {
  const ShardRecord record = Active({{1, 1}, {2, 1}});
  ShardWish wish = Wish(2, {1, 2});
  Cluster cluster = BothBack({.end = {7, 40}}, {.end = {7, 41}});
  ShardDecision decision = cluster.Decide(record, wish);
  EXPECT_EQ(decision.step, ShardStep::kTakeBack);
  EXPECT_EQ(RecordText(decision.next), "primary s2/4, members s2/4, learners -, epoch 8");
  EXPECT_EQ(decision.reason, "lost all of s1/1 s2/1, s2/4 is back with its log");
  // The epoch of the last entry goes before its LSN.
  cluster = BothBack({.end = {7, 40}}, {.end = {6, 90}});
  EXPECT_EQ(cluster.Decide(record, wish).next.primary, (Member{1, 2}));
  // Nothing, damage, and rows that are newer than their log.
  cluster = BothBack({.nothing = true}, {.end = {0, 0}});
  EXPECT_EQ(cluster.Decide(record, wish).next.primary, (Member{2, 4}));
  cluster = BothBack({.end = {3, 1}}, {.damaged = true, .end = {3, 1}});
  EXPECT_EQ(cluster.Decide(record, wish).next.primary, (Member{1, 2}));
  cluster = BothBack({.behind = true, .end = {7, 40}}, {.end = {7, 40}});
  EXPECT_EQ(cluster.Decide(record, wish).next.primary, (Member{2, 4}));
  // A damaged replica whose log goes beyond the chosen one is kept.
  cluster = BothBack({.end = {3, 1}}, {.damaged = true, .end = {7, 1}});
  EXPECT_EQ(cluster.Decide(record, wish).next.passed_over, (std::vector<PassedOver>{{2, {3, 1}}}));
}

TEST(ShardDecisionTest, MembersThatAreNotHeardOfAreWaitedForAndThenPassedOver) {
  const ShardRecord record = Active({{1, 1}, {2, 1}});
  Cluster cluster = BothBack({.end = {7, 40}}, {});
  for (const bool down : {false, true}) {
    if (down) cluster.live.erase(2);
    if (!down) cluster.unheard = {2};  // it lives, and has said nothing yet
    cluster.waited.clear();
    ShardDecision decision = cluster.Decide(record, Wish(2));
    EXPECT_EQ(decision.step, ShardStep::kNone);
    EXPECT_TRUE(decision.stopped);
    EXPECT_EQ(decision.reason,
              "stopped: lost all of s1/1 s2/1; s1/2 is back with its log up to LSN 40 of epoch 7; "
              "waits for s2/1, which may hold more; 'hotbed shard choose' goes on at once");
    cluster.waited = {1};
    decision = cluster.Decide(record, Wish(2));
    EXPECT_EQ(decision.step, ShardStep::kTakeBack);
    EXPECT_EQ(RecordText(decision.next),
              "primary s1/2, members s1/2, learners -, epoch 8, passed over s2 at LSN 40 of epoch "
              "7");
    EXPECT_EQ(decision.reason,
              "lost all of s1/1 s2/1, s1/2 is back with its log up to LSN 40 of epoch 7; goes on "
              "without s2/1, which may hold more");
  }
  // Nothing and damage never win, however long the others stay away.
  for (const HeldReplica& useless : {HeldReplica{.nothing = true}, HeldReplica{.damaged = true}}) {
    cluster.held[1] = useless;
    EXPECT_TRUE(cluster.Decide(record, Wish(2)).stopped);
  }
  // Damage wins where it is all there is, so that clients are told of it; nothing does not.
  EXPECT_EQ(cluster.Decide(Active({{1, 1}}), Wish(1)).step, ShardStep::kTakeBack);
  cluster.held[1] = {.nothing = true};
  EXPECT_TRUE(cluster.Decide(Active({{1, 1}}), Wish(1)).stopped);
  // Where nothing was ever acknowledged, nothing can be missing.
  EXPECT_EQ(cluster.Decide(Inactive({{1, 1}, {2, 1}}, {}), Wish(2)).step, ShardStep::kTakeBack);
}

TEST(ShardDecisionTest, AProcessThatStayedAMemberOverALostLeaseHoldsEverything) {
  Cluster cluster = BothBack({.end = {7, 40}, .member_of = 7}, {.end = {7, 41}});
  const ShardRecord record = Active({{2, 1}, {1, 1}});
  ShardDecision decision = cluster.Decide(record, Wish(2));
  EXPECT_EQ(decision.next.primary, (Member{1, 2})) << "its report may be older than its log";
  EXPECT_TRUE(decision.next.passed_over.empty());
  cluster.live.erase(2);
  EXPECT_EQ(cluster.Decide(record, Wish(2)).step, ShardStep::kTakeBack) << "nobody holds more";
  cluster.held[1].member_of = 6;
  EXPECT_TRUE(cluster.Decide(record, Wish(2)).stopped);
}

TEST(ShardDecisionTest, AMemberOfTheBaseMayHoldMoreThanAnEpochThatNeverWasActive) {
  Cluster cluster = BothBack({.end = {8, 90}}, {.end = {7, 60}});
  ShardRecord record = Inactive({{1, 1}}, {{1, 1}, {2, 1}});
  record.epoch = 8;
  record.passed_over = {{2, {7, 40}}};
  // s1 was taken at LSN 40; it has skipped LSNs of its rows since and logged nothing.
  const ShardDecision decision = cluster.Decide(record, Wish(2));
  EXPECT_EQ(RecordText(decision.next), "primary s2/4, members s2/4, learners -, epoch 9");
}

// A process that was only held up was passed over, and the one taken died before its epoch was
// active.
TEST(ShardDecisionTest, AMemberOfTheBaseThatWasPassedOverAndLivesHoldsEverything) {
  Cluster cluster = AllLive(3);
  cluster.live.erase(1);
  ShardRecord record = Inactive({{1, 2}}, {{1, 1}, {2, 1}});
  record.passed_over = {{2, {7, 40}}};
  ShardDecision decision = cluster.Decide(record, Wish(2));
  EXPECT_EQ(decision.step, ShardStep::kTakeBase);
  EXPECT_EQ(RecordText(decision.next), "primary s2/1, members s2/1, learners -, epoch 8");
  // The same of processes that are new: all are compared again.
  cluster.live[1] = 3;
  cluster.live[2] = 2;
  cluster.live[3] = 2;
  record = Inactive({{1, 2}}, {{1, 1}, {2, 1}, {3, 1}});
  record.passed_over = {{2, {7, 40}}, {3, {7, 40}}};
  cluster.held = {{1, {.end = {7, 40}}}, {2, {.end = {7, 60}}}, {3, {.end = {7, 50}}}};
  EXPECT_EQ(RecordText(cluster.Decide(record, Wish(2)).next),
            "primary s2/2, members s2/2, learners -, epoch 8");
}

TEST(ShardDecisionTest, AServerThatWasPassedOverTakesNoPartUntilItHoldsNoMore) {
  Cluster cluster = AllLive(3);
  cluster.held[2] = {.end = {7, 41}};
  cluster.room = {2, 3};
  ShardRecord record = Active({{1, 1}});
  record.passed_over = {{2, {7, 40}}};
  ShardWish wish = Wish(2, {1, 2});
  wish.readers = {2};
  EXPECT_EQ(cluster.Decide(record, wish).reason, "no other server can take replica 2 of 2");
  cluster.room = {3};
  EXPECT_EQ(RecordText(cluster.Decide(record, wish).next),
            "primary s1/1, members s1/1, learners s3/1, epoch 7 active, passed over s2 at LSN 40 "
            "of epoch 7");
  for (const HeldReplica& less : {HeldReplica{.end = {7, 40}}, HeldReplica{.nothing = true}}) {
    cluster.held[2] = less;
    const ShardDecision decision = cluster.Decide(record, wish);
    EXPECT_EQ(decision.step, ShardStep::kHeard);
    EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners -, epoch 7 active");
    EXPECT_EQ(cluster.Decide(decision.next, wish).step, ShardStep::kAddLearner);
  }
}

TEST(ShardDecisionTest, APersonChoosesAmongThoseThatAreBack) {
  Cluster cluster = BothBack({.end = {7, 40}}, {.end = {7, 41}});
  const ShardRecord record = Active({{1, 1}, {2, 1}});
  absl::StatusOr<ShardDecision> chosen = cluster.Choose(record, 1);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(RecordText(chosen->next), "primary s1/2, members s1/2, learners -, epoch 8")
      << "what s2 has more was known";
  cluster.live.erase(2);
  chosen = cluster.Choose(record, 1);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(RecordText(chosen->next),
            "primary s1/2, members s1/2, learners -, epoch 8, passed over s2 at LSN 40 of epoch 7");
  EXPECT_EQ(std::string(cluster.Choose(record, 2).status().message()).substr(0, 61),
            "server 2 is down: start it, then choose it again; stopped: lo");
  EXPECT_EQ(std::string(cluster.Choose(record, 3).status().message()).substr(0, 44),
            "server 3 held no replica that may count; sto");
  cluster.held[1] = {.nothing = true};
  EXPECT_TRUE(cluster.Choose(record, 1).ok()) << "a person may begin with an empty replica";
}

// Its server would report it as lost again in the epoch that follows.
TEST(ShardDecisionTest, APersonCannotChooseAReplicaThatIsFoundToBeSpoilt) {
  Cluster cluster = AllLive(2);
  cluster.live[1] = 2;
  cluster.held[1] = {.nothing = true};
  cluster.lost = {2};
  const ShardRecord record = Inactive({{2, 1}}, {{1, 1}, {2, 1}});
  EXPECT_TRUE(cluster.Decide(record, Wish(1)).stopped) << "nobody holds it whole";
  EXPECT_EQ(cluster.Choose(record, 2).status().message(),
            "the replica of server 2 is damaged, or differs from its primary's: choose another "
            "server; stopped: lost all of the replica of s2/1 (it is damaged, or differs from its "
            "primary's); s1/2 is back without a replica; 'hotbed shard choose' goes on at once");
  const absl::StatusOr<ShardDecision> chosen = cluster.Choose(record, 1);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(RecordText(chosen->next), "primary s1/2, members s1/2, learners -, epoch 8");
}

TEST(ShardDecisionTest, APersonGivesUpWhatWasPassedOver) {
  Cluster cluster = AllLive(3);
  ShardRecord record = Active({{1, 1}});
  EXPECT_EQ(cluster.Choose(record, 1).status().message(),
            "nothing is to be chosen: s1/1 hold the shard");
  record.passed_over = {{2, {7, 40}}};
  EXPECT_EQ(cluster.Choose(record, 2).status().message(),
            "s1/1 serves the shard and takes pushes that server 2 lacks; stop s1/1, then choose "
            "server 2 again, and those pushes are lost");
  absl::StatusOr<ShardDecision> chosen = cluster.Choose(record, 1);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(RecordText(chosen->next), "primary s1/1, members s1/1, learners -, epoch 7 active");
  EXPECT_EQ(chosen->reason, "keeps the replica of s1/1 and gives up that of s2/1");
  cluster.live.erase(1);
  chosen = cluster.Choose(record, 2);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(RecordText(chosen->next),
            "primary s2/1, members s2/1, learners -, epoch 8, passed over s1 at LSN 50 of epoch 5");
}

TEST(ShardDecisionTest, DropsADeadLearnerInANewEpoch) {
  Cluster cluster = AllLive(3);
  cluster.live[3] = 2;
  const ShardDecision decision = cluster.Decide(Active({{1, 1}}, {{2, 1}, {3, 1}}), Wish(2));
  EXPECT_EQ(decision.step, ShardStep::kDropLearner);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1, learners s2/1, epoch 8");
  EXPECT_EQ(decision.reason, "lost learner s3/1");
}

TEST(ShardDecisionTest, AMoveAddsJoinsSwitchesAndDrops) {
  Cluster cluster = AllLive(3);
  const ShardWish wish = Wish(1, {2});
  ShardDecision decision = cluster.Decide(Active({{1, 1}}), wish);
  EXPECT_EQ(decision.step, ShardStep::kAddLearner);
  EXPECT_EQ(decision.reason, "s2/1 is wanted as a member");
  ShardRecord record = decision.next;
  EXPECT_EQ(cluster.Decide(record, wish).reason, "transfer to s2/1");
  cluster.joined = {2};
  cluster.joined_in_last_epoch = true;
  EXPECT_EQ(cluster.Decide(record, wish).step, ShardStep::kNone);
  cluster.joined_in_last_epoch = false;
  decision = cluster.Decide(record, wish);
  EXPECT_EQ(decision.step, ShardStep::kJoin);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1 s2/1, learners -, epoch 8");
  record = decision.next;
  EXPECT_EQ(cluster.Decide(record, wish).step, ShardStep::kNone);  // not active yet
  record.active = true;
  record.base = record.members;
  decision = cluster.Decide(record, wish);
  EXPECT_EQ(decision.step, ShardStep::kSwitch);
  EXPECT_EQ(RecordText(decision.next), "primary s2/1, members s1/1 s2/1, learners -, epoch 9");
  record = decision.next;
  record.active = true;
  record.base = record.members;
  decision = cluster.Decide(record, wish);
  EXPECT_EQ(decision.step, ShardStep::kDropMember);
  EXPECT_EQ(RecordText(decision.next), "primary s2/1, members s2/1, learners -, epoch 10");
}

TEST(ShardDecisionTest, NeverDropsThePrimaryBeforeAnotherIs) {
  const Cluster cluster = AllLive(4);
  const ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}, {3, 1}}), Wish(2, {4, 2}));
  EXPECT_EQ(decision.step, ShardStep::kDropMember);
  EXPECT_EQ(RecordText(decision.next), "primary s1/1, members s1/1 s2/1, learners -, epoch 8");
  EXPECT_EQ(decision.reason, "s3/1 is beyond the 2 replicas wanted");
}

TEST(ShardDecisionTest, OneThatMayComeBackHoldsOffARefillElsewhere) {
  Cluster cluster = AllLive(3);
  cluster.live.erase(2);
  cluster.awaited = {2};
  ShardDecision decision = cluster.Decide(Active({{1, 1}}), Wish(2, {1, 2}));
  EXPECT_EQ(decision.step, ShardStep::kNone);
  EXPECT_EQ(decision.reason, "waits for server 2 to come back");
  cluster.awaited.clear();
  decision = cluster.Decide(Active({{1, 1}}), Wish(2, {1, 2}));
  EXPECT_EQ(decision.step, ShardStep::kAddLearner);
  EXPECT_EQ(decision.reason, "s3/1 takes replica 2 of 2");
  cluster.live.erase(3);
  EXPECT_EQ(cluster.Decide(Active({{1, 1}}), Wish(2, {1, 2})).reason,
            "no other server can take replica 2 of 2");
}

TEST(ShardDecisionTest, AServerThatStopsHandsOverAndIsExpectedBack) {
  Cluster cluster = AllLive(3);
  cluster.awaited = {1};
  cluster.stops = {{1, ServerStops::kSoon}};
  const ShardRecord before = Active({{1, 1}, {2, 1}});
  EXPECT_EQ(cluster.Decide(before, Wish(2, {})).step, ShardStep::kNone) << "others may stop too";
  cluster.stops = {{1, ServerStops::kHandsOver}};
  ShardDecision decision = cluster.Decide(before, Wish(2, {}));
  EXPECT_EQ(decision.step, ShardStep::kSwitch);
  EXPECT_EQ(decision.reason, "s1/1 is about to stop, primary is now s2/1");
  decision.next.active = true;
  decision = cluster.Decide(decision.next, Wish(2, {}));
  EXPECT_EQ(decision.step, ShardStep::kDropMember) << "no push is to wait for it when it ends";
  EXPECT_EQ(decision.reason, "s1/1 is about to stop");
  decision.next.active = true;
  const ShardRecord after = decision.next;
  EXPECT_EQ(RecordText(after), "primary s2/1, members s2/1, learners -, epoch 9 active");
  EXPECT_EQ(cluster.Decide(after, Wish(2, {1, 2})).reason, "waits for server 1 to come back");
  cluster.stops.clear();
  decision = cluster.Decide(after, Wish(2, {1, 2}));
  EXPECT_EQ(decision.step, ShardStep::kAddLearner) << "it goes on, or is back";
}

TEST(ShardDecisionTest, AGoalDoesNotKeepAServerFromHandingOver) {
  Cluster cluster = AllLive(3);
  cluster.stops = {{1, ServerStops::kHandsOver}};
  ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2, {1, 3}));
  EXPECT_EQ(decision.step, ShardStep::kSwitch);
  EXPECT_EQ(decision.next.primary.server, 2u);
  // As a primary that is wanted it is not taken, nor as a member that joins, nor as a learner.
  EXPECT_EQ(cluster.Decide(Active({{2, 1}, {3, 1}}), Wish(2, {1, 2})).step, ShardStep::kNone);
  cluster.joined = {1};
  EXPECT_EQ(cluster.Decide(Active({{2, 1}}, {{1, 1}}), Wish(2, {1, 2})).step, ShardStep::kNone);
  ShardWish readers = Wish(1, {});
  readers.readers = {1};
  EXPECT_EQ(cluster.Decide(Active({{2, 1}}), readers).step, ShardStep::kNone);
}

TEST(ShardDecisionTest, WhereAllMembersStopNobodyHandsOver) {
  Cluster cluster = AllLive(3);
  cluster.stops = {{1, ServerStops::kHandsOver}, {2, ServerStops::kSoon}};
  EXPECT_EQ(cluster.Decide(Active({{1, 1}, {2, 1}}), Wish(2, {})).step, ShardStep::kNone);
  EXPECT_EQ(cluster.Decide(Active({{1, 1}}), Wish(1, {})).step, ShardStep::kNone) << "alone";
  // A member that is dead does not stay.
  cluster.live.erase(3);
  const ShardDecision decision = cluster.Decide(Active({{1, 1}, {2, 1}, {3, 1}}), Wish(3, {}));
  EXPECT_EQ(decision.step, ShardStep::kFailOver);
  EXPECT_EQ(decision.next.members.size(), 2u);
}

TEST(ShardDecisionTest, ReadReplicasStayLearnersUntilTheyAreWantedAsMembers) {
  Cluster cluster = AllLive(3);
  ShardWish wish = Wish(1, {1});
  wish.readers = {2, 3};
  ShardDecision decision = cluster.Decide(Active({{1, 1}}), wish);
  EXPECT_EQ(decision.step, ShardStep::kAddLearner);
  EXPECT_EQ(decision.reason, "s2/1 is wanted as a read replica");
  EXPECT_EQ(decision.next.readers, std::vector<ServerId>{2}) << "pushes do not wait for it";
  cluster.joined = {2, 3};
  ShardRecord record = Active({{1, 1}}, {{2, 1}, {3, 1}});
  record.readers = {2, 3};
  EXPECT_EQ(cluster.Decide(record, wish).step, ShardStep::kNone);
  wish.servers = {3};
  decision = cluster.Decide(record, wish);
  EXPECT_EQ(decision.step, ShardStep::kLetJoin) << "whatever was said of it when it could join";
  EXPECT_EQ(decision.next.readers, std::vector<ServerId>{2});
  EXPECT_EQ(decision.next.epoch, record.epoch);
  decision = cluster.Decide(decision.next, wish);
  EXPECT_EQ(decision.step, ShardStep::kJoin);
  EXPECT_EQ(decision.next.readers, std::vector<ServerId>{2});
}

TEST(ShardDecisionTest, AReadReplicaFillsUpWhereNoOtherServerIs) {
  Cluster cluster = AllLive(3);
  cluster.live.erase(2);
  ShardWish wish = Wish(2, {1, 2});
  wish.readers = {3};
  ShardRecord record = Active({{1, 1}}, {{3, 1}});
  record.readers = {3};
  EXPECT_EQ(cluster.Decide(record, wish).step, ShardStep::kLetJoin);
  record.readers.clear();
  EXPECT_EQ(cluster.Decide(record, wish).reason, "transfer to s3/1");
  cluster.joined = {3};
  EXPECT_EQ(cluster.Decide(record, wish).step, ShardStep::kJoin);
}

TEST(ShardDecisionTest, AGoalThatWasTakenBackDropsItsLearner) {
  const ShardDecision decision = AllLive(3).Decide(Active({{1, 1}}, {{2, 1}}), Wish(1, {1}));
  EXPECT_EQ(decision.step, ShardStep::kDropLearner);
  EXPECT_EQ(decision.reason, "learner s2/1 is not wanted any more");
}

}  // namespace shard_decision_test
}  // namespace hotbed
