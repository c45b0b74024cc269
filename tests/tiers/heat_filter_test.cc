// Counting misses: against exact counters while there are few rows, and what a window forgets.
#include "server/tiers/device/heat_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "common/random.h"
#include "row_math/position.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace heat_filter_test {

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

TEST(HeatFilterTest, ARowIsDueForSixteenMisses) {
  HeatFilter heat(1 << 20);
  for (uint64_t i = 0; i < 3 * HeatFilter::kMissesARow - 1; ++i) heat.Miss(i);
  EXPECT_EQ(heat.rows_due(), 2u);
  heat.Miss(99);
  EXPECT_EQ(heat.rows_due(), 3u);
  heat.CameUp(2);
  EXPECT_EQ(heat.rows_due(), 1u);
  heat.CameUp(5);
  EXPECT_EQ(heat.rows_due(), 0u) << "none is owed";
  for (uint64_t i = 0; i < 2 * HeatFilter::kRowsDueMax * HeatFilter::kMissesARow; ++i) heat.Miss(i);
  EXPECT_EQ(heat.rows_due(), HeatFilter::kRowsDueMax) << "what was not used is not saved up";
}

TEST(HeatFilterTest, ItsSizeIsBounded) {
  EXPECT_EQ(HeatFilter(0).bytes(), HeatFilter::kCountersMin / 4);
  EXPECT_EQ(HeatFilter(1ull << 40).bytes(), HeatFilter::kCountersMax / 4);
}

// A full tier of half of a table's rows, as the device is one: buckets of 64, whose clock passes
// over two visits; what is read is drawn by Zipf's law with exponent 1.05, row 0 the most frequent.
class HalfTier {
 public:
  static constexpr uint32_t kRows = 1 << 18;
  static constexpr uint32_t kBucketRows = 64;
  static constexpr uint32_t kBuckets = kRows / 2 / kBucketRows;
  static constexpr uint32_t kIdsOfMessage = 1 << 10;

  HalfTier(bool is_paced, bool has_hot, uint64_t seed)
      : is_paced_(is_paced),
        random_(seed),
        rows_(kRows / 2, kRows),
        visits_(kRows / 2),
        hands_(kBuckets),
        at_(kRows, -1),
        heat_(kRows / 2) {
    // More than there is room for, as some buckets are full before others.
    for (uint32_t k = kRows * 17 / 20; k-- > 0;) Insert(has_hot ? k : kRows - 1 - k);
  }

  // The part of the ids that missed.
  double Read(int messages) {
    uint64_t misses = 0;
    for (int m = 0; m < messages; ++m) {
      for (uint32_t k = 0; k < kIdsOfMessage; ++k) misses += !Visit(Draw());
      BringUp();
    }
    misses_ += misses;
    return static_cast<double>(misses) / kIdsOfMessage / messages;
  }
  double brought_of_misses() const {
    return static_cast<double>(brought_) / static_cast<double>(misses_);
  }

 private:
  uint32_t Draw() {
    const double u = static_cast<double>(random_.Uniform(1ull << 53)) / 9007199254740992.0;
    const double whole = std::pow(kRows + 1.0, -0.05) - 1;
    return std::min(static_cast<uint32_t>(std::pow(1 + u * whole, -20.0)) - 1, kRows - 1);
  }
  bool Visit(uint32_t row) {
    if (at_[row] >= 0) {
      uint8_t& visits = visits_[static_cast<size_t>(at_[row])];
      visits = static_cast<uint8_t>(std::min(visits + 1, 2));
      return true;
    }
    const bool is_hot = heat_.Miss(row) >= HeatFilter::kMissesToComeUp;
    if (is_hot && candidates_.size() < 256) candidates_.push_back(row);
    return false;
  }
  void BringUp() {
    for (uint32_t n = 0; n < 16 && !candidates_.empty(); ++n) {
      if (is_paced_ && heat_.rows_due() == 0) return;
      Insert(candidates_.back());
      candidates_.pop_back();
      heat_.CameUp(1);
      ++brought_;
    }
  }
  void Insert(uint32_t row) {
    if (at_[row] >= 0) return;
    const size_t bucket = Mix64(row) % kBuckets;
    for (;;) {
      const size_t slot = bucket * kBucketRows + hands_[bucket];
      hands_[bucket] = static_cast<uint8_t>((hands_[bucket] + 1) % kBucketRows);
      if (visits_[slot] > 0) {
        --visits_[slot];
        continue;
      }
      if (rows_[slot] != kRows) at_[rows_[slot]] = -1;
      rows_[slot] = row;
      at_[row] = static_cast<int32_t>(slot);
      return;
    }
  }

  const bool is_paced_;
  Random random_;
  std::vector<uint32_t> rows_;  // of each slot; kRows: none
  std::vector<uint8_t> visits_;
  std::vector<uint8_t> hands_;
  std::vector<int32_t> at_;
  HeatFilter heat_;
  std::vector<uint32_t> candidates_;
  uint64_t misses_ = 0;
  uint64_t brought_ = 0;
};

TEST(HeatFilterTest, ThePaceKeepsALongTailFromDrivingOutWhatIsBetter) {
  const TestSeed seed(3);
  HalfTier paced(true, true, seed.value()), unpaced(false, true, seed.value());
  paced.Read(3000);
  unpaced.Read(3000);
  const double paced_misses = paced.Read(1000), unpaced_misses = unpaced.Read(1000);
  printf("of the ids miss %.4f at the pace, %.4f without; rows come up for a miss: %.3f, %.3f\n",
         paced_misses, unpaced_misses, paced.brought_of_misses(), unpaced.brought_of_misses());
  EXPECT_LT(paced_misses, 0.95 * unpaced_misses);
  EXPECT_LE(paced.brought_of_misses(), 1.0 / HeatFilter::kMissesARow + 0.001);
}

TEST(HeatFilterTest, AtThePaceWhatHasBecomeHotComesUp) {
  const TestSeed seed(4);
  HalfTier tier(true, /*has_hot=*/false, seed.value());
  const double first = tier.Read(20);
  const double soon = (tier.Read(380), tier.Read(20));
  const double late = (tier.Read(3580), tier.Read(20));
  printf("of the ids miss %.3f at first, %.3f after 400 messages, %.3f after 4,000\n", first, soon,
         late);
  EXPECT_LT(soon, 0.6 * first);
  EXPECT_LT(late, 0.35 * first);
}

}  // namespace heat_filter_test
}  // namespace hotbed
