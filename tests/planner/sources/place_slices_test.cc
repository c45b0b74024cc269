#include "planner/sources/place_slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "common/random.h"
#include "planner/sources/slice_columns.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace place_slices_test {

using Lists = std::vector<std::vector<uint32_t>>;

// The slices of tables of `rows`, of the given widths.
std::vector<TableSlice> Slices(const std::vector<uint64_t>& rows, const Lists& widths) {
  std::vector<TableSlice> slices;
  for (uint32_t t = 0; t < rows.size(); ++t) {
    for (const uint32_t width : widths[t]) slices.push_back({rows[t] * width, t});
  }
  return slices;
}

// test_column_slice_merge of the source.
const std::vector<TableSlice>& MergeCase() {
  static const auto* const kSlices = new std::vector<TableSlice>(
      Slices({100, 5, 10, 25}, {{2, 2, 2, 2}, {8}, {4, 4}, {1, 1, 1, 1}}));
  return *kSlices;
}

// test_column_slice_dup_worker of the source.
const std::vector<TableSlice>& DuplicateCase() {
  static const auto* const kSlices =
      new std::vector<TableSlice>(Slices({10, 11, 4, 4}, {{1, 1, 1, 1}, {1, 1}, {2}, {2}}));
  return *kSlices;
}

// test_8table_width2_auto_concat of the source.
const std::vector<TableSlice>& ConcatCase() {
  static const auto* const kSlices =
      new std::vector<TableSlice>(Slices({10, 11, 4, 4, 10, 11, 4, 4}, Lists(8, {2})));
  return *kSlices;
}

TEST(PlaceSlices, Basic) {
  const auto basic = PlannerStrategy::kBasic;
  EXPECT_EQ(PlaceSlices(basic, 4, MergeCase()), Lists({{0, 1, 3}, {0, 2, 3}, {0, 2, 3}, {0, 3}}));
  EXPECT_EQ(PlaceSlices(basic, 4, DuplicateCase()), Lists({{0, 1}, {0, 1}, {0, 2}, {0, 3}}));
  EXPECT_EQ(PlaceSlices(basic, 4, ConcatCase()), Lists({{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(PlaceSlices, MemoryBalanced) {
  const auto balanced = PlannerStrategy::kMemoryBalanced;
  EXPECT_EQ(PlaceSlices(balanced, 4, MergeCase()),
            Lists({{0, 3, 3}, {0, 3, 1}, {0, 3, 2}, {0, 2}}));
  EXPECT_EQ(PlaceSlices(balanced, 4, DuplicateCase()), Lists({{1, 2}, {1, 3}, {0, 0}, {0, 0}}));
  EXPECT_EQ(PlaceSlices(balanced, 4, ConcatCase()), Lists({{5, 2}, {1, 3}, {4, 6}, {0, 7}}));
}

TEST(PlaceSlices, MemoryOptimized) {
  const auto optimized = PlannerStrategy::kMemoryOptimized;
  EXPECT_EQ(PlaceSlices(optimized, 4, MergeCase()),
            Lists({{0, 2}, {0, 3, 3}, {0, 1, 3}, {0, 2, 3}}));
  EXPECT_EQ(PlaceSlices(optimized, 4, DuplicateCase()), Lists({{1, 2}, {1, 3}, {0, 0}, {0, 0}}));
  EXPECT_EQ(PlaceSlices(optimized, 4, ConcatCase()), Lists({{0, 7}, {4, 6}, {1, 3}, {5, 2}}));
}

// The source sorts all workers again after each slice.
Lists OptimizedTwin(uint32_t workers, const std::vector<TableSlice>& slices) {
  std::vector<std::pair<uint64_t, uint32_t>> pairs;
  for (const TableSlice& slice : slices) pairs.emplace_back(slice.size, slice.table);
  std::sort(pairs.begin(), pairs.end());
  std::vector<std::pair<uint64_t, std::vector<uint32_t>>> result(workers);
  while (!pairs.empty()) {
    result[0].first += pairs.back().first;
    result[0].second.push_back(pairs.back().second);
    pairs.pop_back();
    std::sort(result.begin(), result.end());
  }
  Lists lists;
  for (const auto& worker : result) lists.push_back(worker.second);
  return lists;
}

TEST(PlaceSlices, MemoryOptimizedIsItsTwin) {
  const TestSeed seed(11);
  Random random(seed.value());
  for (int round = 0; round < 300; ++round) {
    std::vector<TableSlice> slices(random.Uniform(40));
    for (TableSlice& slice : slices) {
      slice = {1 + random.Uniform(6), static_cast<uint32_t>(random.Uniform(8))};
    }
    const auto workers = static_cast<uint32_t>(1 + random.Uniform(6));
    EXPECT_EQ(PlaceSlices(PlannerStrategy::kMemoryOptimized, workers, slices),
              OptimizedTwin(workers, slices));
  }
}

TEST(MergeSlices, SlicesThatMeetBecomeOne) {
  const auto merged = MergeSlices({{0, 3, 3}, {0, 3, 1}, {0, 3, 2}, {0, 2}},
                                  {{2, 2, 2, 2}, {8}, {4, 4}, {1, 1, 1, 1}});
  using Merged = std::vector<std::vector<MergedSlice>>;
  EXPECT_EQ(merged, Merged({{{0, 0, 2}, {3, 0, 2}},
                            {{0, 2, 4}, {3, 2, 3}, {1, 0, 8}},
                            {{0, 4, 6}, {3, 3, 4}, {2, 0, 4}},
                            {{0, 6, 8}, {2, 4, 8}}}));
}

TEST(MergeSlices, OnlyTheOwnWorkersSlicesMeet) {
  const auto merged = MergeSlices({{0, 1, 0}, {1}, {0}}, {{3, 2, 2}, {2, 1}});
  using Merged = std::vector<std::vector<MergedSlice>>;
  EXPECT_EQ(merged, Merged({{{0, 0, 5}, {1, 0, 2}}, {{1, 2, 3}}, {{0, 5, 7}}}));
}

}  // namespace place_slices_test
}  // namespace hotbed
