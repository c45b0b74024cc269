// Stories of groups of trainers over the real core and a twin of the store: who is in, which step
// is committed, who waits, and what deaths and restarts in between change.
#include "planner/coordinator/trainer_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/core_rig.h"

namespace hotbed {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLeaseMs = 5000;

class TrainerStory : public testing::Test {
 protected:
  struct Life {
    SessionId session = 0;
    Incarnation incarnation = 0;
  };

  TrainerStory() {
    rig_.Pump();
    rig_.Tick(0);
  }

  void Open(const std::string& name) {
    v1::OpenSessionRequest request;
    request.set_name(name);
    const auto opened = rig_.Call<v1::OpenSessionReply>(request);
    ASSERT_TRUE(opened.ok()) << opened.status();
    lives_[name] = {opened->session(), opened->incarnation()};
  }
  v1::TrainRequest Request(const std::string& name, uint64_t ended = 0) {
    v1::TrainRequest request;
    request.set_group("g");
    request.set_name(name);
    request.set_session(lives_[name].session);
    request.set_incarnation(lives_[name].incarnation);
    request.set_ended_step(ended);
    return request;
  }
  CallerToken Join(const std::string& name) {
    v1::TrainRequest request = Request(name);
    request.set_kind(v1::TrainRequest::JOIN);
    request.set_wait_ms(10000);
    return rig_.Send(request);
  }
  // Ends a step of a synchronous table; `delivered`: it brought the commit before.
  CallerToken End(const std::string& name, uint64_t step, bool delivered = true) {
    v1::TrainRequest request = Request(name, step);
    request.set_wait_commit(step);
    request.set_wait_ms(30000);
    request.add_tables(7);
    if (delivered) request.set_delivered_step(step - 1);
    return rig_.Send(request);
  }
  std::optional<v1::TrainReply> Answer(CallerToken caller) {
    const auto it = rig_.replies.find(caller);
    if (it == rig_.replies.end()) return std::nullopt;
    if (!it->second.ok()) {
      error_ = it->second.status();
      return v1::TrainReply();
    }
    return std::get<v1::TrainReply>(*it->second);
  }
  void JoinNow(const std::string& name, uint64_t ended) {
    Open(name);
    const auto answer = Answer(Join(name));
    ASSERT_TRUE(answer.has_value()) << name;
    ASSERT_TRUE(answer->member()) << error_;
    ASSERT_EQ(answer->ended_step(), ended);
  }
  void Renew(const std::string& name, uint64_t ended) { rig_.Send(Request(name, ended)); }
  std::vector<SessionId> Sessions(const std::vector<std::string>& names) {
    std::vector<SessionId> sessions;
    for (const std::string& name : names) sessions.push_back(lives_[name].session);
    return sessions;
  }
  static std::vector<SessionId> Sessions(const v1::TrainReply& reply) {
    return {reply.commit().sessions().begin(), reply.commit().sessions().end()};
  }

  CoreRig rig_;
  std::map<std::string, Life> lives_;
  absl::Status error_;
};

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

TEST_F(TrainerStory, WhoJoinsBeginsAboveTheLastCommit) {
  JoinNow("a", 0);
  const CallerToken first = End("a", 3);
  Open("b");
  const CallerToken join = Join("b");
  EXPECT_FALSE(Answer(join).has_value()) << "a commit is under way";
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
  rig_.Tick(kLeaseMs - 1000);
  Renew("a", 1);
  rig_.Tick(1100);
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

// Trainers that end steps, die, restart, leave and join, a store that loses answers, coordinators
// that are replaced: commits only grow, name only sessions that had ended their step, and in the
// end everybody gets on.
class TrainerRandomStory : public TrainerStory {
 protected:
  struct Twin {
    bool alive = false;
    bool joined = false;
    uint64_t ended = 0;
    uint64_t delivered = 0;
    CallerToken waits = 0;
  };

  void Hear(const std::string& name) {
    Twin& twin = twins_[name];
    if (twin.waits == 0) return;
    const auto answer = Answer(twin.waits);
    if (!answer.has_value()) return;
    twin.waits = 0;
    if (!answer->member()) {
      twin.joined = false;
      return;
    }
    Check(answer->commit());
    if (!twin.joined) {
      twin.ended = answer->ended_step();
      ASSERT_GE(twin.ended, answer->commit().step());
    } else if (answer->commit().step() >= twin.ended) {
      ++progress_;
    }
    twin.joined = true;
    twin.delivered = answer->commit().step();
  }
  void Check(const v1::GroupCommit& commit) {
    if (commit.step() == 0) return;
    const std::string bytes = commit.SerializeAsString();
    const auto [it, first] = commits_.try_emplace(commit.step(), bytes);
    ASSERT_EQ(it->second, bytes) << "two commits of step " << commit.step();
    if (!first) return;
    for (const uint64_t session : commit.sessions()) {
      ASSERT_GE(ended_ever_[session], commit.step()) << "session " << session;
    }
  }
  void Act(const std::string& name) {
    Twin& twin = twins_[name];
    Hear(name);
    if (!twin.alive || twin.waits != 0) return;
    if (!twin.joined) {
      twin.waits = Join(name);
      return;
    }
    // Ends its step again until it hears that it is committed, then the next one.
    if (commits_.contains(twin.ended) || twin.ended == twin.delivered) ++twin.ended;
    uint64_t& ever = ended_ever_[lives_[name].session];
    ever = std::max(ever, twin.ended);
    v1::TrainRequest request = Request(name, twin.ended);
    request.set_wait_commit(twin.ended);
    request.set_wait_ms(1000);
    request.add_tables(7);
    request.set_delivered_step(twin.delivered);
    twin.waits = rig_.Send(request);
  }

  std::map<std::string, Twin> twins_;
  std::map<uint64_t, std::string> commits_;
  std::map<SessionId, uint64_t> ended_ever_;
  uint64_t progress_ = 0;
};

TEST_F(TrainerRandomStory, CommitsAreOneAndTrue) {
  const TestSeed seed(77);
  Random random(seed.value());
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (const std::string& name : names) {
    Open(name);
    twins_[name].alive = true;
  }
  for (int i = 0; i < 20000; ++i) {
    const bool quiet = i > 16000;
    const std::string& name = names[random.Uniform(names.size())];
    const uint64_t dice = random.Uniform(1000);
    if (dice < 700) {
      Act(name);
    } else if (dice < 900) {
      if (rig_.StoreWaits()) {
        const uint64_t luck = quiet ? 9 : random.Uniform(10);
        rig_.StepStore(luck == 0   ? CoreRig::Outcome::kLost
                       : luck == 1 ? CoreRig::Outcome::kWrittenButLost
                                   : CoreRig::Outcome::kOk);
      }
    } else if (dice < 985 || quiet) {
      rig_.Tick(static_cast<int64_t>(random.Uniform(300)));
    } else if (dice < 995) {  // dies, or comes back
      Twin& twin = twins_[name];
      const bool alive = twin.alive;
      twin = Twin();
      twin.alive = !alive;
      rig_.Pump();
      if (rig_.core->serving() && twin.alive) Open(name);
    } else {
      rig_.Start();
      for (auto& [n, twin] : twins_) twin.waits = 0;
      rig_.Pump();
    }
    if (i == 16000) {
      progress_ = 0;
      rig_.Pump();
      rig_.Tick(200);
      rig_.Pump();
      for (const std::string& n : names) {
        Open(n);
        twins_[n] = Twin();
        twins_[n].alive = true;
      }
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(commits_.size(), 100u);
  EXPECT_GT(progress_, 100u) << "at the end all live and nothing fails: they must get on";
}

}  // namespace
}  // namespace hotbed
