// Stories of shards that lose all their members, whose disks may have lost records meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/coordinator/membership_story.h"

namespace hotbed {
namespace lost_members_story_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class LostMembersStory : public MembershipStory {
 protected:
  // A table on s1 and s2, both of which are gone, and s1's log has lost its end.
  void LoseBoth() {
    Start({"s1", "s2"});
    Create("t", 2, 1);
    ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
    fleet_.Silence("s1");
    fleet_.Silence("s2");
    fleet_.Run(4000);
    rig_.disks[fleet_.at("s1").id] = 40;  // of the 100 that the rig gives to all
    EXPECT_THAT(Doubt().text(), HasSubstr("goes on when one of them is back"));
    EXPECT_TRUE(Doubt().stopped());
    EXPECT_EQ(Events("stopped").size(), 1u);
  }
  // The doubt about the only shard; empty if there is none.
  v1::ShardDoubt Doubt() {
    const v1::ListMovesReply reply = rig_.core->Moves({});
    EXPECT_EQ(reply.doubts_total(), reply.doubts_size());
    return reply.doubts().empty() ? v1::ShardDoubt() : reply.doubts(0);
  }
  absl::StatusOr<v1::ChooseReplicaReply> Choose(const std::string& server, bool dry_run = false) {
    v1::ChooseReplicaRequest request;
    request.set_shard(ShardId{1, 0}.packed());
    request.set_server(server);
    request.set_dry_run(dry_run);
    return rig_.Call<v1::ChooseReplicaReply>(request);
  }
};

TEST_F(LostMembersStory, WhoeverIsBackFirstTheFullerReplicaCounts) {
  LoseBoth();
  fleet_.Start("s1");
  fleet_.Run(5000);
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("waits")));
  EXPECT_THAT(Doubt().text(), HasSubstr("s1/2 is back with its log up to LSN 40 of epoch 1; waits "
                                        "for s2/1, which may hold more"));
  fleet_.Start("s2");
  rig_.Pump();
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s2 e"))) << "at once, as all were heard";
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s2 s1 e"))) << "the emptier one is filled again";
  EXPECT_THAT(Events("take_back"), ElementsAre(HasSubstr("s2/2 is back with its log")));
  EXPECT_EQ(Doubt().text(), "");
}

TEST_F(LostMembersStory, AServerWithoutAReplicaNeverCounts) {
  LoseBoth();
  rig_.disks[fleet_.at("s1").id] = 0;
  fleet_.Start("s1");
  fleet_.Run(60000);
  EXPECT_THAT(Doubt().text(), HasSubstr("s1/2 is back without a replica; waits for s2/1"));
  fleet_.Start("s2");
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s2 s1 e")));
}

TEST_F(LostMembersStory, AMemberThatStaysAwayIsPassedOverAndItsReplicaIsKept) {
  LoseBoth();
  fleet_.Start("s1");
  fleet_.Run(9500);
  EXPECT_TRUE(Doubt().stopped());
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s1 e")));
  EXPECT_THAT(Events("passed_over"),
              ElementsAre(HasSubstr("goes on without s2/1, which may hold more")));
  EXPECT_FALSE(Doubt().stopped());
  EXPECT_THAT(Doubt().text(), HasSubstr("s2 may hold more and was not heard of"));

  const std::vector<std::string> alone = Lines();
  fleet_.Start("s2");
  fleet_.Run(60000);
  EXPECT_EQ(Lines(), alone) << "what s2 holds is not overwritten";
  EXPECT_THAT(Events("holds_more"), ElementsAre(HasSubstr("s2 holds more, up to LSN 100")));
  EXPECT_TRUE(Doubt().holds_more());
  EXPECT_THAT(Doubt().text(), HasSubstr("'hotbed shard choose t 0 --server s1' gives it up"));

  EXPECT_STATUS(Choose("s2"), kFailedPrecondition, "stop s1/2, then choose");
  EXPECT_STATUS(Choose("s7"), kNotFound, "\"s7\" is not known");
  ASSERT_TRUE(Choose("s1", /*dry_run=*/true).ok());
  EXPECT_EQ(Lines(), alone);
  const auto chosen = Choose("s1");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->text(), "t/0: keeps the replica of s1/2 and gives up that of s2/2");
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s1 s2 e")));
  EXPECT_EQ(Events("chosen").size(), 1u);
  EXPECT_EQ(Doubt().text(), "");
}

TEST_F(LostMembersStory, APersonGoesBackToTheFullerReplica) {
  LoseBoth();
  fleet_.Start("s1");
  fleet_.Run(10500);
  fleet_.Start("s2");
  fleet_.Run(1000);
  fleet_.Kill("s1");
  rig_.Pump();
  const auto chosen = Choose("s2");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s2 e")));
}

TEST_F(LostMembersStory, AReplicaThatHoldsNoMoreIsFilledAgain) {
  LoseBoth();
  rig_.disks[fleet_.at("s2").id] = 30;
  fleet_.Start("s1");
  fleet_.Run(10500);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s1 e")));
  fleet_.Start("s2");
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s1 s2 e")));
  EXPECT_THAT(Events("heard"), ElementsAre(HasSubstr("s2/2 holds no more than LSN 40")));
  EXPECT_THAT(Events("holds_more"), ElementsAre());
}

TEST_F(LostMembersStory, ACoordinatorThatRestartsHearsAgainWhatServersHold) {
  LoseBoth();
  fleet_.Start("s1");
  fleet_.Run(1000);
  rig_.asks_person = true;
  rig_.Start();
  rig_.Pump();
  fleet_.Run(60000);
  EXPECT_THAT(Doubt().text(), HasSubstr("s1/2 is back with its log up to LSN 40"));
  EXPECT_TRUE(Doubt().stopped()) << "it was told to ask a person";
  fleet_.Start("s2");
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s2 s1 e")));
}

TEST_F(LostMembersStory, APersonNeedNotWait) {
  LoseBoth();
  fleet_.Start("s1");
  fleet_.Run(1000);
  EXPECT_STATUS(Choose("s2"), kFailedPrecondition, "is down: start it");
  ASSERT_TRUE(Choose("s1").ok());
  fleet_.Run(1000);
  EXPECT_THAT(Lines(), ElementsAre(StartsWith("s1 e")));
  EXPECT_THAT(Doubt().text(), HasSubstr("s2 may hold more")) << "it is kept all the same";
}

}  // namespace lost_members_story_test
}  // namespace hotbed
