#include "common/top_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace top_rows_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<uint64_t> IdsOf(const std::vector<ScoredRow>& rows) {
  std::vector<uint64_t> ids;
  for (const ScoredRow& row : rows) ids.push_back(row.id);
  return ids;
}

TEST(TopRowsTest, TiesAreInTheOrderOfIdsAndNoNumberIsLast) {
  for (const bool smaller_first : {false, true}) {
    TopRows top(6, smaller_first);
    top.Offer({9, 1});
    top.Offer({4, kNan});
    top.Offer({3, 1});
    top.Offer({7, smaller_first ? -kInfinity : kInfinity});
    top.Offer({2, kNan});
    top.Offer({5, smaller_first ? kInfinity : -kInfinity});
    EXPECT_EQ(IdsOf(top.Take()), (std::vector<uint64_t>{7, 3, 9, 5, 2, 4}));
  }
}

TEST(TopRowsTest, TheSmallerIdTakesThePlaceOfALargerOne) {
  TopRows top(2, false);
  for (const uint64_t id : {30u, 20u, 10u, 40u}) top.Offer({id, 0.5});
  EXPECT_EQ(top.floor(), 0.5);
  EXPECT_FALSE(top.Wants({30, 0.5}));
  EXPECT_TRUE(top.Wants({5, 0.5}));
  EXPECT_EQ(IdsOf(top.Take()), (std::vector<uint64_t>{10, 20}));
}

TEST(TopRowsTest, AnIdCountsOnceWithItsFirstScore) {
  TopRows top(2, false);
  top.Offer({1, 2});
  top.Offer({1, 3});
  top.Offer({2, 1});
  EXPECT_FALSE(top.Wants({1, 9}));
  EXPECT_EQ(top.Take(), (std::vector<ScoredRow>{{1, 2}, {2, 1}}));
}

// The twin sorts all rows.
TEST(TopRowsTest, EqualsASort) {
  const TestSeed seed(5);
  Random random(seed.value());
  for (int round = 0; round < 200; ++round) {
    const bool smaller_first = random.Uniform(2) == 1;
    const auto k = static_cast<uint32_t>(1 + random.Uniform(20));
    TopRows top(k, smaller_first);
    std::vector<ScoredRow> rows;
    const uint64_t count = random.Uniform(100);
    for (uint64_t id = 0; id < count; ++id) {
      const double score = random.Uniform(12) == 0 ? kNan : static_cast<double>(random.Uniform(9));
      rows.push_back({id * 7 % 101, score});
      top.Offer(rows.back());
    }
    std::sort(rows.begin(), rows.end(), [&](const ScoredRow& a, const ScoredRow& b) {
      const bool a_none = std::isnan(a.score), b_none = std::isnan(b.score);
      if (a_none || b_none) return a_none == b_none ? a.id < b.id : b_none;
      if (a.score == b.score) return a.id < b.id;
      return smaller_first ? a.score < b.score : a.score > b.score;
    });
    rows.resize(std::min<size_t>(rows.size(), k));
    EXPECT_EQ(IdsOf(top.Take()), IdsOf(rows)) << "round " << round;
  }
}

}  // namespace top_rows_test
}  // namespace hotbed
