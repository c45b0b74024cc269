// Goal: every line of a file is read exactly once per epoch, by the right part, for every size of
// the file and number of readers; errors name bad files and the numbers of bad lines. Method:
// generated files, collected ids.
#include "trainer/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace dataset_test {

using ::testing::HasSubstr;

class DatasetTest : public ::testing::Test {
 protected:
  void Write(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }
  void WriteRatings(uint64_t lines) {
    std::string text;
    for (uint64_t i = 1; i <= lines; ++i) absl::StrAppend(&text, i, "\t", i * 7, "\t3\t0\n");
    Write(text);
  }
  DatasetOptions Options() const {
    DatasetOptions options;
    options.path = path_;
    options.format = DataFormat::kRatings;
    options.fields = 2;
    return options;
  }
  static std::vector<uint64_t> Users(const Dataset& data, Dataset::Part part,
                                     uint64_t epoch_index = 0) {
    Dataset::Epoch epoch(&data, part, epoch_index);
    std::vector<uint64_t> users;
    Batch batch;
    while (epoch.NextChunk(&batch).value()) {
      users.insert(users.end(), batch.ids[0].begin(), batch.ids[0].end());
    }
    return users;
  }
  static std::vector<uint64_t> Sorted(std::vector<uint64_t> v) {
    std::sort(v.begin(), v.end());
    return v;
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/dataset_test_", getpid(), ".tsv");
};

TEST_F(DatasetTest, PartsAreDisjointAndComplete) {
  WriteRatings(10007);
  DatasetOptions options = Options();
  options.held_out_fraction = 0.2;
  const auto data = Dataset::Open(options).value();
  EXPECT_EQ(data->lines(), 10007u);
  std::vector<uint64_t> train = Users(*data, Dataset::Part::kTrain);
  const std::vector<uint64_t> held_out = Users(*data, Dataset::Part::kHeldOut);
  EXPECT_NEAR(static_cast<double>(held_out.size()), 2001, 150);
  train.insert(train.end(), held_out.begin(), held_out.end());
  std::vector<uint64_t> all(10007);
  for (uint64_t i = 0; i < all.size(); ++i) all[i] = i + 1;
  EXPECT_EQ(Sorted(train), all);
}

TEST_F(DatasetTest, FilesBeyondTheResidentLimitAreReadInChunks) {
  // 49 MiB of lines: above kResidentBytesMax.
  std::string text;
  uint64_t lines = 0;
  while (text.size() <= kResidentBytesMax)
    absl::StrAppend(&text, ++lines, "\t", 1ull << 60, "\t3\t881250949\n");
  text.pop_back();  // the last line needs no newline
  Write(text);
  const auto data = Dataset::Open(Options()).value();
  EXPECT_EQ(data->lines(), lines);
  const std::vector<uint64_t> users = Users(*data, Dataset::Part::kTrain);
  EXPECT_FALSE(std::is_sorted(users.begin(), users.end())) << "chunks are shuffled";
  const std::vector<uint64_t> sorted = Sorted(users);
  ASSERT_EQ(sorted.size(), lines);
  for (uint64_t i = 0; i < lines; ++i) ASSERT_EQ(sorted[i], i + 1);
  std::remove(path_.c_str());
}

TEST_F(DatasetTest, EpochsAreShuffledDifferentlyAndPartsOfProcessesTileTheFile) {
  WriteRatings(5000);
  const auto data = Dataset::Open(Options()).value();
  EXPECT_NE(Users(*data, Dataset::Part::kTrain, 0), Users(*data, Dataset::Part::kTrain, 1));
  std::vector<uint64_t> together;
  for (int part = 0; part < 3; ++part) {
    DatasetOptions options = Options();
    options.part_index = part;
    options.part_count = 3;
    const std::vector<uint64_t> users =
        Users(*Dataset::Open(options).value(), Dataset::Part::kTrain);
    together.insert(together.end(), users.begin(), users.end());
  }
  EXPECT_EQ(Sorted(together), Sorted(Users(*data, Dataset::Part::kTrain)));
}

TEST_F(DatasetTest, BadLinesAreToldByNumberOrCounted) {
  Write("1\t1\t3\t0\n1\t1\tbad\t0\n2\t2\t4\t0\n");
  const auto refused = Dataset::Open(Options());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("line 2: rating is 'bad'"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--skip-bad-lines"));
  DatasetOptions options = Options();
  options.skip_bad_lines = true;
  const auto data = Dataset::Open(options).value();
  EXPECT_EQ(data->bad_lines(), 1u);
  EXPECT_EQ(Sorted(Users(*data, Dataset::Part::kTrain)), (std::vector<uint64_t>{1, 2}));
}

TEST_F(DatasetTest, MissingEmptyAndTruncatedFilesAreRefused) {
  std::remove(path_.c_str());
  EXPECT_EQ(Dataset::Open(Options()).status().code(), absl::StatusCode::kNotFound);
  Write("");
  EXPECT_THAT(std::string(Dataset::Open(Options()).status().message()), HasSubstr("is empty"));
  Write("1\t1\t3\t0\n2\t2");  // cut in the middle of a line
  EXPECT_THAT(std::string(Dataset::Open(Options()).status().message()),
              HasSubstr("line 2: 2 columns"));
  DatasetOptions directory = Options();
  directory.path = ::testing::TempDir();
  EXPECT_FALSE(Dataset::Open(directory).ok());
}

TEST_F(DatasetTest, LinesLongerThanAChunkAreToldByNumberOrCounted) {
  // In the beginning, in the middle and at the end; each as long as many chunks.
  const std::string junk(3 << 20, 'x');
  std::string text = junk + "\n";
  for (int i = 1; i <= 20000; ++i) absl::StrAppend(&text, i, "\t7\t3\t0\n");
  absl::StrAppend(&text, junk, "\n20001\t7\t3\t0\n", junk);
  Write(text);
  const auto refused = Dataset::Open(Options());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("line 1: longer than 65536"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--skip-bad-lines"));
  Write(text.substr(junk.size() + 1));
  EXPECT_THAT(std::string(Dataset::Open(Options()).status().message()),
              HasSubstr("line 20001: longer than 65536"));
  Write(text);
  DatasetOptions options = Options();
  options.skip_bad_lines = true;
  const auto data = Dataset::Open(options).value();
  EXPECT_EQ(data->lines(), 20004u);
  EXPECT_EQ(data->bad_lines(), 3u);
  const std::vector<uint64_t> users = Sorted(Users(*data, Dataset::Part::kTrain));
  ASSERT_EQ(users.size(), 20001u);
  for (uint64_t i = 0; i < users.size(); ++i) ASSERT_EQ(users[i], i + 1);
}

TEST_F(DatasetTest, ABadLineCountsOnceHoweverManyEpochsMeetIt) {
  std::string text = "1\t1\tbad\t0\n";
  while (text.size() <= kResidentBytesMax)
    absl::StrAppend(&text, 1ull << 60, "\t1\t3\t881250949\n");
  absl::StrAppend(&text, "2\t1\n");
  Write(text);
  DatasetOptions options = Options();
  options.skip_bad_lines = true;
  const auto data = Dataset::Open(options).value();
  for (int epoch = 0; epoch < 2; ++epoch) {
    Users(*data, Dataset::Part::kTrain, epoch);
    EXPECT_EQ(data->bad_lines(), 2u);
  }
  std::remove(path_.c_str());
}

TEST_F(DatasetTest, AByteOrderMarkIsNoPartOfTheFirstField) {
  Write(
      "\xef\xbb\xbf"
      "1\t1\t3\t0\r\n2\t1\t3\t0\r\n");
  const auto data = Dataset::Open(Options()).value();
  EXPECT_EQ(Sorted(Users(*data, Dataset::Part::kTrain)), (std::vector<uint64_t>{1, 2}));
  Write("\xef\xbb\xbf");
  EXPECT_THAT(std::string(Dataset::Open(Options()).status().message()), HasSubstr("is empty"));
}

TEST_F(DatasetTest, CriteoCsvHeaderIsNoExample) {
  std::string header = "\xef\xbb\xbflabel", row = "1";
  for (int i = 1; i <= 13; ++i)
    absl::StrAppend(&header, ",I", i), absl::StrAppend(&row, ",", i, ".0");
  for (int i = 1; i <= 26; ++i) absl::StrAppend(&header, ",C", i), absl::StrAppend(&row, ",0a");
  Write(absl::StrCat(header, "\r\n", row, "\r\n", row, "\n"));
  DatasetOptions options = Options();
  options.format = DataFormat::kCriteo;
  options.fields = 39;
  const auto data = Dataset::Open(options).value();
  EXPECT_EQ(data->lines(), 2u);
  EXPECT_EQ(Users(*data, Dataset::Part::kTrain).size(), 2u);
}

}  // namespace dataset_test
}  // namespace hotbed
