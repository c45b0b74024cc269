// Stories of shards with several copies: fail-over, refills, moves, drains, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/coordinator/core_story.h"
#include "tests/coordinator/fleet.h"

namespace hotbed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MembershipStory : public CoreStory {
 protected:
  // A table of `copies` copies in `shards` shards.
  void Create(const std::string& name, uint32_t copies, uint32_t shards) {
    auto created = rig_.Create(Request(name, copies, shards));
    ASSERT_TRUE(created.ok()) << created.status();
    fleet_.Run(300);
  }
  static v1::CreateTableRequest Request(const std::string& name, uint32_t copies,
                                        uint32_t shards) {
    v1::CreateTableRequest request = CoreRig::Table(name, 10000);  // below 1 MiB: as many shards as asked
    request.set_shards(shards);
    if (copies > 1) {
      request.mutable_spec()->set_durability(v1::DURABILITY_REPLICATED);
      request.mutable_spec()->set_copies(copies);
    }
    return request;
  }
  void Start(const std::vector<std::string>& names) {
    for (const std::string& name : names) fleet_.Start(name);
  }
  std::string Name(ServerId id) {
    for (const auto& [name, s] : fleet_.all()) {
      if (s.id == id) return name;
    }
    return "?";
  }
  // "s1 s2 +s3 e4" : the primary first, learners with a plus, and whether it is not active.
  std::string Line(const v1::ShardRecord& r) {
    std::string line = Name(r.primary().server());
    for (const v1::Member& m : r.members()) {
      if (m.server() != r.primary().server()) absl::StrAppend(&line, " ", Name(m.server()));
    }
    for (const v1::Member& m : r.learners()) absl::StrAppend(&line, " +", Name(m.server()));
    absl::StrAppend(&line, " e", r.epoch());
    return r.active() ? line : line + " waits";
  }
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    for (const v1::ShardRecord& r : Records()) lines.push_back(Line(r));
    return lines;
  }
  absl::StatusOr<v1::MoveShardsReply> Move(uint32_t index, const std::string& from,
                                           const std::string& to, bool dry_run = false,
                                           TableId table = 1) {
    v1::MoveShardsRequest request;
    v1::MoveShardsRequest::Move* move = request.add_moves();
    move->set_shard(ShardId{table, index}.packed());
    if (!from.empty()) move->set_from(fleet_.at(from).id);
    move->set_to(fleet_.at(to).id);
    request.set_dry_run(dry_run);
    return rig_.Call<v1::MoveShardsReply>(request);
  }
  absl::StatusOr<v1::DrainServerReply> Drain(const std::string& name, bool undo = false,
                                             bool dry_run = false) {
    v1::DrainServerRequest request;
    request.set_server(name);
    request.set_undo(undo);
    request.set_dry_run(dry_run);
    return rig_.Call<v1::DrainServerReply>(request);
  }
  v1::ControlMovesReply Control(v1::ControlMovesRequest::Action action, uint64_t number = 0) {
    v1::ControlMovesRequest request;
    request.set_action(action);
    request.set_number(number);
    auto reply = rig_.Call<v1::ControlMovesReply>(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::ControlMovesReply();
  }
  std::vector<std::string> Events(const std::string& kind) {
    std::vector<std::string> out;
    const v1::ListEventsReply listed = rig_.core->Events({});
    for (const v1::ClusterEvent& e : listed.events()) {
      if (e.kind() == kind) out.push_back(e.text());
    }
    return out;
  }
  uint64_t Revision() const { return rig_.store.revision; }

  Fleet fleet_{&rig_};
};

TEST_F(MembershipStory, AKilledServersShardsAreServedByTheirBackupsAtOnce) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  fleet_.Kill("s1");
  rig_.Pump();
  EXPECT_THAT(Lines(), ElementsAre("s2 e2 waits")) << "no lease was waited for";
  EXPECT_FALSE(Map().servers(0).live());
  fleet_.Beat(&fleet_.at("s2"));
  EXPECT_THAT(Lines(), ElementsAre("s2 e2"));
  EXPECT_EQ(rig_.fail_over_ns.size(), 1u);
  EXPECT_THAT(Events("server_down"), ElementsAre(HasSubstr("data port is closed")));
  EXPECT_THAT(Events("fail_over"), ElementsAre(HasSubstr("t/0: lost s1/1")));

  // It comes back within the wait: the copy is its again.
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s2 e2"));
  fleet_.Start("s1");
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s2 s1 e3"));
  EXPECT_EQ(rig_.core->membership().counts().refills, 1u);
}

TEST_F(MembershipStory, ABrokenStreamOfALiveServerEndsNothing) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  rig_.Step(StreamBrokenEvent{fleet_.at("s1").id, fleet_.at("s1").incarnation});
  ASSERT_EQ(rig_.probes.size(), 1u);
  fleet_.AnswerProbes();
  rig_.Pump();
  EXPECT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  // An answer for a process that is gone says nothing of its successor.
  rig_.Step(StreamBrokenEvent{fleet_.at("s1").id, fleet_.at("s1").incarnation});
  fleet_.Start("s1");
  rig_.Step(ProbedEvent{fleet_.at("s1").id, 1, ProbeAnswer::kRefused});
  rig_.Pump();
  EXPECT_TRUE(Map().servers(0).live());
}

TEST_F(MembershipStory, ASilentServerFailsOverAfterItsLease) {
  Start({"s1", "s2", "s3"});
  Create("t", 2, 1);
  fleet_.Silence("s1");
  fleet_.Run(2800);
  EXPECT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  fleet_.Run(400);
  EXPECT_THAT(Lines(), ElementsAre("s2 e2"));
  // Not before the wait is over is another copy made.
  fleet_.Run(8000);
  EXPECT_THAT(Lines(), ElementsAre("s2 e2"));
  fleet_.Run(3000);
  EXPECT_THAT(Lines(), ElementsAre("s2 s3 e3"));
  EXPECT_THAT(Events("refill"), ElementsAre("t/0: a copy to s3"));
  // Woken up, the old process hears that it is none any more, and gets nothing back.
  EXPECT_FALSE(fleet_.Beat(&fleet_.at("s1")));
  EXPECT_THAT(Lines(), ElementsAre("s2 s3 e3"));
}

TEST_F(MembershipStory, WhoAnswersAProbeIsNotFailedOverWithTheOthers) {
  Start({"s1", "s2", "s3", "s4"});
  Create("t", 2, 8);
  // Heartbeats of three stop to arrive: two of them are dead, one is fine.
  const std::vector<std::string> lost = {"s1", "s2", "s3"};
  for (int i = 0; i < 31; ++i) {
    rig_.Tick(100);
    rig_.Pump();
    fleet_.Beat(&fleet_.at("s4"));
  }
  EXPECT_EQ(rig_.probes.size(), 3u);
  const v1::ClusterMap before = Map();
  for (const v1::ServerInfo& s : before.servers()) EXPECT_TRUE(s.live()) << "none without a probe";
  fleet_.Silence("s1");
  fleet_.at("s2").state = Fleet::State::kDown;
  fleet_.AnswerProbes();
  rig_.Pump();
  const v1::ClusterMap map = Map();
  EXPECT_FALSE(map.servers(0).live());
  EXPECT_FALSE(map.servers(1).live());
  EXPECT_TRUE(map.servers(2).live());
  EXPECT_TRUE(map.servers(3).live());
}

TEST_F(MembershipStory, AThousandShardsFailOverInTransactionsOfMany) {
  Start({"s1", "s2"});
  Create("t", 2, 1000);
  fleet_.Run(500);
  uint64_t revision = Revision();
  fleet_.Kill("s1");
  rig_.Pump();
  EXPECT_LE(Revision() - revision, 12u) << "transactions";
  fleet_.Beat(&fleet_.at("s2"));
  EXPECT_EQ(Lines(), std::vector<std::string>(1000, "s2 e2"));
  EXPECT_EQ(rig_.fail_over_ns.size() >= 500, true) << "those that s1 was primary of, at least";
}

TEST_F(MembershipStory, AFailOverGoesBeforeACreationThatIsUnderWay) {
  Start({"s1", "s2"});
  Create("t", 2, 4);
  const CallerToken caller = rig_.Send(Request("wide", 1, 1000));
  rig_.StepStore();
  rig_.StepStore();
  fleet_.Kill("s1");
  rig_.StepStore();  // the creation's one that was under way
  rig_.StepStore();  // the fail-over
  EXPECT_THAT(Lines(), ElementsAre("s2 e2 waits", "s2 e2 waits", "s2 e2 waits", "s2 e2 waits"));
  EXPECT_EQ(rig_.replies.count(caller), 0u);
  rig_.Pump();
  ASSERT_TRUE(rig_.replies.at(caller).ok()) << rig_.replies.at(caller).status();
  EXPECT_EQ(Map().tables_size(), 2);
  EXPECT_EQ(Map().shards_size(), 1004) << "nothing of the creation was taken for a leftover";
}

TEST_F(MembershipStory, AMoveGoesStepByStepAndLeavesNoGoal) {
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
  // The source hears of the record that is active without it: only then it may delete its copy.
  const v1::ShardRecord& heard = fleet_.at("s1").records.at(ShardId{1, 0}.packed());
  EXPECT_TRUE(heard.active());
  EXPECT_EQ(heard.members(0).server(), fleet_.at("s2").id);
}

TEST_F(MembershipStory, AMoveGoesOnUnderAnotherCoordinator) {
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

TEST_F(MembershipStory, OnlyTwoCopiesLeaveAServerAtOnce) {
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
  EXPECT_THAT(moves.moves(7).waits_for(), "2 copies from s1 are under way");
  for (auto& [name, s] : fleet_.all()) s.joins = true;
  fleet_.Run(4000);
  for (const v1::ShardRecord& r : Records()) EXPECT_NE(r.primary().server(), 1u);
  EXPECT_EQ(rig_.core->Moves({}).done_total(), 8u);
  // Spread over the three, not all on one.
  std::map<ServerId, int> held;
  for (const v1::ShardRecord& r : Records()) ++held[r.primary().server()];
  for (const auto& [server, count] : held) EXPECT_GE(count, 2);
}

TEST_F(MembershipStory, WhatIsRefusedAndLeavesNoTrace) {
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
  EXPECT_STATUS(Move(0, "s3", "s4"), kFailedPrecondition, "no copy on s3");
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

TEST_F(MembershipStory, DrainsThatCannotBe) {
  Start({"s1"});
  Create("t", 1, 1);
  EXPECT_STATUS(Drain("s1"), kFailedPrecondition, "the last one that may hold shards");
  Start({"s2"});
  Create("u", 2, 1);
  EXPECT_STATUS(Drain("s1"), kFailedPrecondition, "no other server may take it");
  Start({"s3"});
  ASSERT_TRUE(Drain("s1").ok());
  EXPECT_STATUS(Move(0, "", "s3"), kFailedPrecondition, "is moving already (request 1, drain of s1");
  fleet_.Run(3000);
  for (const v1::ShardRecord& r : Records()) EXPECT_THAT(Line(r), ::testing::Not(HasSubstr("s1")));
  EXPECT_STATUS(Move(0, "", "s1"), kFailedPrecondition, "is being drained");
  EXPECT_STATUS(Drain("s2"), kFailedPrecondition, "no other server may take it");
  ASSERT_TRUE(Drain("s1", /*undo=*/true).ok());
  EXPECT_FALSE(Map().servers(0).draining());
  EXPECT_THAT(Events("drain"), ElementsAre(HasSubstr("2 shards are to leave"),
                                           HasSubstr("may take shards again")));
}

TEST_F(MembershipStory, ADrainKeepsWhenItsServerOrTheCoordinatorIsRestarted) {
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

TEST_F(MembershipStory, AbortTakesBackWhatHasNotJoined) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  fleet_.at("s1").joins = false;
  ASSERT_TRUE(Move(0, "", "s2").ok());
  fleet_.Run(300);
  EXPECT_THAT(Lines()[0], "s1 +s2 e1");
  EXPECT_EQ(Control(v1::ControlMovesRequest::ABORT, 9).moves(), 0u) << "of another request";
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

TEST_F(MembershipStory, PauseHoldsCopiesAndTheDialIsShared) {
  Start({"s1", "s2"});
  Create("t", 1, 4);
  Control(v1::ControlMovesRequest::PAUSE);
  ASSERT_TRUE(Move(0, "", "s2").ok());
  fleet_.Run(500);
  EXPECT_THAT(Lines()[0], "s1 e1");
  EXPECT_EQ(rig_.core->Moves({}).moves(0).waits_for(), "copies are paused");
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

TEST_F(MembershipStory, AServerThatStopsHandsItsShardsOverFirst) {
  Start({"s1", "s2", "s3"});
  Create("t", 2, 3);
  fleet_.at("s1").stopping = true;
  fleet_.Run(600);
  for (const v1::ShardRecord& r : Records()) {
    EXPECT_THAT(Line(r), ::testing::Not(HasSubstr("s1"))) << "not waited for by anybody";
    EXPECT_TRUE(r.active());
  }
  fleet_.Kill("s1");
  fleet_.Run(200);
  fleet_.Start("s1");
  fleet_.Run(2000);
  for (const v1::ShardRecord& r : Records()) EXPECT_EQ(r.members_size(), 2);
}

TEST_F(MembershipStory, AMoveToAServerThatDiesForGoodIsGivenUp) {
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

TEST_F(MembershipStory, EveryServerReadsADataParallelTable) {
  Start({"s1", "s2"});
  v1::CreateTableRequest request = Request("t", 1, 1);
  request.mutable_spec()->set_data_parallel(true);
  ASSERT_TRUE(rig_.Create(request).ok());
  fleet_.Run(500);
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("s1 +s2 e")));
  Start({"s3"});
  fleet_.Run(3000);
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("s1 +s2 +s3 e")));
  EXPECT_EQ(Records()[0].members_size(), 1) << "they stay learners";
}

TEST_F(MembershipStory, CopiesWantFailureDomainsOfTheirOwn) {
  Start({"s1"});
  EXPECT_STATUS(rig_.Create(Request("t", 2, 1)), kFailedPrecondition, "domain");
  v1::RegisterServerRequest same;
  same.set_name("s2");
  same.set_address("s1:2");
  same.set_feature_level(kFeatureLevel);
  ASSERT_TRUE(rig_.Call<v1::RegisterServerReply>(same).ok());
  EXPECT_STATUS(rig_.Create(Request("t", 2, 1)), kFailedPrecondition, "domain");
  EXPECT_EQ(Map().tables_size(), 0);
}

TEST_F(MembershipStory, AnOlderServerIsGivenNoCopies) {
  Start({"s1"});
  Create("t", 1, 1);
  v1::RegisterServerRequest old;
  old.set_name("old");
  old.set_address("old:1");
  old.set_feature_level(kReplicationFeatureLevel - 1);
  ASSERT_TRUE(rig_.Call<v1::RegisterServerReply>(old).ok());
  v1::MoveShardsRequest request;
  request.add_moves()->set_shard(ShardId{1, 0}.packed());
  request.mutable_moves(0)->set_to(2);
  EXPECT_STATUS(rig_.Call<v1::MoveShardsReply>(request), kFailedPrecondition, "feature level 1");
}

TEST_F(MembershipStory, ABackupChangesPlacesWithItsPrimary) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  ASSERT_TRUE(Move(0, "s1", "s2").ok());
  fleet_.Run(500);
  EXPECT_THAT(Lines(), ElementsAre("s2 s1 e2"));
}

TEST_F(MembershipStory, AHolderThatTheMapForgotIsToldWhatBecameOfItsShards) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  v1::HeartbeatRequest request;
  request.set_server(fleet_.at("s1").id);
  request.set_incarnation(fleet_.at("s1").incarnation);
  request.set_plan_revision_known(Map().plan_revision());
  request.add_held_unnamed(ShardId{1, 1}.packed());  // s2's
  request.add_held_unnamed(ShardId{9, 0}.packed());  // of no table, nor ever was one
  auto reply = rig_.Call<v1::HeartbeatReply>(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->map().shards_size(), 1);
  EXPECT_EQ(reply->map().shards(0).primary().server(), fleet_.at("s2").id);
  EXPECT_EQ(reply->map().tables_size(), 1);
  EXPECT_TRUE(reply->map().tables_dropped().empty());
  ASSERT_TRUE(rig_.Drop("t").ok());
  rig_.Pump();
  request.set_plan_revision_known(Map().plan_revision());
  reply = rig_.Call<v1::HeartbeatReply>(request);
  EXPECT_THAT(reply->map().tables_dropped(), ElementsAre(1));
}

TEST_F(MembershipStory, AServerThatComesIsGivenItsPartUnlessThatIsOff) {
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

TEST_F(MembershipStory, TheEventLogKeepsTheNewest) {
  Start({"s1"});
  for (int i = 0; i < 4200; ++i) fleet_.Start("s1");
  const auto kept = rig_.store.Range(keys::kEvents, PrefixLimit(keys::kEvents)).kvs;
  EXPECT_EQ(kept.size(), 4096u);
  v1::ListEventsRequest request;
  request.set_limit(10000);
  const v1::ListEventsReply all = rig_.core->Events(request);
  ASSERT_EQ(all.events_size(), 4096);
  EXPECT_EQ(all.events(4095).number(), 4201u);
  request.set_after(4200);
  EXPECT_EQ(rig_.core->Events(request).events_size(), 1);
  EXPECT_EQ(rig_.core->Events({}).events_size(), 1000);
}

TEST_F(MembershipStory, AStoreOfTheFormerFormatIsTakenOverAndShutToItsCoordinators) {
  Start({"s1"});
  rig_.store.Txn({}, {{Op::Kind::kPut, keys::kFormatKey, keys::kFormatBefore, 0}});
  rig_.Start();
  rig_.Pump();
  EXPECT_TRUE(rig_.core->serving());
  EXPECT_EQ(rig_.store.Range(keys::kFormatKey, "").kvs[0].value, keys::kFormat);
  EXPECT_STRNE(keys::kFormat, keys::kFormatBefore);
}

}  // namespace
}  // namespace hotbed
