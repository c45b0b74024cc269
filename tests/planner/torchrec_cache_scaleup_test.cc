// The proposer by cache scale-up: the values that TorchRec's tests publish for its two parts
// (planner/tests/test_utils.py, test_proposers.py), and plans that use it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "planner/torchrec/cache_scaleup.h"
#include "planner/torchrec/plan_like_torchrec.h"
#include "tests/planner/torchrec_inputs.h"

namespace hotbed::torchrec {
namespace torchrec_cache_scaleup_test {

// TorchRec's TestLuusJaakolaSearch: 16 steps in 0 to 100, seeds 0 to 4.
void ExpectMinima(const std::function<double(double)>& cost,
                  const std::vector<std::pair<double, double>>& expected) {
  for (uint32_t seed = 0; seed < expected.size(); ++seed) {
    LuusJaakolaSearch search(0, 100, 16, seed, std::nullopt);
    std::optional<double> place = search.Next(0);
    while (place) place = search.Next(cost(*place));
    EXPECT_NEAR(search.best(), expected[seed].first, 1e-5) << "seed " << seed;
    EXPECT_NEAR(search.best_cost(), expected[seed].second, 1e-3) << "seed " << seed;
  }
}

TEST(LuusJaakolaSearchTest, PublishedMinima) {
  ExpectMinima([](double x) { return x; }, {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}});
  ExpectMinima([](double x) { return x * x - 10 * x + 10; }, {{3.51914, -12.80705},
                                                              {4.22958, -14.40646},
                                                              {5.41303, -14.82940},
                                                              {2.35012, -7.97811},
                                                              {4.18552, -14.33662}});
  ExpectMinima([](double x) { return (x - 30) * (x - 30) + 100 * std::sin(x); },
               {{36.58517, -46.37988},
                {29.73184, -99.28705},
                {37.67208, 56.15779},
                {35.85468, -62.00219},
                {41.76223, 58.69744}});
  ExpectMinima([](double x) { return (x - 30) * (x - 30) + std::fmod(x, 10) * 100; },
               {{23.68681, 408.53735},
                {31.62534, 165.17535},
                {32.81968, 289.91898},
                {42.81567, 445.80777},
                {22.53002, 308.80225}});
}

TEST(LuusJaakolaSearchTest, Ends) {
  LuusJaakolaSearch three(0, 1, 3, 42, std::nullopt);
  int places = 0;
  for (std::optional<double> place = three.Next(0); place; place = three.Next(*place)) ++places;
  EXPECT_EQ(places, 3);
  // PyTorch's first number after manual_seed(42) is 0.8823.
  LuusJaakolaSearch shrunk(0, 1, 16, 42, 1.0);
  EXPECT_NEAR(*shrunk.Next(0), 0.8823, 5e-5);
  shrunk.ShrinkRight(0.5);
  std::optional<double> place = shrunk.Next(1e99);
  ASSERT_TRUE(place.has_value());
  EXPECT_GT(*place, 0);
  EXPECT_LT(*place, 0.5);
  shrunk.ShrinkRight(0);
  EXPECT_FALSE(shrunk.Next(1e99).has_value());
  LuusJaakolaSearch nothing(0, 0, 16, 42, 1.0);
  EXPECT_EQ(nothing.Next(0), 0);
  EXPECT_FALSE(nothing.Next(1).has_value());
}

// Three tables of 2 MB + 30 MB x ratio.
std::vector<double> Allocate(std::vector<double> ratios, std::vector<double> priorities,
                             double budget, double fused = 1e12) {
  std::vector<ScalingCache> caches;
  for (size_t i = 0; i < ratios.size(); ++i) {
    caches.push_back({.per_ratio = 30e6,
                      .fixed = 2e6,
                      .fused = fused,
                      .ratio = ratios[i],
                      .priority = priorities[i]});
  }
  return AllocateCaches(caches, budget);
}

void ExpectRatios(const std::vector<double>& ratios, const std::vector<double>& expected) {
  ASSERT_EQ(ratios.size(), expected.size());
  for (size_t i = 0; i < ratios.size(); ++i) EXPECT_NEAR(ratios[i], expected[i], 1e-5) << i;
}

TEST(AllocateCachesTest, PublishedScenarios) {
  ExpectRatios(Allocate({0.1, 0.1, 1}, {2, 2, 2}, 100e6), {1, 1, 1});
  ExpectRatios(Allocate({0.1, 0.1, 1}, {2, 2, 2}, 10e6), {0.26667, 0.26667, 1});
  ExpectRatios(Allocate({0.1, 0.1, 1}, {2, 4, 2}, 10e6), {0.21111, 0.32222, 1});
  ExpectRatios(Allocate({0.1, 0.3, 0.5}, {1, 2, 100}, 50e6), {0.56667, 1, 1});
}

// With kernel fused a table takes 17 MB, so at half of its rows cached. The second table would get
// 14 MB and needs 12; of the 2 MB over, the first one gets all.
TEST(AllocateCachesTest, WhatAFusedTableSavesGoesToTheOthers) {
  ExpectRatios(Allocate({0.1, 0.1}, {1, 7}, 16e6, 17e6), {0.1 + 4.0 / 30, 1});
  // Exactly what fused takes counts, too.
  ExpectRatios(Allocate({0.1, 0.1}, {1, 1}, 24e6, 17e6), {1, 1});
}

// Two ranks of `device_bytes`, two tables of 2,000,000 x 10 with a tenth cached. The areas under
// the curves of misses are 0.1 and 0.25, and the lookups are equal.
PlannerInput TwoCaches(uint64_t device_bytes) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (InputServer& server : input.topology.servers) server.device_bytes = device_bytes;
  for (const double hits : {0.9, 0.6}) {
    const uint32_t t = AddTable(&input, 2'000'000, 10);
    Allow(&input, t, {Sharding::kTableWise}, {"fused_uvm_caching"});
    ConstraintOf(&input, t).cache_load_factor = 0.1;
    input.tables[t].hotness = {{.rows = 0.1, .accesses = hits}};
  }
  return input;
}

PlannerOutput PlanBy(PlannerInput input, TorchrecProposer proposer) {
  input.options.torchrec.proposers = {proposer};
  const auto plan = PlanLikeTorchrec(input);
  EXPECT_TRUE(plan.ok());
  return plan.ok() ? plan.value() : PlannerOutput();
}

TEST(CacheScaleupTest, SpareMemoryGoesToCachesByTheirMisses) {
  const uint64_t device_bytes = 40 << 20;
  const PlannerInput input = TwoCaches(device_bytes);
  const PlannerOutput before = PlanBy(input, TorchrecProposer::kUniform);
  EXPECT_FALSE(before.tables[0].cache_load_factor.has_value());
  const PlannerOutput plan = PlanBy(input, TorchrecProposer::kCacheScaleup);
  EXPECT_LT(plan.cost.max_server_ms, 0.95 * before.cost.max_server_ms);
  EXPECT_LE(plan.cost.lower_bound_ms, plan.cost.max_server_ms);
  for (const PlacedServer& server : plan.servers) EXPECT_LE(server.bytes.device, device_bytes);
  ASSERT_TRUE(plan.tables[0].cache_load_factor && plan.tables[1].cache_load_factor);
  const double first = *plan.tables[0].cache_load_factor - 0.1;
  const double second = *plan.tables[1].cache_load_factor - 0.1;
  EXPECT_GT(first, 0.01);
  EXPECT_NEAR(second / first, 2.5, 1e-6);
}

TEST(CacheScaleupTest, TablesThatFitAreNotCached) {
  const PlannerOutput plan = PlanBy(TwoCaches(uint64_t{1} << 30), TorchrecProposer::kCacheScaleup);
  for (const PlacedTable& table : plan.tables) {
    EXPECT_EQ(table.ranges[0].kernel, "fused");
    EXPECT_FALSE(table.cache_load_factor.has_value());
    EXPECT_EQ(table.perf->prefetch_ms, 0);
  }
  EXPECT_EQ(plan.cost.gap, 0);
}

// Nothing to deal, or nothing known of misses: the caches stay as they were asked for.
TEST(CacheScaleupTest, NothingToScale) {
  const PlannerOutput roomy = PlanBy(TwoCaches(uint64_t{1} << 30), TorchrecProposer::kUniform);
  const PlannerInput full = TwoCaches(roomy.servers[0].bytes.device);
  PlannerInput unknown = TwoCaches(40 << 20);
  for (InputTable& table : unknown.tables) table.hotness.clear();
  for (const PlannerInput& input : {full, unknown}) {
    const PlannerOutput plan = PlanBy(input, TorchrecProposer::kCacheScaleup);
    EXPECT_EQ(plan.tables, PlanBy(input, TorchrecProposer::kUniform).tables);
  }
  PlannerInput never = TwoCaches(10'000'000);
  never.options.torchrec.proposers = {TorchrecProposer::kCacheScaleup};
  EXPECT_FALSE(PlanLikeTorchrec(never).ok());
}

}  // namespace torchrec_cache_scaleup_test
}  // namespace hotbed::torchrec
