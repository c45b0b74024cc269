// The simulated cluster keeps its promises, is no empty run, and finds each planted bug.
//
// By default some 20,000 seeds, fewer where the machine is slow. HOTBED_SIM_SEEDS=N runs N seeds of
// the mixed weather and N/10 of each other one, however long that takes. Any number: ./dev sim.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/common/sanitized.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/planted_bugs.h"

namespace hotbed::sim {
namespace cluster_sim_test {

// A run over seeds ends after `seeds_max` of them, or when it has lasted for `seconds_max` and has
// run `seeds_min`.
struct Length {
  uint64_t seeds_min;
  uint64_t seeds_max;
  double seconds_max;
};
constexpr Length kMixedLength = {200, 12'000, 15.0};
constexpr Length kWeatherLength = {20, 1'000, 2.0};  // of each weather

Length Asked(const Length& length, uint64_t divisor) {
  const char* const asked = std::getenv("HOTBED_SIM_SEEDS");
  if (asked == nullptr) return length;
  const uint64_t seeds = std::strtoull(asked, nullptr, 0) / divisor;
  return {seeds, seeds, 0};
}

class Stopwatch {
 public:
  explicit Stopwatch(const Length& length) : length_(length) {}

  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  bool Continues(uint64_t seeds) const {
    if (seeds < length_.seeds_min) return true;
    return seeds < length_.seeds_max && Seconds() < length_.seconds_max;
  }

 private:
  const Length length_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

TEST(ClusterSimTest, KeepsItsPromises) {
  ASSERT_TRUE(Plant(""));
  const char* const replayed = std::getenv("HOTBED_TEST_SEED");
  const uint64_t first = replayed == nullptr ? 1 : std::strtoull(replayed, nullptr, 0);
  const Stopwatch watch(Asked(kMixedLength, 1));
  ClusterStats total;
  uint64_t seeds = 0;
  while (watch.Continues(seeds)) {
    ClusterSimulation simulation(first + seeds);
    const std::string violation = simulation.Run();
    ASSERT_EQ(violation, "") << "replay: ./dev sim --first " << first + seeds
                             << " --seeds 1 --trace";
    total.Add(simulation.stats());
    ++seeds;
    if (replayed != nullptr) return;
  }
  std::printf("%lu seeds, %.0f per second\n%s\n", seeds,
              static_cast<double>(seeds) / watch.Seconds(), total.Text().c_str());
  // A world in which nothing happens proves nothing.
  EXPECT_GE(total.acknowledged, 200 * seeds);
  EXPECT_GE(total.epochs, 15 * seeds);
  EXPECT_GE(total.moves, 8 * seeds);
  EXPECT_GE(total.faults, 6 * seeds);
  for (const uint64_t count :
       {total.kills, total.snapshots, total.replicas_deleted, total.fail_overs, total.strict_pulls,
        total.backup_pulls, total.commits, total.append_failures, total.writes_refused}) {
    EXPECT_GE(count, seeds / 2);
  }
  for (const uint64_t count :
       {total.machines_lost, total.bases_taken, total.taken_back, total.transfers_broken,
        total.further_passes, total.given_up, total.fenced}) {
    EXPECT_GE(count, seeds / 50);
  }
}

TEST(ClusterSimTest, KeepsItsPromisesInAnyWeather) {
  ASSERT_TRUE(Plant(""));
  for (const Weather& weather : Weathers()) {
    const Stopwatch watch(Asked(kWeatherLength, 10));
    ClusterStats total;
    uint64_t seeds = 0;
    while (watch.Continues(seeds)) {
      ClusterSimulation simulation(++seeds, weather);
      const std::string violation = simulation.Run();
      ASSERT_EQ(violation, "") << "replay: ./dev sim --first " << seeds
                               << " --seeds 1 --trace --weather " << weather.name;
      total.Add(simulation.stats());
    }
    std::printf("%s: %lu seeds\n%s\n", weather.name.c_str(), seeds, total.Text().c_str());
    EXPECT_GE(total.acknowledged, 100 * seeds) << weather.name;
    EXPECT_GE(total.faults, 3 * seeds) << weather.name;
    if (weather.name == "damage") {
      EXPECT_GE(total.spoilt, seeds / 2);
    }
    if (weather.name == "disks") {
      EXPECT_GE(total.disks_lost, seeds);
      EXPECT_GE(total.taken_back, seeds);
      EXPECT_GE(total.passed_over, seeds / 10);
    }
    if (weather.name == "merges" || weather.name == "checkpoints") {
      EXPECT_GE(total.merges, seeds / 2);
    }
    if (weather.name == "expiry") {
      EXPECT_GE(total.expired, 10 * seeds);
    }
    if (weather.name == "stops") {
      EXPECT_GE(total.stops, 2 * seeds);
    }
    if (weather.name == "silence") {
      EXPECT_GE(total.cut_off, seeds);
    }
  }
}

class PlantedBugTest : public testing::TestWithParam<PlantedBug> {
 protected:
  ~PlantedBugTest() override { Plant(""); }
};

TEST_P(PlantedBugTest, IsFound) {
  const PlantedBug& bug = GetParam();
  if (kSanitized) GTEST_SKIP() << "that bugs are found is shown by the build without sanitizers";
  if (bug.seeds_max == 0) GTEST_SKIP() << "rare: ./dev sim --mutant " << bug.name;
  ASSERT_TRUE(Plant(bug.name));
  const Weather* const weather = FindWeather(bug.weather);
  ASSERT_NE(weather, nullptr) << bug.weather;
  // Begins with a seed that is known to find it. A change elsewhere changes what each seed does:
  // then later seeds find it, and planted_bugs.cc is to name the first of them.
  for (uint64_t seed = bug.first_seed; seed < bug.first_seed + bug.seeds_max; ++seed) {
    const std::string violation = RunApart(seed, *weather);
    if (violation.empty()) continue;
    std::printf(
        "found by seed %lu: %s\n  replay: ./dev sim --first %lu --seeds 1 --mutant %s "
        "--weather %s\n",
        seed, violation.c_str(), seed, bug.name, bug.weather);
    return;
  }
  FAIL() << bug.name << ": not found by " << bug.seeds_max << " seeds from " << bug.first_seed;
}

INSTANTIATE_TEST_SUITE_P(Planted, PlantedBugTest, testing::ValuesIn(PlantedBugs()),
                         [](const testing::TestParamInfo<PlantedBug>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace cluster_sim_test
}  // namespace hotbed::sim
