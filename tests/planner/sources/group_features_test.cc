#include "planner/sources/group_features.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace group_features_test {

const std::vector<uint64_t>& NotebookRows() {
  static const auto* const kRows =
      new std::vector<uint64_t>{100, 2020, 3203, 3434, 3023, 4545, 123, 4566};
  return *kRows;
}

TEST(GroupByDifference, SourceCase) {
  EXPECT_EQ(GroupByDifference(NotebookRows(), 4), FeatureGroups({{7, 0, 6}, {5}, {3, 1}, {2, 4}}));
}

TEST(GroupByDifference, OneGroupHoldsFeaturesNotTheirRows) {
  EXPECT_EQ(GroupByDifference({5, 3, 9}, 1), FeatureGroups({{0, 1, 2}}));
}

TEST(GroupByDifference, EachFeatureOnce) {
  const TestSeed seed(5);
  Random random(seed.value());
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint64_t> rows(1 + random.Uniform(12));
    for (uint64_t& count : rows) count = 1 + random.Uniform(round % 2 == 0 ? 5 : 5000);
    const auto count = static_cast<uint32_t>(1 + random.Uniform(7));
    const FeatureGroups groups = GroupByDifference(rows, count);
    EXPECT_EQ(groups.size(), count);
    std::vector<uint32_t> held;
    for (const auto& group : groups) held.insert(held.end(), group.begin(), group.end());
    std::sort(held.begin(), held.end());
    for (uint32_t i = 0; i < rows.size(); ++i) ASSERT_TRUE(i < held.size() && held[i] == i);
    EXPECT_EQ(held.size(), rows.size());
  }
}

TEST(GroupAscending, CutsTheSortedOrder) {
  // Ascending: 0 (100), 6 (123), 1, 4, 2, 3, 5, 7.
  EXPECT_EQ(GroupAscending(NotebookRows(), 4), FeatureGroups({{0, 6}, {1, 4}, {2, 3}, {5, 7}}));
  EXPECT_EQ(GroupAscending(NotebookRows(), 3), FeatureGroups({{0, 6}, {1, 4}, {2, 3, 5, 7}}));
  EXPECT_EQ(GroupAscending({7, 7, 7}, 2), FeatureGroups({{0}, {1, 2}}));
  EXPECT_EQ(GroupAscending({7, 6}, 3), FeatureGroups({{1}, {0}, {}}));
}

// np.random.seed(0); np.random.permutation(10), and the same with 42.
TEST(GroupShuffled, IsNumpysShuffle) {
  EXPECT_EQ(GroupShuffled(10, 1, 0), FeatureGroups({{2, 8, 4, 9, 1, 6, 7, 3, 0, 5}}));
  EXPECT_EQ(GroupShuffled(10, 1, 42), FeatureGroups({{8, 1, 5, 0, 7, 2, 9, 4, 3, 6}}));
  EXPECT_EQ(GroupShuffled(10, 4, 0), FeatureGroups({{2, 8}, {4, 9}, {1, 6}, {7, 3, 0, 5}}));
}

}  // namespace group_features_test
}  // namespace hotbed
