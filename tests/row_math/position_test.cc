#include "row_math/position.h"

#include <gtest/gtest.h>

#include "common/random.h"

namespace hotbed {
namespace position_test {

// Part of the wire and disk formats: the splitmix64 stream that starts at 0 (Vigna's reference).
TEST(PositionTest, Vectors) {
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafull);
  EXPECT_EQ(Mix64(0x9e3779b97f4a7c15ull), 0x6e789e6aa1b965f4ull);
  EXPECT_EQ(Mix64(2 * 0x9e3779b97f4a7c15ull), 0x06c45d188009454full);
}

TEST(PositionTest, UnmixInverts) {
  Random random(3);
  for (uint64_t id : {0ull, 1ull, ~0ull, 1ull << 63}) EXPECT_EQ(Unmix64(Mix64(id)), id);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t id = random.Next();
    ASSERT_EQ(Unmix64(Mix64(id)), id);
    ASSERT_EQ(Mix64(Unmix64(id)), id);
  }
}

TEST(PositionTest, BucketIsTheTopBits) {
  EXPECT_EQ(BucketOf(0), 0u);
  EXPECT_EQ(BucketOf(~0ull), kBuckets - 1);
}

}  // namespace position_test
}  // namespace hotbed
