#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "server/protocol/core_mutant.h"
#include "tests/sim/shard_simulation.h"

namespace hotbed {

CoreMutant g_core_mutant = CoreMutant::kNone;

namespace shard_core_sim_test {

constexpr uint64_t kSeeds = 3000;
constexpr uint64_t kMutantSeedsMax = 3000;

uint64_t FirstSeed() {
  const char* seed = std::getenv("HOTBED_TEST_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

TEST(ShardCoreSimTest, KeepsItsPromisesOverThousandsOfSeeds) {
  g_core_mutant = CoreMutant::kNone;
  SimulationStats total;
  const bool one_seed = std::getenv("HOTBED_TEST_SEED") != nullptr;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + (one_seed ? 1 : kSeeds); ++seed) {
    ShardSimulation simulation(seed);
    const std::string violation = simulation.Run();
    ASSERT_EQ(violation, "") << "seed " << seed << "; replay: HOTBED_TEST_SEED=" << seed
                             << " shard_core_sim_test";
    const SimulationStats& stats = simulation.stats();
    total.events += stats.events;
    total.acknowledged += stats.acknowledged;
    total.duplicates += stats.duplicates;
    total.epochs += stats.epochs;
    total.crashes += stats.crashes;
    total.append_failures += stats.append_failures;
    total.refused += stats.refused;
    total.commits += stats.commits;
    total.given_up += stats.given_up;
  }
  std::printf(
      "%lu events, %lu acknowledged, %lu duplicate answers, %lu epochs, %lu crashes, "
      "%lu append failures, %lu refused, %lu commits, %lu trainers given up\n",
      total.events, total.acknowledged, total.duplicates, total.epochs, total.crashes,
      total.append_failures, total.refused, total.commits, total.given_up);
  if (one_seed) return;
  // A world in which nothing happens proves nothing.
  EXPECT_GT(total.acknowledged, kSeeds * 60);
  EXPECT_GT(total.commits, kSeeds * 8);
  EXPECT_GT(total.given_up, kSeeds / 10);
  EXPECT_GT(total.crashes, kSeeds);
  EXPECT_GT(total.append_failures, kSeeds);
  EXPECT_GT(total.duplicates, kSeeds);
}

struct MutantCase {
  CoreMutant mutant;
  const char* name;
};

class MutantTest : public testing::TestWithParam<MutantCase> {
 protected:
  ~MutantTest() override { g_core_mutant = CoreMutant::kNone; }
};

TEST_P(MutantTest, IsCaught) {
  g_core_mutant = GetParam().mutant;
  for (uint64_t seed = 1; seed <= kMutantSeedsMax; ++seed) {
    const std::string violation = ShardSimulation(seed).Run();
    if (violation.empty()) continue;
    std::printf("%s: caught by seed %lu: %s\n", GetParam().name, seed, violation.c_str());
    return;
  }
  FAIL() << GetParam().name << ": not caught by " << kMutantSeedsMax << " seeds";
}

INSTANTIATE_TEST_SUITE_P(
    Planted, MutantTest,
    testing::Values(
        MutantCase{CoreMutant::kAckBeforeAppend, "AckBeforeAppend"},
        MutantCase{CoreMutant::kSessionsForgottenOnRestart, "SessionsForgottenOnRestart"},
        MutantCase{CoreMutant::kGapAccepted, "GapAccepted"},
        MutantCase{CoreMutant::kDuplicateAckedEarly, "DuplicateAckedEarly"},
        MutantCase{CoreMutant::kPromiseIgnored, "PromiseIgnored"},
        MutantCase{CoreMutant::kPromiseNotAwaited, "PromiseNotAwaited"},
        MutantCase{CoreMutant::kRepliesKeptOverStepDown, "RepliesKeptOverStepDown"},
        MutantCase{CoreMutant::kSessionsKeptOverTruncation, "SessionsKeptOverTruncation"},
        MutantCase{CoreMutant::kIncarnationsNotFenced, "IncarnationsNotFenced"},
        MutantCase{CoreMutant::kStagedAppliedAtOnce, "StagedAppliedAtOnce"},
        MutantCase{CoreMutant::kCommitTakenTwice, "CommitTakenTwice"},
        MutantCase{CoreMutant::kStagedForgottenOnRestart, "StagedForgottenOnRestart"},
        MutantCase{CoreMutant::kOthersCommitted, "OthersCommitted"}),
    [](const testing::TestParamInfo<MutantCase>& info) { return std::string(info.param.name); });

}  // namespace shard_core_sim_test
}  // namespace hotbed
