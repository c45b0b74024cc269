#include "planner/sources/slice_columns.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace slice_columns_test {

using Widths = std::vector<uint32_t>;

TEST(GroupOf, ComparesAsTheSourceDoes) {
  EXPECT_EQ(GroupOf(10, 10, 1000), TableGroup::kDataParallel);  // at the threshold
  EXPECT_EQ(GroupOf(11, 10, 1000), TableGroup::kColumn);
  EXPECT_EQ(GroupOf(100, 10, 1000), TableGroup::kColumn);
  EXPECT_EQ(GroupOf(999, 10, 1000), TableGroup::kColumn);
  EXPECT_EQ(GroupOf(1000, 10, 1000), TableGroup::kRow);  // at the threshold
  EXPECT_EQ(GroupOf(50, 50, 50), TableGroup::kDataParallel) << "data-parallel is asked first";
}

TEST(GroupOf, NoneAndZeroAreOff) {
  EXPECT_EQ(GroupOf(1, std::nullopt, std::nullopt), TableGroup::kColumn);
  EXPECT_EQ(GroupOf(1, 0, 0), TableGroup::kColumn);
}

TEST(SliceWidths, SourceCases) {
  EXPECT_EQ(SliceWidths(10, 7, 20, 4), Widths({2, 2, 2, 1}));
  EXPECT_EQ(SliceWidths(100, 8, 100, 8), Widths(8, 1));
  EXPECT_EQ(SliceWidths(8, 8, 64, 4), Widths({8})) << "at the threshold is not above it";
  EXPECT_EQ(SliceWidths(8, 8, 63, 4), Widths({4, 4}));
  EXPECT_EQ(SliceWidths(100, 8, 45, 4), Widths(4, 2));
  EXPECT_EQ(SliceWidths(5, 8, 45, 4), Widths({8}));
  EXPECT_EQ(SliceWidths(10, 8, 45, 4), Widths({4, 4}));
  EXPECT_EQ(SliceWidths(25, 4, 45, 4), Widths(4, 1));
}

TEST(SliceWidths, HalvesAreNotRoundedDown) {
  // 9 -> 4.5 > 4 -> 2.25: four slices; whole halves would stop at 4 with two.
  EXPECT_EQ(SliceWidths(1, 9, 4, 8), Widths({3, 2, 2, 2}));
}

TEST(SliceWidths, EndsAtWorkersAndColumns) {
  EXPECT_EQ(SliceWidths(1000, 3, 1, 8), Widths({1, 1, 1}));
  EXPECT_EQ(SliceWidths(1000, 8, 1, 3), Widths({3, 3, 2}));
  EXPECT_EQ(SliceWidths(1000, 8, 1, 1), Widths({8}));
  EXPECT_EQ(SliceWidths(4, 4, 0, 4), Widths(4, 1)) << "0 is a threshold, not off";
  EXPECT_EQ(SliceWidths(4, 4, -1, 4), Widths(4, 1)) << "the source would never end";
  EXPECT_EQ(SliceWidths(4, 4, std::nullopt, 4), Widths({4}));
}

TEST(SliceWidths, ComparesLargeSizesExactly) {
  const int64_t size = (1ll << 60) - 2;  // 2^60 as a double
  EXPECT_EQ(SliceWidths(size / 2, 2, size, 4), Widths({2}));
  EXPECT_EQ(SliceWidths(size / 2, 2, size + 1, 4), Widths({2}));
  EXPECT_EQ(SliceWidths(size / 2, 2, size - 1, 4), Widths({1, 1}));
}

TEST(AutomaticColumnThreshold, SourceCase) {
  EXPECT_EQ(AutomaticColumnThreshold({35}, 4), 16);
  EXPECT_EQ(SliceWidths(7, 5, 16, 4), Widths({2, 1, 1, 1}));
}

TEST(AutomaticColumnThreshold, IsOffWithEnoughTables) {
  EXPECT_EQ(AutomaticColumnThreshold({35, 2}, 2), std::nullopt);
  EXPECT_EQ(AutomaticColumnThreshold({35, 2, 3}, 2), std::nullopt);
  EXPECT_EQ(AutomaticColumnThreshold({}, 2), std::nullopt);
}

TEST(AutomaticColumnThreshold, GoesBelowNothing) {
  EXPECT_EQ(AutomaticColumnThreshold({1}, 2), 0);
  EXPECT_EQ(AutomaticColumnThreshold({1}, 3), -1);
}

TEST(EvenParts, TheFirstTakeTheRemainder) {
  using Parts = std::vector<uint64_t>;
  EXPECT_EQ(EvenParts(10, 4), Parts({3, 3, 2, 2}));
  EXPECT_EQ(EvenParts(5, 4), Parts({2, 1, 1, 1}));
  EXPECT_EQ(EvenParts(3, 4), Parts({1, 1, 1, 0}));
}

}  // namespace slice_columns_test
}  // namespace hotbed
