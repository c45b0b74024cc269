// Divisions of columns and features: the numbers of the systems that they come from.
#include "hotbed/feature_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hotbed {
namespace feature_split_test {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(FeatureSplitTest, PadsOfASlice) {
  const auto pads = [](uint32_t dim, uint32_t slices, uint32_t rank) {
    const auto of = PadsOfSlice(dim, slices, rank);
    EXPECT_TRUE(of.ok()) << of.status();
    return std::vector<uint32_t>{of->left, of->right};
  };
  EXPECT_THAT(pads(4096, 8, 2), ElementsAre(1024, 2560));
  EXPECT_THAT(pads(4096, 8, 0), ElementsAre(0, 3584));
  EXPECT_THAT(pads(4096, 8, 7), ElementsAre(3584, 0));
  EXPECT_THAT(pads(2048, 8, 3), ElementsAre(768, 1024));
  EXPECT_THAT(std::string(PadsOfSlice(10, 4, 0).status().message()),
              HasSubstr("dim is 10 and column_slices is 4"));
  EXPECT_FALSE(PadsOfSlice(8, 4, 4).ok());
  EXPECT_FALSE(CheckEvenSlices(8, 0).ok());
}

TEST(FeatureSplitTest, WholeFeaturesOfAGroup) {
  const std::vector<uint64_t> rows = {100, 2020, 3203, 3434302, 3023, 45459, 123, 4566};
  const std::vector<uint64_t> ids = {69, 1590, 2101, 3002450, 1443, 18711, 3, 4532};
  const std::vector<std::vector<uint32_t>> groups = {{3, 0}, {1, 2}, {5, 6}, {7, 4}};
  const std::vector<std::vector<uint64_t>> expected = {
      {3002450, 3434371}, {1590, 4121}, {18711, 45462}, {4532, 6009}};
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto split = SplitByGroup(rows, groups[g]);
    ASSERT_TRUE(split.ok()) << split.status();
    const auto local = ShardTensor(ids, 8, *split);
    ASSERT_TRUE(local.ok()) << local.status();
    EXPECT_EQ(*local, expected[g]) << g;
  }
  EXPECT_EQ(SplitByGroup(rows, groups[0])->rows, 3434402);
  EXPECT_FALSE(SplitByGroup(rows, {8}).ok());
}

TEST(FeatureSplitTest, EqualRangesOfRows) {
  const std::vector<uint64_t> rows = {100, 2020, 3203, 3434, 3023, 4545, 123, 4566};
  const auto splits = SplitByRows(rows, 4);
  ASSERT_TRUE(splits.ok()) << splits.status();
  std::vector<std::vector<uint32_t>> features(4);
  std::vector<std::vector<uint64_t>> first_rows(4);
  for (size_t w = 0; w < 4; ++w) {
    for (const FeatureSplit::Part& part : (*splits)[w].parts) {
      features[w].push_back(part.feature);
      first_rows[w].push_back(part.first_row);
    }
  }
  EXPECT_THAT(features, ElementsAre(ElementsAre(0, 1, 2), ElementsAre(2, 3, 4), ElementsAre(4, 5),
                                    ElementsAre(5, 6, 7)));
  EXPECT_THAT(first_rows, ElementsAre(ElementsAre(0, 100, 2120), ElementsAre(0, 70, 3504),
                                      ElementsAre(0, 1274), ElementsAre(0, 566, 689)));
  EXPECT_EQ((*splits)[0].rows, 5253);
  EXPECT_EQ((*splits)[3].rows, 5255);
  const auto boundary = SplitByRows({{4, 4, 4, 4}}, 2);
  EXPECT_EQ((*boundary)[0].parts.size(), 2) << "a feature without a row is left out";
  EXPECT_FALSE(SplitByRows({{1, 1}}, 3).ok());
}

// Every id is a row of exactly one worker, and the row is the id's own.
TEST(FeatureSplitTest, TheWorkersTogetherHaveEveryRowOnce) {
  const std::vector<uint64_t> rows = {3, 17, 1, 40, 6};
  for (uint32_t workers = 1; workers <= 9; ++workers) {
    const auto splits = SplitByRows(rows, workers);
    ASSERT_TRUE(splits.ok());
    uint64_t before = 0;  // of all rows, those of earlier features
    for (uint32_t f = 0; f < rows.size(); before += rows[f++]) {
      for (uint64_t id = 0; id < rows[f] + 5; ++id) {
        std::vector<uint64_t> sample(rows.size(), ~uint64_t{1});
        sample[f] = id;
        int found = 0;
        uint64_t first = 0;  // of the worker, among all rows
        for (const FeatureSplit& split : *splits) {
          const std::vector<uint64_t> local = *ShardTensor(sample, 5, split);
          for (const uint64_t row : local) {
            if (row == kNotOnWorker) continue;
            ++found;
            EXPECT_EQ(first + row, before + id);
          }
          first += split.rows;
        }
        EXPECT_EQ(found, id < rows[f] ? 1 : 0) << "feature " << f << " id " << id;
      }
    }
  }
  EXPECT_FALSE(ShardTensor({{1, 2, 3}}, 2, {}).ok());
}

}  // namespace feature_split_test
}  // namespace hotbed
