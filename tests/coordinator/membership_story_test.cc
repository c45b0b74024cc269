// Stories of servers that are lost and come back, and of replicas that are made again.
#include "tests/coordinator/membership_story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/convert.h"

namespace hotbed {
namespace membership_story_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

  // It comes back within the wait: the replica is its again.
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s2 e2"));
  fleet_.Start("s1");
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s2 s1 e3"));
  EXPECT_EQ(rig_.core->membership().counts().refills, 1u);
}

TEST_F(MembershipStory, AReplicaThatItsServerCallsLostIsTakenOutAndMadeAnew) {
  Start({"s1", "s2"});
  Create("t", 2, 2);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1", "s2 s1 e1"));
  // A report of another epoch, or by a process that is no member, has no effect.
  Fleet::Server& s2 = fleet_.at("s2");
  s2.replicas_lost = {{ShardId{1, 0}.packed(), 7}};
  fleet_.Run(500);
  EXPECT_THAT(Lines(), ElementsAre("s1 s2 e1", "s2 s1 e1"));
  // The replica of a backup.
  s2.replicas_lost = {{ShardId{1, 0}.packed(), 1}};
  fleet_.Beat(&s2);
  rig_.Pump();
  EXPECT_THAT(Lines(), ElementsAre("s1 e2 waits", "s2 s1 e1")) << "nothing was waited for";
  EXPECT_THAT(Events("replica_lost"), ElementsAre(HasSubstr("t/0: lost the replica of s2/")));
  fleet_.Run(1000);  // it says so again, and that is over
  EXPECT_THAT(Lines(), ElementsAre("s1 s2 e3", "s2 s1 e1"));
  EXPECT_EQ(rig_.core->membership().counts().refills, 1u);
  // The replica of a primary.
  s2.replicas_lost = {{ShardId{1, 1}.packed(), 1}};
  fleet_.Beat(&s2);
  rig_.Pump();
  EXPECT_THAT(Lines(), ElementsAre("s1 s2 e3", "s1 e2 waits"));
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s1 s2 e3", "s1 s2 e3"));
  EXPECT_THAT(Events("fail_over"), ElementsAre());
}

TEST_F(MembershipStory, ALearnerWhoseReplicaIsLostLearnsAnewInALaterEpoch) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  fleet_.Kill("s2");
  rig_.Pump();
  fleet_.Run(1000);
  ASSERT_THAT(Lines(), ElementsAre("s1 e2"));
  fleet_.at("s1").joins = false;
  fleet_.Start("s2");
  fleet_.Run(1000);
  ASSERT_THAT(Lines(), ElementsAre("s1 +s2 e2"));
  fleet_.at("s2").replicas_lost = {{ShardId{1, 0}.packed(), 2}};
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s1 +s2 e3")) << "what was said of epoch 2 counts no more";
}

TEST_F(MembershipStory, TheLastReplicaStaysWhereItIsThoughItIsCalledLost) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  for (const char* name : {"s1", "s2"}) {
    fleet_.at(name).replicas_lost = {{ShardId{1, 0}.packed(), 1}, {ShardId{1, 0}.packed(), 2}};
  }
  fleet_.Beat(&fleet_.at("s1"));
  rig_.Pump();
  ASSERT_THAT(Lines(), ElementsAre("s2 e2 waits"));
  fleet_.at("s2").replicas_lost = {{ShardId{1, 0}.packed(), 2}};
  fleet_.Run(1000);
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("s2")) << "nobody else holds it whole";
}

TEST_F(MembershipStory, EventsCallServersByTheirNamesAndNotByTheirNumbers) {
  Start({"s2", "s1"});  // numbers 1 and 2
  Create("t", 2, 1);
  fleet_.Kill("s2");
  rig_.Pump();
  EXPECT_THAT(Events("fail_over"), ElementsAre(HasSubstr("t/0: lost s2/1, primary is now s1/")));
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
  // Not before the wait is over is another replica made.
  fleet_.Run(8000);
  EXPECT_THAT(Lines(), ElementsAre("s2 e2"));
  fleet_.Run(3000);
  EXPECT_THAT(Lines(), ElementsAre("s2 s3 e3"));
  EXPECT_THAT(Events("refill"), ElementsAre("t/0: a replica on s3"));
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
  rig_.StepStore();  // the creation's transaction in flight
  rig_.StepStore();  // the fail-over
  EXPECT_THAT(Lines(), ElementsAre("s2 e2 waits", "s2 e2 waits", "s2 e2 waits", "s2 e2 waits"));
  EXPECT_EQ(rig_.replies.count(caller), 0u);
  rig_.Pump();
  ASSERT_TRUE(rig_.replies.at(caller).ok()) << rig_.replies.at(caller).status();
  EXPECT_EQ(Map().tables_size(), 2);
  EXPECT_EQ(Map().shards_size(), 1004) << "nothing of the creation was taken for a leftover";
}

// Both reach the coordinator, and not each other.
TEST_F(MembershipStory, AMemberThatItsPrimaryDoesNotHearOfLeaves) {
  Start({"s1", "s2", "s3"});
  Create("a", 2, 6);
  fleet_.at("s1").deaf_to = {"s2"};
  fleet_.at("s2").deaf_to = {"s1"};
  fleet_.Run(3000);
  for (const v1::ShardRecord& r : Records()) {
    EXPECT_TRUE(r.active()) << Line(r);
    EXPECT_EQ(r.members_size(), 2) << Line(r);
    const auto held_by = [&](const char* name) {
      return ContainsServer(FromProto(r)->members, fleet_.at(name).id);
    };
    EXPECT_FALSE(held_by("s1") && held_by("s2")) << Line(r);
  }
  EXPECT_THAT(Events("cut_off"), Contains(HasSubstr("lives, but s")));
}

TEST_F(MembershipStory, WhereThereIsNoOtherServerTheShardGoesOnAlone) {
  Start({"s1", "s2"});
  Create("a", 2, 2);
  fleet_.at("s1").deaf_to = {"s2"};
  fleet_.at("s2").deaf_to = {"s1"};
  fleet_.Run(3000);
  for (const v1::ShardRecord& r : Records()) {
    EXPECT_TRUE(r.active()) << Line(r);
    EXPECT_EQ(r.members_size(), 1) << Line(r);
  }
  fleet_.at("s1").deaf_to.clear();
  fleet_.at("s2").deaf_to.clear();
  fleet_.Run(40000);
  for (const v1::ShardRecord& r : Records()) EXPECT_EQ(r.members_size(), 2) << Line(r);
}

TEST_F(MembershipStory, NoReplicaIsMovedToWhoWasNotHeardOf) {
  Start({"s1", "s2", "s3"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  fleet_.at("s1").deaf_to = {"s2"};
  fleet_.Run(3000);
  ASSERT_THAT(Lines(), ElementsAre("s1 s3 e3"));
  EXPECT_THAT(Events("cut_off"),
              ElementsAre(HasSubstr("t/0: lost s2/1 (it lives, but s1/1, the primary, does not")));
  ASSERT_TRUE(Move(0, "s3", "s2").ok());
  fleet_.Run(500);
  EXPECT_THAT(Lines(), ElementsAre("s1 s3 e3"));
  EXPECT_THAT(
      Events("give_up"),
      ElementsAre(HasSubstr("s2: it and a primary of the shard do not hear of each other")));
  fleet_.Run(30000);
  ASSERT_TRUE(Move(0, "s3", "s2").ok());
  fleet_.at("s1").deaf_to.clear();
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("s1 s2 e")));
}

// Each would hand its replicas to the next, and the last one hold all.
TEST_F(MembershipStory, ServersThatStopTogetherHandNothingOver) {
  Start({"s1", "s2", "s3"});
  Create("a", 2, 6);
  const std::vector<std::string> before = Lines();
  for (const char* name : {"s1", "s2", "s3"}) {
    fleet_.at(name).stopping = true;
    fleet_.Run(100);
  }
  fleet_.Run(2000);
  EXPECT_EQ(Lines(), before);
  EXPECT_THAT(Events("switch"), ElementsAre());
}

TEST_F(MembershipStory, AServerThatStopsHandsItsShardsOverFirst) {
  Start({"s1", "s2", "s3"});
  Create("t", 2, 3);
  fleet_.at("s1").stopping = true;
  fleet_.Run(1200);
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

// Its rows are all on its disk. A refill elsewhere would copy them.
TEST_F(MembershipStory, AServerThatStopsIsExpectedBack) {
  Start({"s1", "s2", "s3"});
  Create("t", 2, 6);
  fleet_.at("s1").stopping = true;
  fleet_.Run(8000);  // it has much to write back
  fleet_.Kill("s1");
  fleet_.Run(8000);
  EXPECT_THAT(Events("refill"), ElementsAre()) << "not while it stops, nor for --refill-wait-ms";
  for (const std::string& line : Lines()) EXPECT_THAT(line, ::testing::Not(HasSubstr("+")));
  fleet_.Start("s1");
  fleet_.Run(3000);
  EXPECT_THAT(Events("refill"), ::testing::Each(HasSubstr("a replica on s1")));
  for (const v1::ShardRecord& r : Records()) EXPECT_EQ(r.members_size(), 2);
  // The next time it stays away.
  const size_t refills = Events("refill").size();
  fleet_.at("s1").stopping = true;
  fleet_.Run(1200);
  fleet_.Kill("s1");
  fleet_.Run(14'000);
  EXPECT_GT(Events("refill").size(), refills);
  for (const v1::ShardRecord& r : Records()) EXPECT_EQ(r.members_size(), 2);
}

TEST_F(MembershipStory, ARollingRestartLeavesReplicasWhereTheyAre) {
  Start({"s1", "s2", "s3"});
  Create("t", 2, 6);
  const auto holders = [&] {
    std::vector<std::set<ServerId>> servers;
    for (const v1::ShardRecord& r : Records()) {
      servers.emplace_back();
      for (const v1::Member& m : r.members()) servers.back().insert(m.server());
    }
    return servers;
  };
  const std::vector<std::set<ServerId>> before = holders();
  for (const char* name : {"s1", "s2", "s3"}) {
    fleet_.at(name).stopping = true;
    fleet_.Run(1200);
    fleet_.Kill(name);
    fleet_.Run(1500);
    fleet_.Start(name);
    fleet_.Run(3000);
  }
  EXPECT_EQ(holders(), before);
  EXPECT_THAT(Events("moved"), ElementsAre());
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

TEST_F(MembershipStory, ReplicasWantFailureDomainsOfTheirOwn) {
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

// It was away while its shard was cut, and a part went on without it: its map lacks that part.
TEST_F(MembershipStory, AHolderOfAShardThatWasCutIsToldOfAllParts) {
  Start({"s1", "s2"});
  Create("t", 1, 4);
  v1::HeartbeatRequest request;
  request.set_server(fleet_.at("s1").id);
  request.set_incarnation(fleet_.at("s1").incarnation);
  const auto shards_told = [&] {
    auto reply = rig_.Call<v1::HeartbeatReply>(request);
    std::set<uint64_t> shards;
    for (const v1::ShardRecord& record : reply->map().shards()) {
      EXPECT_TRUE(shards.insert(record.shard()).second) << "twice: " << record.shard();
    }
    return shards.size();
  };
  EXPECT_EQ(shards_told(), 2);
  request.add_parts_wanted(ShardId{1, 0}.packed());
  EXPECT_EQ(shards_told(), 4);
  request.add_parts_wanted(ShardId{9, 0}.packed());  // of no table
  EXPECT_EQ(shards_told(), 4);
  request.set_plan_revision_known(Map().plan_revision());
  EXPECT_EQ(shards_told(), 4);  // also beside a map of differences
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

}  // namespace membership_story_test
}  // namespace hotbed
