#include "server/shard/request/segment_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "common/random.h"
#include "row_math/position.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace segment_check_test {

TEST(SegmentCheckTest, FindsTheFirstIdOutside) {
  const ShardRange rows{100, 200, 0, 4};
  const std::vector<uint64_t> ids = {100, 199, 150, 200, 99};
  EXPECT_EQ(FirstIdOutside(ids.data(), 3, rows, false), 3u);
  EXPECT_EQ(FirstIdOutside(ids.data(), 5, rows, false), 3u);
  EXPECT_EQ(FirstIdOutside(ids.data() + 4, 1, rows, false), 0u);
  const ShardRange whole{0, kBuckets, 0, 4};
  const std::vector<uint64_t> any = {0, UINT64_MAX, 1ull << 63};
  EXPECT_EQ(FirstIdOutside(any.data(), 3, whole, true), 3u);
  const uint64_t in_bucket_7 = Unmix64(7ull << 48 | 12345);
  const uint64_t in_bucket_8 = Unmix64(8ull << 48);
  const ShardRange bucket{7, 8, 0, 4};
  const std::vector<uint64_t> two = {in_bucket_7, in_bucket_8};
  EXPECT_EQ(FirstIdOutside(two.data(), 2, bucket, true), 1u);
  const ShardRange last{kBuckets - 1, kBuckets, 0, 4};
  const uint64_t highest = Unmix64(UINT64_MAX);
  EXPECT_EQ(FirstIdOutside(&highest, 1, last, true), 1u);
}

TEST(SegmentCheckTest, FindsTheFirstRepeatedId) {
  const TestSeed seed(3);
  Random random(seed.value());
  for (const uint32_t count : {1u, 2u, 63u, 512u, 5000u, 100000u}) {
    for (const uint64_t range : {uint64_t{count}, UINT64_MAX}) {
      std::vector<uint64_t> ids(count);
      for (uint64_t& id : ids) id = random.Uniform(range);
      std::set<uint64_t> seen;
      uint32_t expected = 0;
      while (expected < count && seen.insert(ids[expected]).second) ++expected;
      EXPECT_EQ(FirstRepeatedId(ids.data(), count), expected) << count << " ids below " << range;
    }
  }
}

TEST(SegmentCheckTest, EveryElementIsLookedAt) {
  for (const uint32_t dim : {1u, 7u, 16u, 33u}) {
    for (uint32_t at = 0; at < dim; ++at) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), -INFINITY}) {
        // One byte off alignment, as a message may have it.
        std::vector<uint8_t> bytes(dim * 4 + 1, 0);
        std::memcpy(bytes.data() + 1 + at * 4, &bad, 4);
        EXPECT_FALSE(IsFinite(bytes.data() + 1, dim, RowType::kFp32));
      }
      std::vector<uint16_t> halves(dim, 0x7bff);
      EXPECT_TRUE(IsFinite(reinterpret_cast<uint8_t*>(halves.data()), dim, RowType::kFp16));
      halves[at] = 0xfc00;
      EXPECT_FALSE(IsFinite(reinterpret_cast<uint8_t*>(halves.data()), dim, RowType::kFp16));
      halves.assign(dim, 0x7f7f);
      EXPECT_TRUE(IsFinite(reinterpret_cast<uint8_t*>(halves.data()), dim, RowType::kBf16));
      halves[at] = 0x7fc0;
      EXPECT_FALSE(IsFinite(reinterpret_cast<uint8_t*>(halves.data()), dim, RowType::kBf16));
    }
    const std::vector<float> largest(dim, std::numeric_limits<float>::max());
    EXPECT_TRUE(IsFinite(reinterpret_cast<const uint8_t*>(largest.data()), dim, RowType::kFp32));
  }
}

}  // namespace segment_check_test
}  // namespace hotbed
