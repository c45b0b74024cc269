// Plans by cost against the true optimum over the same shards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "common/random.h"
#include "planner/cost/cost_report.h"
#include "planner/cost/lower_bound.h"
#include "planner/cost/problem.h"
#include "planner/cost/solve.h"
#include "tests/common/test_seed.h"
#include "tests/planner/exhaustive_planner.h"
#include "tests/planner/random_input.h"

namespace hotbed {
namespace exhaustive_test {

constexpr double kPlacementsMax = 3e5;

struct Comparison {
  std::vector<double> gaps;
  int infeasible = 0;        // by both
  int missed = 0;            // an error where a plan exists
  int bound_too_high = 0;    // a lower bound above the optimum
  int conflicts_missed = 0;  // more zone conflicts than needed
};

// False where the problem is too large or cannot be built.
bool CompareOne(const PlannerInput& input, Comparison& comparison) {
  const PlanResult<Problem> problem = BuildProblem(input);
  if (!problem.ok() || problem.value().usable < 2) return false;  // one server: nothing to choose
  const double servers = problem.value().usable;
  if (std::pow(servers, problem.value().units.size()) > kPlacementsMax) return false;
  const BestPlacement best = PlaceExhaustively(problem.value());
  PlacementState state(problem.value());
  int64_t bound = LowerBoundOf(problem.value(), /*zones=*/true).ticks;
  const std::optional<PlanError> error = SolveFromNothing(input, state, bound);
  if (best.zone_conflicts > 0) bound = LowerBoundOf(problem.value(), /*zones=*/false).ticks;
  if (!best.feasible) {
    ++comparison.infeasible;
    EXPECT_TRUE(error.has_value());
    return true;
  }
  if (error.has_value()) {
    ++comparison.missed;
    return true;
  }
  const PlacementScore score = ScoreOf(state);
  // ScoreOf counts a conflict for both of its members.
  EXPECT_GE(score.conflicts, 2 * best.zone_conflicts);
  if (score.conflicts > 2 * best.zone_conflicts) {
    ++comparison.conflicts_missed;
    return true;
  }
  const double ms = problem.value().Ms(score.ticks);
  // The planner rounds a shard's heat to whole bytes, which shows in shards of some hundred bytes.
  EXPECT_GE(ms, best.ms * (1 - 1e-3)) << "better than the optimum: one of both counts wrongly";
  comparison.gaps.push_back(best.ms > 0 ? ms / best.ms - 1 : 0);
  if (problem.value().Ms(bound) > best.ms * (1 + 1e-3)) ++comparison.bound_too_high;
  return true;
}

Comparison Compare(Random& random, int cases, uint64_t evaluations_max) {
  Comparison comparison;
  for (int done = 0; done < cases;) {
    RandomInputLimits limits;
    limits.tables_max = 7;
    limits.servers_max = 4;
    limits.rows_max = 5000;
    limits.room_min = random.OneIn(2) ? 0.95 : 1.3;
    PlannerInput input = RandomInput(random, limits);
    input.options.evaluations_max = evaluations_max;
    done += CompareOne(input, comparison);
  }
  std::sort(comparison.gaps.begin(), comparison.gaps.end());
  return comparison;
}

TEST(ExhaustivePlanner, SmallProblemsComeOutNearTheOptimum) {
  const TestSeed seed(4);
  Random random(seed.value());
  const Comparison c = Compare(random, 800, 100000);
  ASSERT_GE(c.gaps.size(), 500u);
  const double median = c.gaps[c.gaps.size() / 2];
  printf("%zu plans: gap median %.4f, worst %.4f; %d infeasible, %d missed\n", c.gaps.size(),
         median, c.gaps.back(), c.infeasible, c.missed);
  EXPECT_LE(median, 0.02);
  EXPECT_LE(c.gaps.back(), 0.10);
  EXPECT_EQ(c.missed, 0);
  EXPECT_EQ(c.bound_too_high, 0);
  EXPECT_EQ(c.conflicts_missed, 0);
  EXPECT_GT(c.infeasible, 10);
}

// Without the search over all placements: what larger problems get.
TEST(ExhaustivePlanner, SoDoTheGreedyAndTheImprovementAlone) {
  const TestSeed seed(5);
  Random random(seed.value());
  const Comparison c = Compare(random, 800, 300);
  ASSERT_GE(c.gaps.size(), 500u);
  const double median = c.gaps[c.gaps.size() / 2];
  printf("%zu plans: gap median %.4f, 95 %% %.4f, worst %.4f; %d infeasible, %d missed\n",
         c.gaps.size(), median, c.gaps[c.gaps.size() * 95 / 100], c.gaps.back(), c.infeasible,
         c.missed);
  EXPECT_LE(median, 0.02);
  EXPECT_EQ(c.bound_too_high, 0);
}

}  // namespace exhaustive_test
}  // namespace hotbed
