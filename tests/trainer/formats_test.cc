// Goal: every spelling of the two formats is read correctly; every malformed line is refused and
// leaves the batch unchanged. Method: literal lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "trainer/criteo_format.h"
#include "trainer/ratings_format.h"

namespace hotbed {
namespace formats_test {

using ::testing::HasSubstr;

std::string CriteoLine(const std::string& label, const std::string& first_integer,
                       const std::string& first_category) {
  std::vector<std::string> columns(40);
  columns[0] = label;
  columns[1] = first_integer;
  columns[14] = first_category;
  return absl::StrJoin(columns, "\t");
}

Batch EmptyBatch(int fields) {
  Batch batch;
  batch.Reset(fields);
  return batch;
}

TEST(CriteoFormatTest, ReadsALineWithEmptyFields) {
  Batch batch = EmptyBatch(39);
  ASSERT_TRUE(AppendCriteoLine(CriteoLine("1", "3", "68fd1e64"), '\t', &batch).ok());
  EXPECT_EQ(batch.labels, std::vector<float>{1.0f});
  EXPECT_EQ(batch.ids[0][0], IntegerBucket(3));
  EXPECT_EQ(batch.ids[1][0], kIntegerBuckets) << "field 1, missing: bucket 0";
  EXPECT_EQ(batch.ids[13][0], CategoryId(0, "68fd1e64"));
  EXPECT_EQ(batch.ids[14][0], CategoryId(1, ""));
}

TEST(CriteoFormatTest, ReadsCsvWithDecimalIntegersAndCarriageReturn) {
  Batch batch = EmptyBatch(39);
  const std::string line =
      absl::StrReplaceAll(CriteoLine("0", "260.0", "05db9164"), {{"\t", ","}}) + "\r";
  ASSERT_TRUE(AppendCriteoLine(line, ',', &batch).ok());
  EXPECT_EQ(batch.ids[0][0], IntegerBucket(260));
}

TEST(CriteoFormatTest, BucketsAreLogSquared) {
  EXPECT_EQ(IntegerBucket(-1), 1u);
  EXPECT_EQ(IntegerBucket(0), 2u);
  EXPECT_EQ(IntegerBucket(1), 2u);      // log(2)^2 = 0.48
  EXPECT_EQ(IntegerBucket(2), 3u);      // log(3)^2 = 1.2
  EXPECT_EQ(IntegerBucket(1000), 49u);  // log(1001)^2 = 47.7
  EXPECT_EQ(IntegerBucket(INT64_MAX), kIntegerBuckets - 1);
}

TEST(CriteoFormatTest, SameTextInTwoFieldsIsTwoIds) {
  std::set<uint64_t> ids;
  for (int f = 0; f < 26; ++f) {
    ids.insert(CategoryId(f, "68fd1e64"));
    ids.insert(CategoryId(f, ""));
  }
  EXPECT_EQ(ids.size(), 52u);
}

TEST(CriteoFormatTest, RefusesMalformedLinesAndAppendsNothing) {
  Batch batch = EmptyBatch(39);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1\t2\t3", "3 columns where 40"},
      {CriteoLine("2", "", ""), "label is '2'"},
      {CriteoLine("1", "abc", ""), "I1 is 'abc'"},
      {CriteoLine("1", "nan", ""), "I1 is 'nan'"},
      {CriteoLine("1", "3", "xyz"), "C1 is 'xyz'"},
      {CriteoLine("1", "3", "aa") + "\t", "41 columns"},
      {"", "1 columns"},
  };
  for (const auto& [line, message] : cases) {
    const absl::Status status = AppendCriteoLine(line, '\t', &batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  EXPECT_EQ(batch.size(), 0u);
  for (const auto& column : batch.ids) EXPECT_TRUE(column.empty());
}

TEST(RatingsFormatTest, ReadsMovieLensLines) {
  Batch batch = EmptyBatch(2);
  ASSERT_TRUE(AppendRatingLine("196\t242\t3\t881250949", &batch).ok());
  ASSERT_TRUE(AppendRatingLine("18446744073709551615\t0\t4.5", &batch).ok());
  EXPECT_EQ(batch.ids[0], (std::vector<uint64_t>{196, 18446744073709551615ull}));
  EXPECT_EQ(batch.ids[1], (std::vector<uint64_t>{242, 0}));
  EXPECT_EQ(batch.labels, (std::vector<float>{3.0f, 4.5f}));
}

TEST(RatingsFormatTest, RefusesMalformedLines) {
  Batch batch = EmptyBatch(2);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"196 242 3", "1 columns"},
      {"a\t1\t3\t0", "user is 'a'"},
      {"1\t-1\t3\t0", "item is '-1'"},
      {"1\t1\tinf\t0", "rating is 'inf'"},
  };
  for (const auto& [line, message] : cases) {
    const absl::Status status = AppendRatingLine(line, &batch);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  EXPECT_EQ(batch.size(), 0u);
}

}  // namespace formats_test
}  // namespace hotbed
