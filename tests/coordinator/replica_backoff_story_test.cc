// Stories of servers that cannot hold replicas: where these are lost again and again, and where
// there is no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/coordinator/membership_story.h"

namespace hotbed {
namespace replica_backoff_story_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ReplicaBackoffStory = MembershipStory;

TEST_F(ReplicaBackoffStory, AReplicaThatIsLostAgainAndAgainIsMadeElsewhereAndLaterThere) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  Fleet::Server& s2 = fleet_.at("s2");
  s2.lost_why = "it differs at LSN 7";
  const auto lose = [&](Epoch epoch) {
    s2.replicas_lost = {{ShardId{1, 0}.packed(), epoch}};
    fleet_.Beat(&s2);
    rig_.Pump();
  };
  lose(1);
  fleet_.Run(1000);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e3")) << "the first time at once";
  lose(3);
  fleet_.Run(25'000);
  EXPECT_THAT(Lines(), ElementsAre("s1 e4")) << "not for half a minute";
  EXPECT_THAT(Events("replica_lost"),
              ElementsAre(HasSubstr("; s2 says: it differs at LSN 7"),
                          HasSubstr("lost there 2 times in a row, not made there again for 30 s; "
                                    "s2 says: it differs at LSN 7")));
  // A move that wants it there is given up, and says why.
  ASSERT_TRUE(Move(0, "", "s2").ok());
  fleet_.Run(500);
  EXPECT_THAT(Events("give_up"), ElementsAre(HasSubstr("its replica was lost 2 times in a row")));
  fleet_.Run(6'000);
  EXPECT_THAT(Lines(), ElementsAre("s1 s2 e5"));
  lose(5);
  fleet_.Run(58'000);
  EXPECT_THAT(Lines(), ElementsAre("s1 e6"));
  // Another server need not wait.
  Start({"s3"});
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s1 s3 e7"));
}

// One that is no member yet: it is dropped, so that the next server has its turn.
TEST_F(ReplicaBackoffStory, ALearnerWhoseReplicaIsLostLeaves) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  fleet_.at("s1").joins = false;
  fleet_.at("s2").replicas_lost = {{ShardId{1, 0}.packed(), 1}};
  fleet_.Beat(&fleet_.at("s2"));
  fleet_.at("s2").replicas_lost.clear();
  fleet_.Run(1000);
  ASSERT_THAT(Lines(), ElementsAre("s1 +s2 e2"));
  fleet_.at("s2").replicas_lost = {{ShardId{1, 0}.packed(), 2}};
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre("s1 e3")) << "the second time: not at once";
  EXPECT_THAT(Events("replica_lost"), ElementsAre(HasSubstr("lost the replica of s2"),
                                                  HasSubstr("lost there 2 times in a row")));
}

TEST_F(ReplicaBackoffStory, AServerWithoutTheRoomGetsNoReplica) {
  Start({"s1", "s2", "s3"});
  Create("t", 1, 2);
  ASSERT_THAT(Lines(), ElementsAre("s1 e1", "s2 e1"));
  for (uint32_t index : {0u, 1u}) {
    v1::ServerLoad& load = fleet_.at(index == 0 ? "s1" : "s2").load;
    v1::ShardLoad* const shard = load.add_shards();
    shard->set_shard(ShardId{1, index}.packed());
    shard->set_bytes(1000);
    shard->set_primary(true);
  }
  fleet_.at("s3").load.set_free_bytes(1249);
  fleet_.Run(500);
  EXPECT_STATUS(Move(0, "", "s3"), kFailedPrecondition,
                "server s3 (number 3) has 1249 bytes free for rows, 1250 are needed");
  fleet_.at("s3").load.set_free_bytes(1250);
  fleet_.Run(500);
  EXPECT_TRUE(Move(0, "", "s3", /*dry_run=*/true).ok());
  // Two of them have not.
  v1::MoveShardsRequest both;
  for (uint32_t index : {0u, 1u}) {
    both.add_moves()->set_shard(ShardId{1, index}.packed());
    both.mutable_moves(static_cast<int>(index))->set_to(fleet_.at("s3").id);
  }
  EXPECT_STATUS(rig_.Call<v1::MoveShardsReply>(both), kFailedPrecondition, "2500 are needed");
  // A place that the coordinator chooses by itself has room.
  fleet_.at("s3").load.set_free_bytes(10);
  fleet_.at("s2").load.set_free_bytes(1'000'000);
  fleet_.Run(500);
  ASSERT_TRUE(Drain("s1").ok());
  fleet_.Run(2000);
  EXPECT_THAT(Lines()[0], HasSubstr("s2 e"));
  fleet_.at("s2").load.set_free_bytes(10);
  fleet_.Run(500);
  EXPECT_STATUS(Drain("s2"), kFailedPrecondition, "without the room for it");
}

TEST_F(ReplicaBackoffStory, WhatIsUnderWayIsNotGivenUpForTheRoomThatItFills) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  fleet_.at("s1").joins = false;
  v1::ShardLoad* const shard = fleet_.at("s1").load.add_shards();
  shard->set_shard(ShardId{1, 0}.packed());
  shard->set_bytes(1000);
  fleet_.at("s2").load.set_free_bytes(1250);
  fleet_.Run(500);
  ASSERT_TRUE(Move(0, "", "s2").ok());
  fleet_.Run(500);
  ASSERT_THAT(Lines()[0], HasSubstr("+s2")) << "in progress";
  // As its rows come, less is free and less is needed.
  fleet_.at("s2").load.set_free_bytes(100);
  fleet_.Run(1000);
  EXPECT_THAT(Lines()[0], HasSubstr("+s2")) << "what is in progress is not given up for it";
  EXPECT_THAT(Events("give_up"), ElementsAre());
}

}  // namespace replica_backoff_story_test
}  // namespace hotbed
