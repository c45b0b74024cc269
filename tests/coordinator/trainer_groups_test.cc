// Stories of groups of trainers over the real core and a twin of the store: who is in, which step
// is committed, who waits, and what deaths and restarts in between change.
#include "planner/coordinator/core/trainer_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/coordinator/trainer_story.h"

namespace hotbed {
namespace trainer_groups_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLeaseMs = 5000;

TEST_F(TrainerStory, AStepIsCommittedWhenAllHaveEndedIt) {
  JoinNow("b", 0);  // opened first: the order is that of the names
  JoinNow("a", 0);
  const CallerToken a = End("a", 1);
  EXPECT_FALSE(rig_.StoreWaits());
  const CallerToken b = End("b", 1);
  EXPECT_TRUE(rig_.StoreWaits());
  EXPECT_FALSE(Answer(a).has_value()) << "nobody hears of it before the store has it";
  rig_.StepStore();
  for (const CallerToken caller : {a, b}) {
    const auto answer = Answer(caller);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->commit().step(), 1u);
    EXPECT_EQ(Sessions(*answer), Sessions({"a", "b"}));
    EXPECT_THAT(answer->commit().tables(), ElementsAre(7));
    EXPECT_EQ(answer->ended_min(), 1u);
    EXPECT_EQ(answer->members(), 2u);
  }
  EXPECT_EQ(Answer(End("a", 1))->commit().step(), 1u) << "asked again: the answer was lost";
}

TEST_F(TrainerStory, WhoDiesOrLeavesHoldsNobodyUp) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  JoinNow("c", 0);
  const CallerToken a = End("a", 1);
  for (int i = 0; i < 4; ++i) {
    rig_.Tick(1000);
    Renew("a", 1);
    Renew("c", 0);
  }
  EXPECT_FALSE(Answer(a).has_value());
  rig_.Tick(1100);  // b's lease
  EXPECT_FALSE(Answer(a).has_value()) << "c lives";
  v1::TrainRequest leave = Request("c");
  leave.set_kind(v1::TrainRequest::LEAVE);
  EXPECT_FALSE(Answer(rig_.Send(leave))->member());
  rig_.Pump();
  ASSERT_TRUE(Answer(a).has_value());
  EXPECT_EQ(Sessions(*Answer(a)), Sessions({"a"}));
  EXPECT_FALSE(Answer(End("b", 1))->member()) << "it was given up";
}

// Trainers of asynchronous tables: each learns how many there are, and ends no step.
TEST_F(TrainerStory, AGroupThatOnlyCountsItsMembersIsForgottenWhenAllHaveLeft) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  EXPECT_EQ(Answer(rig_.Send(Request("a")))->members(), 2u);
  v1::TrainRequest leave = Request("a");
  leave.set_kind(v1::TrainRequest::LEAVE);
  rig_.Send(leave);
  EXPECT_EQ(Answer(rig_.Send(Request("b")))->members(), 1u);
  rig_.Tick(1000);
  EXPECT_EQ(rig_.core->Trainers().groups_size(), 1);
  for (int i = 0; i < 5; ++i) rig_.Tick(1000);
  EXPECT_EQ(rig_.core->Trainers().groups_size(), 0);
  rig_.Pump();  // the server was not heard of either
  JoinNow("a", 0);
}

TEST_F(TrainerStory, WhoJoinsBeginsAboveTheLastCommit) {
  JoinNow("a", 0);
  Open("b");
  const CallerToken first = End("a", 3, /*delivered=*/false);
  const CallerToken join = Join("b");
  EXPECT_FALSE(Answer(join).has_value()) << "a commit is in progress";
  rig_.StepStore();
  EXPECT_EQ(Sessions(*Answer(first)), Sessions({"a"}));
  ASSERT_TRUE(Answer(join).has_value());
  EXPECT_EQ(Answer(join)->ended_step(), 3u);
  EXPECT_EQ(Answer(join)->commit().step(), 3u);
  const CallerToken a = End("a", 4);
  rig_.Pump();
  EXPECT_FALSE(Answer(a).has_value());
  End("b", 4);
  rig_.Pump();
  EXPECT_EQ(Sessions(*Answer(a)), Sessions({"a", "b"}));
}

TEST_F(TrainerStory, ARestartedTrainerTakesItsOwnPlace) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  const CallerToken a = End("a", 1);
  const v1::TrainRequest old = Request("b", 1);
  Open("b");
  EXPECT_TRUE(Answer(rig_.Send(old)).has_value());
  EXPECT_EQ(error_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error_.message(), HasSubstr("was overtaken by"));
  const auto joined = Answer(Join("b"));
  ASSERT_TRUE(joined.has_value()) << "its earlier life is out at once";
  EXPECT_EQ(joined->ended_step(), 0u);
  EXPECT_FALSE(Answer(a).has_value());
  EXPECT_EQ(Answer(Join("b"))->ended_step(), 0u) << "its answer was lost";
  End("b", 1);
  rig_.Pump();
  EXPECT_EQ(Sessions(*Answer(a)), Sessions({"a", "b"}));
}

// A trainer that heard the commit dies before it has told all shards.
TEST_F(TrainerStory, TheNextStepWaitsUntilTheLastCommitWasBrought) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  End("a", 1);
  End("b", 1);
  rig_.Pump();
  const CallerToken b = End("b", 2, /*delivered=*/false);
  const CallerToken a = End("a", 2, /*delivered=*/false);
  EXPECT_FALSE(rig_.StoreWaits());
  v1::TrainRequest brought = Request("a", 2);
  brought.set_delivered_step(1);
  rig_.Send(brought);
  rig_.Pump();
  EXPECT_EQ(Answer(a)->commit().step(), 2u);
  EXPECT_EQ(Answer(b)->commit().step(), 2u);
}

TEST_F(TrainerStory, ARestartedCoordinatorWaitsForAllToBeHeardOf) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  End("a", 1);
  End("b", 1);
  rig_.Pump();
  rig_.Start();
  rig_.Pump();
  const CallerToken a = End("a", 2);
  v1::TrainRequest wait = Request("a", 2);
  wait.set_wait_ended(2);
  wait.set_wait_ms(30000);
  const CallerToken others = rig_.Send(wait);
  for (int i = 0; i < 4; ++i) {
    rig_.Tick(1000);
    Renew("a", 2);
    rig_.Pump();
    EXPECT_FALSE(Answer(a).has_value()) << "b may be at work on step 2";
    EXPECT_FALSE(Answer(others).has_value());
  }
  Renew("b", 1);
  rig_.Tick(1100);
  rig_.Pump();
  EXPECT_FALSE(Answer(a).has_value());
  EXPECT_FALSE(Answer(others).has_value());
  const CallerToken b = End("b", 2);
  rig_.Pump();
  EXPECT_EQ(Sessions(*Answer(a)), Sessions({"a", "b"}));
  EXPECT_TRUE(Answer(b).has_value());
  EXPECT_TRUE(Answer(others).has_value());
}

TEST_F(TrainerStory, WhoWasGivenUpIsNotHeardAgainAfterARestart) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  End("a", 1);
  for (int64_t ms = 0; ms <= kLeaseMs; ms += 1000) {
    rig_.Tick(1000);
    Renew("a", 1);
  }
  rig_.Pump();  // committed without b
  rig_.Start();
  rig_.Pump();
  EXPECT_FALSE(Answer(End("b", 0, false))->member());
  EXPECT_TRUE(Answer(rig_.Send(Request("a", 1)))->member());
}

TEST_F(TrainerStory, ALostAnswerOfTheStoreIsReadAgain) {
  for (const auto outcome : {CoreRig::Outcome::kLost, CoreRig::Outcome::kWrittenButLost}) {
    const std::string name = outcome == CoreRig::Outcome::kLost ? "x" : "y";
    Open(name);
    v1::TrainRequest join = Request(name);
    join.set_group(name);
    join.set_kind(v1::TrainRequest::JOIN);
    rig_.Send(join);
    v1::TrainRequest end = Request(name, 1);
    end.set_group(name);
    end.set_wait_commit(1);
    end.set_wait_ms(30000);
    const CallerToken first = rig_.Send(end);
    rig_.StepStore(outcome);
    EXPECT_TRUE(Answer(first).has_value());
    EXPECT_EQ(error_.code(), absl::StatusCode::kUnavailable);
    rig_.Tick(200);
    rig_.Pump();
    const CallerToken again = rig_.Send(end);
    rig_.Pump();
    ASSERT_TRUE(Answer(again).has_value());
    EXPECT_EQ(Answer(again)->commit().step(), 1u);
    EXPECT_EQ(Sessions(*Answer(again)), Sessions({name}));
  }
}

TEST_F(TrainerStory, BoundedStalenessWaitsForTheSlowest) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  const auto end = [&](const std::string& name, uint64_t step) {
    rig_.Send(Request(name, step));  // no synchronous tables
    rig_.Pump();
  };
  for (uint64_t step = 1; step <= 4; ++step) end("a", step);
  v1::TrainRequest wait = Request("a", 4);
  wait.set_wait_ended(2);
  wait.set_wait_ms(20000);
  const CallerToken a = rig_.Send(wait);
  end("b", 1);
  EXPECT_FALSE(Answer(a).has_value());
  end("b", 2);
  ASSERT_TRUE(Answer(a).has_value());
  EXPECT_EQ(Answer(a)->ended_min(), 2u);
  EXPECT_EQ(Answer(a)->slowest(), "b");
  JoinNow("c", 2);  // not behind anybody
  EXPECT_EQ(Answer(rig_.Send(Request("a", 4)))->ended_min(), 2u);
}

TEST_F(TrainerStory, AWaitEndsInTime) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  v1::TrainRequest request = Request("a", 1);
  request.set_wait_commit(1);
  request.set_wait_ms(500);
  const CallerToken a = rig_.Send(request);
  rig_.Tick(400);
  EXPECT_FALSE(Answer(a).has_value());
  rig_.Tick(200);
  ASSERT_TRUE(Answer(a).has_value());
  EXPECT_TRUE(Answer(a)->member());
  EXPECT_EQ(Answer(a)->commit().step(), 0u);
  EXPECT_EQ(Answer(a)->slowest(), "b");
}

TEST_F(TrainerStory, ASynchronousTableBelongsToOneGroupAtATime) {
  const auto committed = [this](CallerToken caller) -> uint64_t {
    rig_.Pump();
    const auto answer = Answer(caller);
    return answer.has_value() ? answer->commit().step() : 0;
  };
  JoinNow("a", 0);
  ASSERT_EQ(committed(End("a", 1)), 1u);
  // A trainer of another group is let in, trains tables of its own, and no other group's.
  Open("x");
  v1::TrainRequest request = Request("x");
  request.set_group("h");
  request.set_kind(v1::TrainRequest::JOIN);
  ASSERT_TRUE(Answer(rig_.Send(request))->member()) << error_;
  request.set_kind(v1::TrainRequest::RENEW);
  request.set_ended_step(1);
  request.set_wait_commit(1);
  request.set_wait_ms(30000);
  request.add_tables(8);
  EXPECT_EQ(committed(rig_.Send(request)), 1u) << error_;
  request.set_ended_step(2);
  request.set_wait_commit(2);
  request.set_delivered_step(1);
  request.add_tables(7);
  EXPECT_EQ(committed(rig_.Send(request)), 0u);
  EXPECT_EQ(error_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error_.message(), HasSubstr("synchronous table 7 is trained by group g (a)"));
  // Nothing of it was heard, neither its end of the step nor its claim to the table.
  EXPECT_EQ(committed(End("a", 2)), 2u) << error_;
  // Once the first group has left the table is free.
  v1::TrainRequest leave = Request("a", 2);
  leave.set_kind(v1::TrainRequest::LEAVE);
  leave.add_tables(7);
  rig_.Send(leave);
  error_ = absl::OkStatus();
  EXPECT_EQ(committed(rig_.Send(request)), 2u) << error_;
}

TEST_F(TrainerStory, ATrainerThatWasReplacedHoldsNoTable) {
  JoinNow("a", 0);
  End("a", 1);
  rig_.Pump();
  Open("a");  // the job starts again, in another group
  v1::TrainRequest request = Request("a");
  request.set_group("h");
  request.set_kind(v1::TrainRequest::JOIN);
  ASSERT_TRUE(Answer(rig_.Send(request))->member()) << error_;
  request.set_kind(v1::TrainRequest::RENEW);
  request.set_ended_step(1);
  request.set_wait_commit(1);
  request.set_wait_ms(30000);
  request.add_tables(7);
  const CallerToken caller = rig_.Send(request);
  rig_.Pump();
  ASSERT_TRUE(Answer(caller).has_value());
  EXPECT_EQ(Answer(caller)->commit().step(), 1u) << error_;
}

TEST_F(TrainerStory, BadRequestsAreRefused) {
  Open("a");
  v1::TrainRequest request = Request("a");
  request.set_group("two words");
  Answer(rig_.Send(request));
  EXPECT_THAT(error_.message(), HasSubstr("printable characters without spaces"));
  request = Request("a");
  request.set_session(99);
  Answer(rig_.Send(request));
  EXPECT_THAT(error_.message(), HasSubstr("is not open; call OpenSession first"));
  request = Request("a");
  request.set_lease_ms(3);
  Answer(rig_.Send(request));
  EXPECT_THAT(error_.message(), HasSubstr("a trainer's lease of 3 ms, allowed: 100..600000"));
  EXPECT_FALSE(Answer(rig_.Send(Request("a")))->member());
}

TEST_F(TrainerStory, StepsFromNowhereAreRefusedAndForgotten) {
  JoinNow("a", 0);
  Answer(End("a", uint64_t{1} << 44, /*delivered=*/false));
  EXPECT_THAT(error_.message(),
              HasSubstr("ended step 17592186044416; the limit is now 4294967296"));
  Answer(End("a", (uint64_t{1} << 32) + 1, /*delivered=*/false));
  EXPECT_THAT(error_.message(), HasSubstr("ended step 4294967297"));
  Answer(End("a", 1));
  rig_.Pump();
  v1::TrainRequest request = Request("a", 1);
  request.set_delivered_step(2);
  Answer(rig_.Send(request));
  EXPECT_THAT(error_.message(), HasSubstr("delivered the commit of step 2; the last one of group"));
  const CallerToken ends = End("a", 2);
  rig_.Pump();
  ASSERT_TRUE(Answer(ends).has_value());
  EXPECT_EQ(Answer(ends)->commit().step(), 2u);
}

TEST_F(TrainerStory, ServersLearnWhatWasGivenOut) {
  v1::CreateTableRequest table = CoreRig::Table("t");
  table.mutable_spec()->set_consistency(v1::CONSISTENCY_SYNC);
  ASSERT_TRUE(rig_.Create(table).ok());
  JoinNow("a", 0);
  const auto beat = rig_.Heartbeat(1, 1);
  ASSERT_TRUE(beat.ok());
  EXPECT_EQ(beat->given().session(), lives_["a"].incarnation);
  EXPECT_EQ(beat->given().steps_size(), 0);
  NewsKnown known = rig_.core->NewsNow();
  EXPECT_FALSE(rig_.core->News(1, 1, known).has_value());
  Open("b");
  auto news = rig_.core->News(1, 1, known);
  ASSERT_TRUE(news.has_value()) << "at once, so that its first push need not wait";
  EXPECT_EQ(news->given().session(), lives_["b"].incarnation);
  known = rig_.core->NewsNow();
  v1::TrainRequest ends = Request("a", 5);
  ends.add_tables(1);
  ends.add_tables(99);  // a server hears of the tables that it has shards of
  rig_.Send(ends);
  rig_.Pump();
  news = rig_.core->News(1, 1, known);
  ASSERT_TRUE(news.has_value());
  ASSERT_EQ(news->given().steps_size(), 1);
  EXPECT_EQ(news->given().steps(0).table(), 1u);
  EXPECT_EQ(news->given().steps(0).step(), 5u);
}

}  // namespace trainer_groups_test
}  // namespace hotbed
