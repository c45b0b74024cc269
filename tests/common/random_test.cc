#include "common/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/zipf.h"

namespace hotbed {
namespace random_test {

TEST(Random, IsTheSameForTheSameSeed) {
  Random a(7);
  Random b(7);
  Random c(8);
  const uint64_t first = a.Next();
  EXPECT_EQ(first, b.Next());
  EXPECT_NE(first, c.Next());
}

TEST(Random, UniformIsUniformAndInRange) {
  Random random(9);
  int counts[10] = {};
  for (int i = 0; i < 100000; ++i) ++counts[random.Uniform(10)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);  // 5 standard deviations
  EXPECT_EQ(random.Uniform(1), 0u);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) sum += random.Double();
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Zipf, HasTheFrequenciesOfItsDefinition) {
  constexpr int kRanks = 20;
  constexpr int kDraws = 200000;
  for (const double exponent : {0.0, 0.6, 1.0, 1.05, 2.0}) {
    Random random(10);
    const ZipfSampler zipf(exponent, kRanks);
    std::vector<int> counts(kRanks);
    for (int i = 0; i < kDraws; ++i) ++counts[zipf.Sample(random)];
    double sum = 0;
    for (int k = 1; k <= kRanks; ++k) sum += std::pow(k, -exponent);
    for (int k = 1; k <= kRanks; ++k) {
      const double expected = kDraws * std::pow(k, -exponent) / sum;
      EXPECT_NEAR(counts[k - 1], expected, 5 * std::sqrt(expected)) << exponent << " rank " << k;
    }
  }
}

TEST(Zipf, LargeAndSmallTables) {
  Random random(11);
  const ZipfSampler one(1.05, 1);
  EXPECT_EQ(one.Sample(random), 0u);
  const uint64_t n = uint64_t{1} << 40;
  const ZipfSampler large(1.05, n);
  uint64_t largest = 0;
  for (int i = 0; i < 10000; ++i) largest = std::max(largest, large.Sample(random));
  EXPECT_LT(largest, n);
  EXPECT_GT(largest, n >> 20);
}

}  // namespace random_test
}  // namespace hotbed
