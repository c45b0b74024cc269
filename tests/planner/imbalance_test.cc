#include "planner/report/imbalance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hotbed {
namespace imbalance_test {

TEST(ImbalanceTest, EvenIsZero) {
  const Imbalance even = MeasureImbalance(std::vector<double>{2, 2, 2, 2});
  EXPECT_EQ(even.total_variation, 0);
  EXPECT_EQ(even.total_distance, 0);
  EXPECT_EQ(even.chi_squared, 0);
  EXPECT_EQ(even.kl_divergence, 0);
}

// One server has it all: the greatest value of each measure. For two servers TorchRec's tests give
// a total variation of 0.5 and a total distance of 1.
TEST(ImbalanceTest, AllOnOne) {
  const Imbalance two = MeasureImbalance(std::vector<double>{0, 7});
  EXPECT_DOUBLE_EQ(two.total_variation, 0.5);
  EXPECT_DOUBLE_EQ(two.total_distance, 1.0);
  EXPECT_DOUBLE_EQ(two.chi_squared, 1.0);
  EXPECT_DOUBLE_EQ(two.kl_divergence, 1.0);
  std::vector<double> many(137, 0.0);
  many[5] = 3;
  const Imbalance all = MeasureImbalance(many);
  EXPECT_NEAR(all.total_variation, 136.0 / 137, 1e-12);
  EXPECT_NEAR(all.chi_squared, 1.0, 1e-12);
  EXPECT_NEAR(all.kl_divergence, 1.0, 1e-12);
}

// TorchRec's tests: the divergence of (0.1, 0.9) is 0.368 before it is divided by ln 2.
TEST(ImbalanceTest, BetweenTheTwo) {
  const Imbalance uneven = MeasureImbalance(std::vector<double>{1, 9});
  EXPECT_NEAR(uneven.kl_divergence * std::log(2.0), 0.368, 5e-4);
  EXPECT_NEAR(uneven.total_variation, 0.4, 1e-15);
  EXPECT_NEAR(uneven.total_distance, 0.8, 1e-15);
  EXPECT_NEAR(uneven.chi_squared, 2 * 0.16 * 2, 1e-15);
}

TEST(ImbalanceTest, NothingToMeasure) {
  EXPECT_EQ(MeasureImbalance({}).total_distance, 0);
  EXPECT_EQ(MeasureImbalance(std::vector<double>{0, 0}).kl_divergence, 0);
  const Imbalance one = MeasureImbalance(std::vector<double>{5});
  EXPECT_EQ(one.chi_squared, 0);
  EXPECT_EQ(one.kl_divergence, 0);
}

}  // namespace imbalance_test
}  // namespace hotbed
