#include "row_math/position.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace {

// Part of the on-disk and the wire format. Source: splitmix64 (Steele, Lea and Flood, 2014); the
// value of Mix64(0) is the first output of its reference implementation from seed 0.
TEST(Position, Vectors) {
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(Mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(Mix64(0x3c6ef372fe94f82au), 0x06c45d188009454fu);
  EXPECT_EQ(BucketOf(Mix64(0)), 0xe220u);
}

TEST(Position, IsABijection) {
  const TestSeed seed(3);
  Random random(seed.value());
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    EXPECT_EQ(Unmix64(Mix64(id)), id);
    EXPECT_EQ(Mix64(Unmix64(id)), id);
  }
  for (int i = 0; i < 100000; ++i) {
    const uint64_t id = random.Next() >> random.Uniform(64);
    ASSERT_EQ(Unmix64(Mix64(id)), id);
  }
}

TEST(Position, SpreadsNeighboursOverBuckets) {
  // 65,536 consecutive ids over 256 groups of buckets: 256 each on average; 5 standard deviations
  // are 80.
  int groups[256] = {};
  for (uint64_t id = 0; id < 65536; ++id) ++groups[BucketOf(Mix64(id)) >> 8];
  for (const int count : groups) EXPECT_NEAR(count, 256, 80);
}

}  // namespace
}  // namespace hotbed
