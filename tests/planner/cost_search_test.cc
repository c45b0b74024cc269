// The parts of the search one by one, each against an independent count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/tables/table_spec.h"
#include "planner/cost/branch_search.h"
#include "planner/cost/greedy.h"
#include "planner/cost/heat_cut.h"
#include "planner/cost/local_search.h"
#include "planner/cost/placement_state.h"
#include "planner/cost/table_mode.h"
#include "tests/common/test_seed.h"
#include "tests/planner/exhaustive_planner.h"
#include "tests/planner/random_input.h"

namespace hotbed {
namespace cost_search_test {

TEST(PlacementState, CountsWhatACountFromScratchGives) {
  const TestSeed seed(31);
  Random random(seed.value());
  for (int i = 0; i < 100; ++i) {
    const PlannerInput input = RandomInput(random, {});
    const PlanResult<Problem> built = BuildProblem(input);
    if (!built.ok()) continue;
    const Problem& problem = built.value();
    PlacementState state(problem);
    for (int step = 0; step < 300; ++step) {
      const uint32_t u = static_cast<uint32_t>(random.Uniform(problem.units.size()));
      const uint32_t s = static_cast<uint32_t>(random.Uniform(problem.servers.size()));
      if (state.ServerOf(u) != kNobody && random.OneIn(3)) {
        state.Remove(u);
      } else if (state.ServerOf(u) == kNobody && state.MayPlace(u, s)) {
        const int64_t expected = state.TicksChanged(s, u, kNobody);
        state.Place(u, s);
        ASSERT_EQ(state.Ticks(s), expected);
      }
    }
    for (uint32_t s = 0; s < problem.servers.size(); ++s) {
      uint64_t used = 0;
      for (const uint32_t u : state.UnitsOn(s)) used += problem.units[u].bytes;
      ASSERT_EQ(state.Used(s), used);
      ASSERT_LE(used, problem.servers[s].capacity.Total());
      const double ms = ServerMs(problem, s, state.UnitsOn(s));
      ASSERT_NEAR(problem.Ms(state.Ticks(s)), ms, 1e-3 * ms + 1e-9);
    }
    for (uint32_t u = 0; u < problem.units.size(); ++u) {
      if (state.ServerOf(u) != kNobody) state.Remove(u);
    }
    for (uint32_t s = 0; s < problem.servers.size(); ++s) {
      ASSERT_EQ(state.Ticks(s), problem.servers[s].load);  // nothing is left behind
    }
  }
}

TEST(ImproveSlowest, NeverMakesItSlowerAndKeepsItsBudget) {
  const TestSeed seed(32);
  Random random(seed.value());
  int improved = 0;
  for (int i = 0; i < 300; ++i) {
    RandomInputLimits limits;
    limits.room_min = 1.5;
    const PlannerInput input = RandomInput(random, limits);
    const PlanResult<Problem> built = BuildProblem(input);
    if (!built.ok()) continue;
    PlacementState state(built.value());
    // A poor start: as full as possible.
    const auto order = GreedyOrder(built.value(), GreedyAim::kRoom);
    if (PlaceGreedily(state, order, GreedyAim::kRoom) != kNobody) continue;
    const PlacementScore before = ScoreOf(state);
    SearchBudget budget;
    budget.evaluations_max = 500;
    ImproveSlowest(state, 0, budget);
    const PlacementScore after = ScoreOf(state);
    ASSERT_LE(after.ticks, before.ticks);
    ASSERT_LE(after.conflicts, before.conflicts);
    ASSERT_LE(budget.evaluations, budget.evaluations_max + 2);
    improved += after.ticks < before.ticks;
    for (uint32_t s = 0; s < built.value().servers.size(); ++s) {
      ASSERT_LE(state.Used(s), built.value().servers[s].capacity.Total());
    }
  }
  EXPECT_GT(improved, 50);
}

TEST(SearchAll, SaysWhetherItSawEverything) {
  PlannerInput input = EqualServers(3, 1 << 20, 0);
  for (int t = 0; t < 5; ++t) AddTable(input, "t" + std::to_string(t), 100 + 30 * t, 16, 1000);
  const PlanResult<Problem> problem = BuildProblem(input);
  ASSERT_TRUE(problem.ok());
  PlacementState state(problem.value());
  SearchBudget budget;
  budget.evaluations_max = 10;
  EXPECT_FALSE(SearchAll(state, {0, INT64_MAX}, false, budget).complete);
  budget = {10000000, 0};
  const BranchResult result = SearchAll(state, {0, INT64_MAX}, false, budget);
  EXPECT_TRUE(result.complete);
  ASSERT_TRUE(result.found);
  EXPECT_EQ(state.UnitsOn(0).size(), 0u);
  for (uint32_t u = 0; u < result.server_of.size(); ++u) state.Place(u, result.server_of[u]);
  const BestPlacement best = PlaceExhaustively(problem.value());
  EXPECT_NEAR(problem.value().Ms(state.SlowestTicks()), best.ms, 1e-9);
}

TEST(CutByHeat, NoShardIsAboveItsPartOfBytesOrTime) {
  const TestSeed seed(33);
  Random random(seed.value());
  for (int i = 0; i < 300; ++i) {
    InputTable table;
    table.rows = 1000 + random.Uniform(10000000);
    table.dim = 64;
    table.zipf = 0.3 + 1.2 * random.Double();
    const auto strata = AccessStrata(table);
    const auto unique = UniqueByStratum(strata, 1 + static_cast<double>(random.Uniform(100000)));
    double all = 0;
    for (const double u : unique) all += u;
    const PieceRange whole{0, table.rows, 0, 64};
    const uint64_t by_bytes = ShardCounts(table, {whole})[0];
    const double shares = 0.1 + 10 * random.Double();
    const auto shards = CutByHeat(table, strata, unique, whole, by_bytes, shares);
    uint64_t next = 0;
    for (const PieceRange& shard : shards) {
      ASSERT_EQ(shard.row_first, next);
      next = shard.row_limit;
      const double rows = static_cast<double>(shard.row_limit - shard.row_first);
      ASSERT_LE(rows, static_cast<double>(table.rows) / static_cast<double>(by_bytes) + 2);
      // But for one hot row on each side, which cannot be cut.
      const double time = UniqueInRows(strata, unique, shard.row_first, shard.row_limit);
      ASSERT_LE(time, all / std::ceil(shares * kPartsOfFair) + 2);
    }
    ASSERT_EQ(next, table.rows);
    ASSERT_LE(shards.size(), kShardsPerTableMax);
  }
}

TEST(ChooseMode, ThresholdsCompareAsTheSourcesDo) {
  InputTable table;
  table.rows = 10;
  table.dim = 64;
  table.optimizer = PlannerOptimizer::kSgd;
  PlannerOptions options;
  options.data_parallel_threshold = 640;
  EXPECT_EQ(ChooseMode(table, nullptr, options, 4).value().mode, TableMode::kDataParallel);
  EXPECT_EQ(ChooseMode(table, nullptr, options, 1).value().mode, TableMode::kRows);
  options.data_parallel_threshold = 639;
  options.row_slice_threshold = 641;
  EXPECT_EQ(ChooseMode(table, nullptr, options, 4).value().mode, TableMode::kWhole);
  options.row_slice_threshold = 640;
  EXPECT_EQ(ChooseMode(table, nullptr, options, 4).value().mode, TableMode::kRows);
  options.column_slice_threshold = 320;
  EXPECT_EQ(ChooseMode(table, nullptr, options, 4).value().slices, 2u);
  options.column_slice_threshold = 640;
  EXPECT_EQ(ChooseMode(table, nullptr, options, 4).value().slices, 1u);
}

}  // namespace cost_search_test
}  // namespace hotbed
