#include "planner/report/imbalance.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace {

TEST(ImbalanceOf, EvenLoadsAreZero) {
  const auto even = ImbalanceOf({3, 3, 3});
  ASSERT_TRUE(even.has_value());
  EXPECT_NEAR(even->total_variation, 0, 1e-15);
  EXPECT_NEAR(even->kl, 0, 1e-15);
  EXPECT_FALSE(ImbalanceOf({}).has_value());
  EXPECT_FALSE(ImbalanceOf({0, 0}).has_value());
  EXPECT_EQ(ImbalanceOf({5})->chi_squared, 0);
  EXPECT_EQ(ImbalanceOf({5})->kl, 0);
}

// All of the load on one of four: variation 3/4, distance 3/4 + 3 * 1/4, and of the other two the
// bounds, by which they are divided: the source's bound of chi-squared counts (k-1)/k once more
// than its measure here, 4 * (9/16 + 3/16) = 3, does: 4 * 9/16 + 3/4 = 3.
TEST(ImbalanceOf, AllOnOneIsTheBound) {
  const auto one = ImbalanceOf({8, 0, 0, 0});
  EXPECT_DOUBLE_EQ(one->total_variation, 0.75);
  EXPECT_DOUBLE_EQ(one->total_distance, 1.5);
  EXPECT_DOUBLE_EQ(one->chi_squared, 1);
  EXPECT_DOUBLE_EQ(one->kl, 1);
}

TEST(ImbalanceOf, AKnownCase) {
  const auto found = ImbalanceOf({1, 3});  // 1/4 and 3/4
  EXPECT_DOUBLE_EQ(found->total_variation, 0.25);
  EXPECT_DOUBLE_EQ(found->total_distance, 0.5);
  EXPECT_DOUBLE_EQ(found->chi_squared, 0.25);          // 2 (1/16 + 1/16) / (1/2 + 1/2)
  EXPECT_NEAR(found->kl, 0.18872187554086717, 1e-15);  // 1 - H(1/4) in bits
}

TEST(CriticalPathOf, TakesTheSlowestOfEachTerm) {
  PlannerOutput plan;
  plan.servers.resize(3);
  plan.servers[0].perf = TablePerf{1, 20, 3, 40, 5};
  plan.servers[1].perf = TablePerf{10, 2, 30, 4, 50};
  EXPECT_EQ(CriticalPathOf(plan).comms_ms, 60);
  EXPECT_EQ(CriticalPathOf(plan).compute_ms, 40);
}

}  // namespace
}  // namespace hotbed
