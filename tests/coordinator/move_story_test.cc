// Stories of moves, drains and rebalancing, and of what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "planner/coordinator/state/event_log.h"
#include "tests/coordinator/membership_story.h"

namespace hotbed {
namespace move_story_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using MoveStory = MembershipStory;

TEST_F(MoveStory, AMoveGoesStepByStepAndLeavesNoGoal) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  ASSERT_THAT(Lines(), ElementsAre("s1 e1", "s2 e1"));
  auto asked = Move(0, "", "s2");
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->number(), 1u);
  EXPECT_THAT(Lines(), ElementsAre("s1 +s2 e1", "s2 e1"));
  EXPECT_EQ(rig_.core->Moves({}).moves(0).step(), "copying");
  fleet_.Run(1000);
  EXPECT_THAT(Lines()[0], HasSubstr("s2 e"));
  EXPECT_THAT(Lines()[0], ::testing::Not(HasSubstr("s1")));
  EXPECT_EQ(rig_.core->Moves({}).moves_total(), 0u);
  EXPECT_EQ(rig_.core->Moves({}).done_total(), 1u);
  EXPECT_THAT(Events("move"), ElementsAre("t/0: from s1 to s2, move asked for"));
  EXPECT_THAT(Events("moved"), ElementsAre("t/0: move asked for"));
  // The source hears of the record that is active without it: only then it may delete its replica.
  const v1::ShardRecord& heard = fleet_.at("s1").records.at(ShardId{1, 0}.packed());
  EXPECT_TRUE(heard.active());
  EXPECT_EQ(heard.members(0).server(), fleet_.at("s2").id);
}

TEST_F(MoveStory, AllMembersOfAShardMayBeNamed) {
  Start({"s1", "s2", "s3"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  const auto ask = [&](const std::vector<std::string>& names) {
    v1::MoveShardsRequest request;
    v1::MoveShardsRequest::Move& move = *request.add_moves();
    move.set_shard(ShardId{1, 0}.packed());
    for (const std::string& name : names) move.add_servers(fleet_.at(name).id);
    return rig_.Call<v1::MoveShardsReply>(request);
  };
  EXPECT_STATUS(ask({"s1", "s2"}), kAlreadyExists, "is there already");
  EXPECT_STATUS(ask({"s3", "s3"}), kInvalidArgument, "2 distinct servers");
  EXPECT_STATUS(ask({"s3", "s2", "s1"}), kInvalidArgument, "allowed: 1 to 2");
  const auto switched = ask({"s2", "s1"});
  ASSERT_TRUE(switched.ok()) << switched.status();
  EXPECT_EQ(switched->bytes(), 0u);
  fleet_.Run(1000);
  EXPECT_THAT(Lines()[0], ::testing::StartsWith("s2 s1 e"));
  ASSERT_TRUE(ask({"s3", "s1"}).ok());
  fleet_.Run(1000);
  EXPECT_THAT(Lines()[0], ::testing::StartsWith("s3 s1 e"));
  EXPECT_EQ(rig_.core->Moves({}).moves_total(), 0u);
  fleet_.Kill("s2");
  fleet_.Run(20000);
  EXPECT_STATUS(ask({"s1", "s2"}), kFailedPrecondition, "is down");
}

// It stands in the store once for each shard.
TEST_F(MoveStory, TheReasonOfAMoveIsBounded) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  v1::MoveShardsRequest request;
  request.add_moves()->set_shard(ShardId{1, 0}.packed());
  request.mutable_moves(0)->set_to(fleet_.at("s2").id);
  request.set_reason(std::string(401, 'x'));
  EXPECT_STATUS(rig_.Call<v1::MoveShardsReply>(request), kInvalidArgument,
                "has 401 bytes, allowed: 400");
  request.mutable_reason()->pop_back();
  EXPECT_TRUE(rig_.Call<v1::MoveShardsReply>(request).ok());
}

TEST(EventLog, ALongTextIsCutBetweenCharacters) {
  ClusterState state;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "\u20ac";
  for (size_t before = 0; before < 3; ++before) {
    Transaction txn(&state);
    EventWriter(&state, 1).Add("moves", std::string(before, 'x') + text, 0, 0, &txn);
    v1::ClusterEvent event;
    ASSERT_TRUE(event.ParseFromString(txn.ops()[0].value)) << before;
    EXPECT_GT(event.text().size(), 990u);
    EXPECT_LE(event.text().size(), 1004u);
  }
}

TEST_F(MoveStory, AMoveGoesOnUnderAnotherCoordinator) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  ASSERT_TRUE(Move(0, "s1", "s2").ok());
  for (int i = 0; i < 8; ++i) {
    rig_.Start();
    rig_.Pump();
    fleet_.Run(100);
  }
  EXPECT_THAT(Lines()[0], HasSubstr("s2 e"));
  EXPECT_THAT(rig_.store.Range(keys::kGoals, PrefixLimit(keys::kGoals)).kvs, IsEmpty());
}

TEST_F(MoveStory, OnlyTwoTransfersLeaveAServerAtOnce) {
  Start({"s1"});
  Create("t", 1, 8);
  Start({"s2", "s3", "s4"});
  for (auto& [name, s] : fleet_.all()) s.joins = false;
  ASSERT_TRUE(Drain("s1").ok());
  fleet_.Run(500);
  int learners = 0;
  for (const v1::ShardRecord& r : Records()) learners += r.learners_size();
  EXPECT_EQ(learners, 2);
  const v1::ListMovesReply moves = rig_.core->Moves({});
  EXPECT_EQ(moves.moves_total(), 8u);
  EXPECT_THAT(moves.moves(7).waits_for(), "2 transfers from s1 are in progress");
  for (auto& [name, s] : fleet_.all()) s.joins = true;
  fleet_.Run(4000);
  for (const v1::ShardRecord& r : Records()) EXPECT_NE(r.primary().server(), 1u);
  EXPECT_EQ(rig_.core->Moves({}).done_total(), 8u);
  // Spread over the three, not all on one.
  std::map<ServerId, int> held;
  for (const v1::ShardRecord& r : Records()) ++held[r.primary().server()];
  for (const auto& [server, count] : held) EXPECT_GE(count, 2);
}

// Why a move takes longer than its bytes at the dial.
TEST_F(MoveStory, ATransferThatPushesOutrunSaysSo) {
  Start({"s1"});
  Create("t", 1, 1);
  Start({"s2"});
  fleet_.at("s1").joins = false;
  v1::ControlMovesRequest dial;
  dial.set_bytes_per_s(10 << 20);
  ASSERT_TRUE(rig_.Call<v1::ControlMovesReply>(dial).ok());
  ASSERT_TRUE(Move(0, "s1", "s2").ok());
  fleet_.Run(500);
  ASSERT_EQ(Records()[0].learners_size(), 1);
  const auto note = [this](uint32_t passes, uint64_t changed, bool beyond) {
    v1::TransferProgress transfer;
    transfer.set_shard(ShardId{1, 0}.packed());
    *transfer.mutable_to() = Records()[0].learners(0);
    transfer.set_bytes_copied(30 << 20);
    transfer.set_bytes_total(50 << 20);
    transfer.set_passes(passes);
    transfer.set_changed_bytes_per_s(changed);
    transfer.set_beyond_rate(beyond);
    fleet_.at("s1").transfers = {transfer};
    fleet_.Run(200);
    return rig_.core->Moves({}).moves(0).waits_for();
  };
  EXPECT_EQ(note(1, 0, false), "transfer to s2/1");
  EXPECT_EQ(rig_.core->Moves({}).bytes_left(), 20u << 20);
  EXPECT_EQ(note(2, 4 << 20, false),
            "transfer to s2/1, pass 2 over its rows: pushes change 4 MiB/s of them meanwhile");
  EXPECT_EQ(
      note(3, 21 << 20, true),
      "transfer to s2/1, pass 3 over its rows: pushes change 21 MiB/s of them meanwhile, too much "
      "for the 10 MiB/s that all transfers may take; it goes on beyond that (raise it with "
      "--bandwidth)");
}

TEST_F(MoveStory, WhatIsRefusedAndLeavesNoTrace) {
  Start({"s1", "s2", "s3", "s4"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  fleet_.at("s4").load.set_read_only(true);
  fleet_.Run(100);
  fleet_.Start("s5");
  fleet_.Kill("s5");
  rig_.Pump();
  const uint64_t revision = Revision();
  EXPECT_STATUS(Move(0, "", "s1"), kAlreadyExists, "t/0 is on s1 already");
  EXPECT_STATUS(Move(0, "s2", "s1"), kAlreadyExists, "on s1 already");
  EXPECT_STATUS(Move(0, "s3", "s4"), kFailedPrecondition, "no replica on s3");
  EXPECT_STATUS(Move(7, "", "s3"), kNotFound, "shard 1/7 does not exist");
  EXPECT_STATUS(Move(0, "", "s3", false, 9), kNotFound, "shard 9/0 does not exist");
  EXPECT_STATUS(Move(0, "", "s4"), kFailedPrecondition, "read-only");
  EXPECT_STATUS(Move(0, "", "s5"), kFailedPrecondition, "s5 (number 5) is down");
  v1::MoveShardsRequest request;
  EXPECT_STATUS(rig_.Call<v1::MoveShardsReply>(request), kInvalidArgument, "moves of 0 shards");
  request.add_moves()->set_shard(ShardId{1, 0}.packed());
  request.mutable_moves(0)->set_to(77);
  EXPECT_STATUS(rig_.Call<v1::MoveShardsReply>(request), kNotFound, "server 77");
  request.mutable_moves(0)->set_to(fleet_.at("s3").id);
  *request.add_moves() = request.moves(0);
  EXPECT_STATUS(rig_.Call<v1::MoveShardsReply>(request), kInvalidArgument, "stands twice");
  EXPECT_STATUS(Drain("nobody"), kNotFound, "\"nobody\"");
  ASSERT_TRUE(Move(0, "", "s3", /*dry_run=*/true).ok());
  auto drain = Drain("s1", /*undo=*/false, /*dry_run=*/true);
  ASSERT_TRUE(drain.ok()) << drain.status();
  EXPECT_EQ(drain->shards(), 1u);
  EXPECT_EQ(Revision(), revision) << "nothing was written";

  ASSERT_TRUE(Move(0, "", "s3").ok());
  EXPECT_STATUS(Move(0, "s2", "s3"), kFailedPrecondition, "is moving already (request 1");
}

TEST_F(MoveStory, DrainsThatCannotBe) {
  Start({"s1"});
  Create("t", 1, 1);
  EXPECT_STATUS(Drain("s1"), kFailedPrecondition, "the last one that may hold shards");
  Start({"s2"});
  Create("u", 2, 1);
  EXPECT_STATUS(Drain("s1"), kFailedPrecondition, "no other server may take it");
  Start({"s3"});
  ASSERT_TRUE(Drain("s1").ok());
  EXPECT_STATUS(Move(0, "", "s3"), kFailedPrecondition,
                "is moving already (request 1, drain of s1");
  fleet_.Run(3000);
  for (const v1::ShardRecord& r : Records()) EXPECT_THAT(Line(r), ::testing::Not(HasSubstr("s1")));
  EXPECT_STATUS(Move(0, "", "s1"), kFailedPrecondition, "is being drained");
  EXPECT_STATUS(Drain("s2"), kFailedPrecondition, "no other server may take it");
  ASSERT_TRUE(Drain("s1", /*undo=*/true).ok());
  EXPECT_FALSE(Map().servers(0).draining());
  EXPECT_THAT(Events("drain"),
              ElementsAre(HasSubstr("2 shards are to leave"), HasSubstr("may take shards again")));
}

TEST_F(MoveStory, ADrainKeepsWhenItsServerOrTheCoordinatorIsRestarted) {
  Start({"s1", "s2"});
  Create("t", 1, 4);
  fleet_.at("s1").joins = false;
  ASSERT_TRUE(Drain("s1").ok());
  fleet_.Run(300);
  fleet_.Kill("s1");
  fleet_.Run(300);
  rig_.Start();
  rig_.Pump();
  fleet_.Start("s1");
  EXPECT_TRUE(Map().servers(0).draining());
  fleet_.Run(3000);
  for (const v1::ShardRecord& r : Records()) EXPECT_EQ(Name(r.primary().server()), "s2");
}

TEST_F(MoveStory, AbortTakesBackWhatHasNotJoined) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  fleet_.at("s1").joins = false;
  ASSERT_TRUE(Move(0, "", "s2").ok());
  fleet_.Run(300);
  EXPECT_THAT(Lines()[0], "s1 +s2 e1");
  v1::ControlMovesRequest unknown;
  unknown.set_action(v1::ControlMovesRequest::ABORT);
  unknown.set_number(9);
  EXPECT_STATUS(rig_.Call<v1::ControlMovesReply>(unknown), kNotFound,
                "request 9 has no move and no drain to be taken back");
  EXPECT_EQ(Control(v1::ControlMovesRequest::ABORT, 1).moves(), 1u);
  fleet_.Run(300);
  EXPECT_THAT(Lines()[0], "s1 e2");
  EXPECT_EQ(rig_.core->Moves({}).moves_total(), 0u);

  ASSERT_TRUE(Drain("s1").ok());
  fleet_.Run(200);
  Control(v1::ControlMovesRequest::ABORT);
  fleet_.Run(1000);
  EXPECT_FALSE(Map().servers(0).draining()) << "else its goals would come again";
  EXPECT_THAT(Lines()[0], "s1 e3");
}

TEST_F(MoveStory, PauseHoldsTransfersAndTheDialIsShared) {
  Start({"s1", "s2"});
  Create("t", 1, 4);
  Control(v1::ControlMovesRequest::PAUSE);
  ASSERT_TRUE(Move(0, "", "s2").ok());
  fleet_.Run(500);
  EXPECT_THAT(Lines()[0], "s1 e1");
  EXPECT_EQ(rig_.core->Moves({}).moves(0).waits_for(), "transfers are paused");
  EXPECT_TRUE(fleet_.at("s1").limits.paused());
  rig_.Start();  // kept in the store
  rig_.Pump();
  fleet_.Run(500);
  EXPECT_THAT(Lines()[0], "s1 e1");

  for (auto& [name, s] : fleet_.all()) s.joins = false;
  v1::ControlMovesRequest dial;
  dial.set_action(v1::ControlMovesRequest::RESUME);
  dial.set_bytes_per_s(1000);
  dial.set_pull_p99_ms_max(7);
  ASSERT_TRUE(rig_.Call<v1::ControlMovesReply>(dial).ok());
  fleet_.Run(200);
  EXPECT_FALSE(fleet_.at("s1").limits.paused());
  EXPECT_EQ(fleet_.at("s1").limits.bytes_per_s(), 1000u) << "one sends";
  EXPECT_EQ(fleet_.at("s1").limits.pull_p99_ms_max(), 7u);
  ASSERT_TRUE(Move(2, "", "s1").ok());
  fleet_.Run(200);
  EXPECT_EQ(fleet_.at("s1").limits.bytes_per_s(), 500u) << "two send";
}

TEST_F(MoveStory, AMoveToAServerThatDiesForGoodIsGivenUp) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  fleet_.at("s1").joins = false;
  ASSERT_TRUE(Move(0, "", "s2").ok());
  fleet_.Run(200);
  fleet_.Kill("s2");
  fleet_.Run(5000);
  EXPECT_EQ(rig_.core->Moves({}).moves_total(), 1u) << "it may come back";
  fleet_.Run(6000);
  EXPECT_EQ(rig_.core->Moves({}).moves_total(), 0u);
  EXPECT_THAT(Events("give_up"), ElementsAre(HasSubstr("s2 (number 2) is down")));
  EXPECT_THAT(Lines()[0], HasSubstr("s1 e"));
}

TEST_F(MoveStory, ABackupChangesPlacesWithItsPrimary) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  ASSERT_TRUE(Move(0, "s1", "s2").ok());
  fleet_.Run(500);
  EXPECT_THAT(Lines(), ElementsAre("s2 s1 e2"));
}

TEST_F(MoveStory, AServerThatComesIsGivenItsPartUnlessThatIsOff) {
  Start({"s1"});
  Create("t", 1, 8);
  Control(v1::ControlMovesRequest::REBALANCE_OFF);
  Start({"s2"});
  fleet_.Run(10000);
  EXPECT_THAT(Lines(), ::testing::Each("s1 e1"));
  EXPECT_FALSE(rig_.core->Moves({}).rebalance().on());
  rig_.Start();
  rig_.Pump();
  fleet_.Run(10000);
  EXPECT_THAT(Lines(), ::testing::Each("s1 e1")) << "kept in the store";
  Control(v1::ControlMovesRequest::REBALANCE_ON);
  fleet_.Run(20000);
  const std::vector<std::string> lines = Lines();
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& l) { return l.starts_with("s2"); }),
            4);
  EXPECT_THAT(Events("rebalance"), ElementsAre(HasSubstr("s2")));
  EXPECT_THAT(rig_.core->Moves({}).rebalance().last_reason(), HasSubstr("s2"));
}

}  // namespace move_story_test
}  // namespace hotbed
