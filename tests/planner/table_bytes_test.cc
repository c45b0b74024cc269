#include "planner/model/table_bytes.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace table_bytes_test {

InputTable Table(PlannerWeight weight, PlannerOptimizer optimizer, bool hashed = false) {
  return {.name = "t",
          .rows = 1000,
          .dim = 8,
          .weight = weight,
          .optimizer = optimizer,
          .hashed = hashed};
}

TEST(RowBytes, WeightsStateAndOverhead) {
  EXPECT_EQ(RowBytes(Table(PlannerWeight::kFp32, PlannerOptimizer::kSgd), 8), 32u);
  EXPECT_EQ(RowBytes(Table(PlannerWeight::kFp16, PlannerOptimizer::kAdam), 8), 16u + 64);
  EXPECT_EQ(RowBytes(Table(PlannerWeight::kFp32, PlannerOptimizer::kRowwiseAdagrad), 8), 36u);
  EXPECT_EQ(RowBytes(Table(PlannerWeight::kFp32, PlannerOptimizer::kPartialRowwiseAdam), 8),
            32u + 36);
  EXPECT_EQ(RowBytes(Table(PlannerWeight::kInt8, PlannerOptimizer::kNone), 8), 16u);
  EXPECT_EQ(RowBytes(Table(PlannerWeight::kFp32, PlannerOptimizer::kSgd, true), 8),
            32u + kHashedRowOverheadBytes);
}

// 5000 x 3072 in fp32 are 61,440,000 bytes; with Adam half of it is 92,160,000.
TEST(RangeBytesOf, VocabularyOfTheJaxNotebook) {
  const InputTable table{
      .name = "t", .rows = 5000, .dim = 3072, .optimizer = PlannerOptimizer::kAdam};
  EXPECT_EQ(RangeBytesOf(table, 0, 5000, RowWeightBytes(table, 3072)), 61440000u);
  EXPECT_EQ(RangeBytesOf(table, 0, 2500, RowBytes(table, 3072)), 92160000u);
}

TEST(RangeBytesOf, HashedRangesTakeTheirShareRoundedUp) {
  const InputTable table = Table(PlannerWeight::kFp32, PlannerOptimizer::kSgd, true);
  EXPECT_EQ(RangeBytesOf(table, 0, 65536, 1), 1000u);
  EXPECT_EQ(RangeBytesOf(table, 0, 32768, 1), 500u);
  EXPECT_EQ(RangeBytesOf(table, 0, 1, 1), 1u);
}

TEST(RangeBytesOf, Saturates) {
  const InputTable table = Table(PlannerWeight::kFp32, PlannerOptimizer::kSgd);
  EXPECT_EQ(RangeBytesOf(table, 0, 1ull << 62, 100), ~0ull);
}

TEST(NeedsWholeRows, ByOptimizerAndWeights) {
  EXPECT_TRUE(NeedsWholeRows(Table(PlannerWeight::kFp32, PlannerOptimizer::kRowwiseAdagrad)));
  EXPECT_TRUE(NeedsWholeRows(Table(PlannerWeight::kFp32, PlannerOptimizer::kLamb)));
  EXPECT_TRUE(NeedsWholeRows(Table(PlannerWeight::kInt8, PlannerOptimizer::kSgd)));
  EXPECT_FALSE(NeedsWholeRows(Table(PlannerWeight::kFp32, PlannerOptimizer::kAdam)));
}

}  // namespace table_bytes_test
}  // namespace hotbed
