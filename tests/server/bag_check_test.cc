#include "server/shard/request/bag_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hotbed {
namespace bag_check_test {

using ::testing::HasSubstr;

constexpr RowType kAll[] = {RowType::kFp32, RowType::kFp16, RowType::kBf16};

TEST(BagCheck, TakesWhatMakesSense) {
  for (RowType type : kAll) {
    EXPECT_EQ(BagShapeError({RowPooling::kSum, 5, 5, true, false}, type), "");
    EXPECT_EQ(BagShapeError({RowPooling::kSum, 5, 1, false, false}, type), "");
    EXPECT_EQ(BagShapeError({RowPooling::kMax, 5, 2, false, true}, type), "");
    EXPECT_EQ(BagShapeError({RowPooling::kNone, 5, 0, false, false}, type), "");
  }
  EXPECT_EQ(BagShapeError({RowPooling::kNone, 5, 0, false, false}, RowType::kInt8), "");
}

TEST(BagCheck, NamesWhatDoesNot) {
  const auto error = [](const BagShape& shape) { return BagShapeError(shape, RowType::kFp32); };
  EXPECT_THAT(error({RowPooling::kNone, 5, 2, false, false}),
              HasSubstr("2 bags with pooling none"));
  EXPECT_THAT(error({RowPooling::kNone, 5, 0, true, false}),
              HasSubstr("weights with pooling none"));
  EXPECT_THAT(error({RowPooling::kNone, 5, 0, false, true}),
              HasSubstr("arg_max with pooling none"));
  EXPECT_THAT(error({RowPooling::kSum, 5, 0, false, false}), HasSubstr("0 bags of 5 ids"));
  EXPECT_THAT(error({RowPooling::kSum, 5, 6, false, false}), HasSubstr("allowed are 1 to 5"));
  EXPECT_THAT(error({RowPooling::kMax, 5, 2, true, false}), HasSubstr("weights with pooling max"));
  EXPECT_THAT(error({RowPooling::kSum, 5, 2, false, true}), HasSubstr("arg_max with pooling sum"));
  EXPECT_THAT(BagShapeError({RowPooling::kSum, 5, 2, false, false}, RowType::kInt8),
              HasSubstr("int8: they travel as fp32, fp16 or bf16"));
}

TEST(BagCheck, LengthsAddUp) {
  const auto error = [](uint32_t ids, const std::vector<uint32_t>& lengths) {
    return BagLengthError({RowPooling::kSum, ids, static_cast<uint32_t>(lengths.size())},
                          lengths.data());
  };
  EXPECT_EQ(error(6, {1, 2, 3}), "");
  EXPECT_THAT(error(6, {1, 0, 5}), HasSubstr("bag 1 has length 0"));
  EXPECT_THAT(error(6, {1, 2, 4}), HasSubstr("bag 2 of length 4 ends at id 7 of 6"));
  EXPECT_THAT(error(6, {1, 2, 2}), HasSubstr("bag 2, the last, ends at id 5 of 6"));
  EXPECT_THAT(error(3, {0xffffffffu, 4}), HasSubstr("bag 0 of length 4294967295"));  // no overflow
}

}  // namespace bag_check_test
}  // namespace hotbed
