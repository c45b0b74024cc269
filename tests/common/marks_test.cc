#include "common/files/marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace marks_test {

using ::testing::HasSubstr;

constexpr char kPath[] = "/MARKS";

class MarksTest : public ::testing::Test {
 protected:
  std::unique_ptr<Marks> Open(bool make = true) {
    auto opened = Marks::Open(kPath, &files_, make);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  FaultFileSystem files_{1};
};

TEST_F(MarksTest, AStoreSurvivesAKillWithoutASync) {
  auto marks = Open();
  EXPECT_EQ(marks->Get(Marks::kCatalog), Mark());
  for (uint64_t i = 1; i <= 5; ++i) marks->Set(Marks::kLogWritten, {i, 100 * i, 7});
  marks->Set(Marks::kCatalog, {1, 2, 3});
  files_.Kill();
  marks = Open(/*make=*/false);
  EXPECT_EQ(marks->Get(Marks::kLogWritten), (Mark{5, 500, 7}));
  EXPECT_EQ(marks->Get(Marks::kCatalog), (Mark{1, 2, 3}));
  EXPECT_EQ(marks->Get(Marks::kSpill), Mark());
}

TEST_F(MarksTest, APowerLossBringsBackNothingOlderThanTheLastSync) {
  for (int i = 0; i < 20; ++i) {
    auto marks = Open();
    marks->Set(Marks::kLogSynced, {1, 100, 0});
    ASSERT_TRUE(marks->Sync().ok());
    marks->Set(Marks::kLogSynced, {1, 200, 0});
    files_.Crash();
    EXPECT_GE(Open(/*make=*/false)->Get(Marks::kLogSynced).b, 100u);
  }
}

// What a kill in the middle of a store leaves.
TEST_F(MarksTest, ATornStoreLeavesTheMarkBefore) {
  auto marks = Open();
  marks->Set(Marks::kStart, {1, 0, 0});
  marks->Set(Marks::kStart, {2, 0, 0});
  const std::string before = *files_.ReadAll(kPath);
  marks->Set(Marks::kStart, {3, 0, 0});
  const std::string after = *files_.ReadAll(kPath);
  size_t changed = 0;
  for (size_t at = 0; at < before.size(); ++at) {
    if (before[at] == after[at]) continue;
    ++changed;
    ASSERT_TRUE(files_.WriteAtomically(kPath, after.substr(0, at) + before.substr(at)).ok());
    EXPECT_EQ(Open(/*make=*/false)->Get(Marks::kStart), (Mark{2, 0, 0})) << "torn at " << at;
  }
  EXPECT_GT(changed, 2u);
}

TEST_F(MarksTest, AMissingCutOrOverwrittenFileIsRefusedByName) {
  EXPECT_EQ(Marks::Open(kPath, &files_, false).status().code(), absl::StatusCode::kNotFound);
  auto marks = Open();
  marks->Set(Marks::kStart, {1, 2, 3});
  const std::string whole = *files_.ReadAll(kPath);
  for (const std::string& bytes :
       {std::string(), whole.substr(0, 100), whole + "x", std::string(whole.size(), 'x')}) {
    ASSERT_TRUE(files_.WriteAtomically(kPath, bytes).ok());
    const absl::Status refused = Marks::Open(kPath, &files_, false).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << bytes.size();
    EXPECT_THAT(std::string(refused.message()), HasSubstr(kPath));
  }
}

TEST(MarksOnDiskTest, AStoreIsInTheFileAtOnce) {
  std::string dir = testing::TempDir() + "hotbed_marks_XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const std::string path = dir + "/MARKS";
  auto marks = Marks::Open(path, FileSystem::Real(), /*make=*/true);
  ASSERT_TRUE(marks.ok()) << marks.status();
  (*marks)->Set(Marks::kLogWritten, {4, 5, 6});
  auto other = Marks::Open(path, FileSystem::Real(), /*make=*/false);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->Get(Marks::kLogWritten), (Mark{4, 5, 6}));
  EXPECT_TRUE((*marks)->Sync().ok());
  std::filesystem::remove_all(dir);
}

}  // namespace marks_test
}  // namespace hotbed
