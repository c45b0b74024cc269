#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/trainer_story.h"

namespace hotbed {
namespace trainer_groups_random_test {

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

}  // namespace trainer_groups_random_test
}  // namespace hotbed
