// Counting misses: against exact counters while there are few rows, and what a window forgets.
#include "server/tiers/heat_filter.h"

#include <gtest/gtest.h>

#include <map>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace {

TEST(HeatFilterTest, NeverColderThanExactCountersAndSeldomHotter) {
  const TestSeed seed(11);
  Random random(seed.value());
  HeatFilter heat(1 << 16);
  std::map<uint64_t, uint32_t> exact;
  uint64_t hotter = 0;
  constexpr int kMisses = 20000;
  for (int i = 0; i < kMisses; ++i) {
    const uint64_t position = random.Uniform(8000);
    const uint32_t counted = heat.Miss(position);
    const uint32_t want = std::min(3u, ++exact[position]);
    ASSERT_GE(counted, want) << "position " << position;
    ASSERT_LE(counted, 3u);
    hotter += counted > want;
  }
  EXPECT_LT(hotter, kMisses / 5) << "8,000 rows share 65,536 counters";
}

TEST(HeatFilterTest, AWindowOfOthersHalvesWhatWasCounted) {
  HeatFilter heat(1);
  for (int i = 0; i < 3; ++i) heat.Miss(42);
  EXPECT_EQ(heat.Miss(42), 3u);
  // All of one other row, so that no counter but its own is touched.
  uint64_t other = 0;
  while (HeatFilter(1).Miss(42) + [&] {
    HeatFilter both(1);
    both.Miss(42);
    return both.Miss(other);
  }() != 2) {
    ++other;
  }
  for (uint64_t i = 0; i < heat.window(); ++i) heat.Miss(other);
  EXPECT_EQ(heat.Miss(42), 2u) << "3 halved is 1, and this one";
}

TEST(HeatFilterTest, ItsSizeIsBounded) {
  EXPECT_EQ(HeatFilter(0).bytes(), HeatFilter::kCountersMin / 4);
  EXPECT_EQ(HeatFilter(1ull << 40).bytes(), HeatFilter::kCountersMax / 4);
}

}  // namespace
}  // namespace hotbed
