// A group of trainers is held at a step for a checkpoint: who waits, what is committed, when the
// step is reached, and that nobody begins the next one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "planner/coordinator/core/trainer_groups.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/trainer_story.h"

namespace hotbed {
namespace trainer_holds_test {

using testing::HasSubstr;

class HoldStory : public TrainerStory {
 protected:
  absl::StatusOr<v1::HoldStepReply> Hold(uint64_t step, uint64_t number = 5, uint32_t ms = 10000) {
    v1::HoldStepRequest request;
    request.set_group("g");
    request.set_hold(number);
    request.set_step(step);
    request.set_hold_ms(ms);
    for (const uint32_t table : tables_) request.add_tables(table);
    return rig_.Call<v1::HoldStepReply>(request);
  }
  absl::StatusOr<v1::HoldStepReply> Renew(uint32_t ms = 10000) {
    v1::HoldStepRequest request;
    request.set_group("g");
    request.set_hold(5);
    request.set_renews(true);
    request.set_hold_ms(ms);
    return rig_.Call<v1::HoldStepReply>(request);
  }
  // Asks to begin a step.
  CallerToken Begin(const std::string& name, uint64_t step) {
    v1::TrainRequest request = Request(name, step - 1);
    request.set_wait_ended(step - 1);
    request.set_wait_step(step);
    request.set_wait_ms(30000);
    request.set_delivered_step(step - 1);
    return rig_.Send(request);
  }
  uint32_t BoundedTable(const std::string& name, uint32_t staleness) {
    v1::CreateTableRequest table = CoreRig::Table(name);
    table.mutable_spec()->set_consistency(v1::CONSISTENCY_BOUNDED);
    table.mutable_spec()->set_staleness(staleness);
    const auto created = rig_.Create(table);
    EXPECT_TRUE(created.ok()) << created.status();
    return created->spec().id();
  }
  std::vector<uint32_t> tables_;
};

TEST_F(HoldStory, NoStepBeyondItIsCommittedOrBegun) {
  JoinNow("a", 0);
  JoinNow("b", 0);
  EXPECT_EQ(Hold(0)->step(), 1u) << "nobody has ended a step";
  EXPECT_FALSE(Renew()->reached());
  const CallerToken a = End("a", 1), b = End("b", 1);
  EXPECT_FALSE(Renew()->reached()) << "it is not in the store";
  rig_.Pump();
  EXPECT_EQ(Answer(a)->hold_step(), 1u);
  EXPECT_EQ(Answer(b)->commit().step(), 1u);
  EXPECT_FALSE(Renew()->reached()) << "nobody has brought it to the shards";
  const CallerToken begins = Begin("a", 2);
  EXPECT_TRUE(Renew()->reached());
  // One that does not know of holds.
  const CallerToken c = End("a", 2), d = End("b", 2);
  rig_.Pump();
  for (const CallerToken caller : {begins, c, d}) EXPECT_FALSE(Answer(caller).has_value());
  EXPECT_TRUE(Renew()->reached()) << "step 2 is not committed";
  EXPECT_TRUE(Renew(/*ms=*/0)->reached()) << "its end tells that it was not interrupted";
  rig_.Pump();
  EXPECT_EQ(Answer(begins)->hold_step(), 0u);
  EXPECT_EQ(Answer(c)->commit().step(), 2u);
  EXPECT_EQ(Answer(d)->hold_step(), 0u);
  EXPECT_TRUE(absl::IsNotFound(Renew().status()));
}

TEST_F(HoldStory, AStepThatMayBeOverIsRefused) {
  EXPECT_TRUE(absl::IsNotFound(Hold(3).status())) << "there is no group";
  JoinNow("a", 0);
  JoinNow("b", 0);
  tables_ = {BoundedTable("t", 3), BoundedTable("u", 1)};
  TrainerStory::Renew("a", 9);
  TrainerStory::Renew("b", 6);
  rig_.Pump();
  // The slowest has ended 6, so step 10 may have been begun, and step 11 may not.
  const absl::Status refused = Hold(9).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("may have begun step 10 already; the first step to save at is now 10"));
  EXPECT_EQ(Hold(10)->step(), 10u);
  EXPECT_EQ(Hold(10)->step(), 10u) << "the answer was lost";
  EXPECT_THAT(std::string(Hold(12, /*number=*/6).status().message()),
              HasSubstr("group g is held at step 10"));
  EXPECT_EQ(Renew()->slowest(), "b");
  rig_.Tick(10000);
  EXPECT_TRUE(absl::IsNotFound(Renew().status())) << "whoever saved has died";
  EXPECT_TRUE(absl::IsInvalidArgument(Hold(12, /*number=*/0).status()));
}

TEST_F(HoldStory, ANewCoordinatorKnowsOfNoHold) {
  JoinNow("a", 0);
  EXPECT_EQ(Hold(4)->step(), 4u);
  rig_.Start();
  rig_.Pump();
  EXPECT_TRUE(absl::IsUnavailable(Renew().status())) << "its trainers were not heard of yet";
  TrainerStory::Renew("a", 0);
  rig_.Tick(5001);
  EXPECT_TRUE(absl::IsNotFound(Renew().status()));
}

// Trainers with tables of staleness 2, whose answers come late and in any order, as replies on
// several threads may. When a hold says that its step is reached, all have ended it and none has
// begun the next one, and so it stays until the hold ends.
class HoldRandomStory : public HoldStory {
 protected:
  static constexpr uint64_t kStaleness = 2;
  struct Twin {
    bool joined = false;
    uint64_t begun = 0;
    uint64_t ended = 0;
    uint64_t ended_min = 0;
    uint64_t hold = 0;
    CallerToken asks = 0;  // of AwaitHold: only this answer lifts the hold
    uint64_t asks_for = 0;
    std::vector<v1::TrainReply> late;
  };

  void Note(Twin* twin, const v1::TrainReply& reply) {
    twin->ended_min = std::max(twin->ended_min, reply.ended_min());
    if (reply.hold_step() != 0) twin->hold = reply.hold_step();
  }
  void Act(const std::string& name, Random* random) {
    Twin& twin = twins_[name];
    if (!twin.joined) {
      Open(name);
      const auto reply = Answer(Join(name));
      if (!reply.has_value() || !reply->member()) return;
      twin.joined = true;
      twin.begun = twin.ended = reply->ended_step();
      twin.hold = reply->hold_step();
      return;
    }
    if (!twin.late.empty() && random->Uniform(2) == 0) {
      const size_t any = random->Uniform(twin.late.size());
      Note(&twin, twin.late[any]);
      twin.late.erase(twin.late.begin() + static_cast<int64_t>(any));
      return;
    }
    if (twin.asks != 0) return HearHold(&twin);
    if (twin.begun > twin.ended && random->Uniform(2) == 0) {
      ++twin.ended;
      Ask(name, &twin);
      return;
    }
    const uint64_t next = twin.begun + 1;
    const bool may = next <= 1 + kStaleness || (next - 1 - kStaleness <= twin.ended_min &&
                                                next - 1 - kStaleness <= twin.ended);
    if (!may) return Ask(name, &twin);
    if (twin.hold == 0 || next <= twin.hold) {
      twin.begun = next;
      ASSERT_TRUE(!reached_ || next <= step_) << name << " begins " << next;
      return;
    }
    v1::TrainRequest request = Request(name, twin.ended);
    request.set_wait_step(next);
    request.set_wait_ms(200);
    twin.asks = rig_.Send(request);
    twin.asks_for = next;
  }
  void HearHold(Twin* twin) {
    const auto reply = Answer(twin->asks);
    if (!reply.has_value()) return;
    twin->asks = 0;
    Note(twin, *reply);
    if (reply->hold_step() == 0 || twin->asks_for <= reply->hold_step()) {
      twin->hold = reply->hold_step();
    }
  }
  void Ask(const std::string& name, Twin* twin) {
    const auto reply = Answer(rig_.Send(Request(name, twin->ended)));
    if (reply.has_value()) twin->late.push_back(*reply);
  }

  std::map<std::string, Twin> twins_;
  uint64_t step_ = 0;  // held
  bool reached_ = false;
};

TEST_F(HoldRandomStory, NobodyBeginsTheNextStepWhileItIsReached) {
  const TestSeed seed(19);
  Random random(seed.value());
  tables_ = {BoundedTable("t", kStaleness)};
  const std::vector<std::string> names = {"a", "b", "c"};
  uint64_t reached = 0;
  for (int i = 0; i < 60000; ++i) {
    const std::string& name = names[random.Uniform(names.size())];
    const uint64_t dice = random.Uniform(1000);
    if (dice < 900) {
      Act(name, &random);
    } else if (dice < 950) {
      rig_.Pump();
      rig_.Tick(static_cast<int64_t>(random.Uniform(60)));
      for (const std::string& n : names) {
        if (twins_[n].joined) TrainerStory::Renew(n, twins_[n].ended);
      }
    } else if (step_ == 0) {
      const auto held = Hold(0);
      if (held.ok()) step_ = held->step();
    } else if (random.Uniform(20) == 0) {
      const auto held = Renew(/*ms=*/0);
      ASSERT_TRUE(held.ok()) << held.status();
      step_ = 0;
      reached_ = false;
    } else {
      const auto held = Renew();
      ASSERT_TRUE(held.ok()) << held.status();
      if (!held->reached()) continue;
      reached += reached_ ? 0 : 1;
      reached_ = true;
      for (const auto& [n, twin] : twins_) {
        ASSERT_LE(twin.begun, step_) << n;
        if (twin.joined) {
          ASSERT_GE(twin.ended, step_) << n;
        }
      }
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(reached, 30u);
  EXPECT_GT(twins_["a"].ended, 100u);
}

}  // namespace trainer_holds_test
}  // namespace hotbed
