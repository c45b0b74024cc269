#include "planner/sources/divide_rows.h"

#include <gtest/gtest.h>

#include <map>

namespace hotbed {
namespace divide_rows_test {

using Numbers = std::vector<uint64_t>;

std::map<uint32_t, Numbers> Cuts(const FairDivision& division) {
  std::map<uint32_t, Numbers> cuts;
  for (const FeatureCuts& cut : division.cuts) cuts[cut.feature] = cut.rows;
  return cuts;
}

std::vector<Numbers> Features(const std::vector<std::vector<GroupMember>>& groups) {
  std::vector<Numbers> features;
  for (const auto& group : groups) {
    features.emplace_back();
    for (const GroupMember& member : group) features.back().push_back(member.feature);
  }
  return features;
}

std::vector<Numbers> Offsets(const std::vector<std::vector<GroupMember>>& groups) {
  std::vector<Numbers> offsets;
  for (const auto& group : groups) {
    offsets.emplace_back();
    for (const GroupMember& member : group) offsets.back().push_back(member.offset);
  }
  return offsets;
}

TEST(DivideRows, NotebookCase) {
  const auto division = DivideRows({100, 2020, 3203, 3434, 3023, 4545, 123, 4566}, 4);
  EXPECT_EQ(division.rows_per_group, 5253u);
  EXPECT_EQ(Cuts(division), (std::map<uint32_t, Numbers>{{2, {3133}}, {4, {1749}}, {5, {3979}}}));
  EXPECT_EQ(Features(division.groups),
            std::vector<Numbers>({{0, 1, 2}, {2, 3, 4}, {4, 5}, {5, 6, 7}}));
  EXPECT_EQ(Offsets(division.groups),
            std::vector<Numbers>({{0, 100, 2120}, {0, 70, 3504}, {0, 1274}, {0, 566, 689}}));
  const GroupMember& last = division.groups[3].back();
  EXPECT_EQ(last.offset + last.row_limit - last.row_first, 5255u) << "the remainder";
}

TEST(DivideRows, CutsOneFeatureTwice) {
  const auto division = DivideRows({10, 200, 400, 2000, 1000, 500}, 4);
  EXPECT_EQ(division.rows_per_group, 1027u);
  EXPECT_EQ(Cuts(division), (std::map<uint32_t, Numbers>{{3, {417, 1444}}, {4, {471}}}));
  EXPECT_EQ(Features(division.groups), std::vector<Numbers>({{0, 1, 2, 3}, {3}, {3, 4}, {4, 5}}));
  EXPECT_EQ(Offsets(division.groups),
            std::vector<Numbers>({{0, 10, 210, 610}, {0}, {0, 556}, {0, 529}}));
}

TEST(DivideRows, AnExactBoundaryListsAFeatureWithoutRows) {
  const auto division = DivideRows({4, 4, 4, 4}, 2);
  EXPECT_EQ(Cuts(division), (std::map<uint32_t, Numbers>{{2, {0}}}));
  EXPECT_EQ(Features(division.groups), std::vector<Numbers>({{0, 1, 2}, {2, 3}}));
  EXPECT_EQ(division.groups[0][2].row_first, division.groups[0][2].row_limit);
  const auto dropped = DropEmpty(division.groups);
  EXPECT_EQ(Features(dropped), std::vector<Numbers>({{0, 1}, {2, 3}}));
  EXPECT_EQ(Offsets(dropped), std::vector<Numbers>({{0, 4}, {0, 4}}));
}

// 11 rows in 4 groups of 2: the last begins at row 6 and has room for 2 of the 4 that feature 1 has
// left; the source then takes feature 1 for whole, and begins feature 2 at 10 instead of 4.
TEST(DivideRows, OffsetsInTheRemainderAreRight) {
  const auto division = DivideRows({1, 9, 1}, 4);
  EXPECT_EQ(division.rows_per_group, 2u);
  EXPECT_EQ(Cuts(division), (std::map<uint32_t, Numbers>{{1, {1, 3, 5}}}));
  EXPECT_EQ(Offsets(division.groups).back(), Numbers({0, 4}));
}

TEST(DivideRows, FewerRowsThanGroups) {
  const auto division = DivideRows({2, 1}, 5);
  EXPECT_EQ(division.rows_per_group, 1u);
  EXPECT_EQ(Features(DropEmpty(division.groups)), std::vector<Numbers>({{0}, {0}, {1}, {}, {}}));
}

TEST(DivideRows, OneGroup) {
  const auto division = DivideRows({2, 1}, 1);
  EXPECT_TRUE(division.cuts.empty());
  EXPECT_EQ(Features(division.groups), std::vector<Numbers>({{0, 1}}));
}

}  // namespace divide_rows_test
}  // namespace hotbed
