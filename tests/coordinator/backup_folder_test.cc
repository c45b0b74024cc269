#include "planner/coordinator/shell/backup_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace backup_folder_test {

using ::testing::ElementsAre;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kUnixMs = 1'700'000'000'000;

TEST(BackupFolderTest, WritesWhatHasChangedAndKeepsTheNewest) {
  FaultFileSystem files(1);
  std::string content = "a";
  int made = 0;
  BackupFolder folder(
      {.path = "/backups", .interval_ms = 1000, .keep = 2},
      [&]() -> absl::StatusOr<std::string> {
        ++made;
        if (content.empty()) return absl::UnavailableError("it does not serve");
        return content;
      },
      &files);
  const auto contents = [&] {
    std::vector<std::string> all;
    const std::vector<std::string> names = *files.List("/backups");
    for (const std::string& name : names) {
      all.push_back(*files.ReadAll(absl::StrCat("/backups/", name)));
    }
    return all;
  };
  const auto tick = [&](double seconds) {
    folder.Tick(static_cast<int64_t>(seconds * kSecondNs),
                kUnixMs + static_cast<int64_t>(1000 * seconds));
  };
  tick(10);
  EXPECT_THAT(contents(), ElementsAre("a"));
  content = "b";
  tick(10.5);
  EXPECT_EQ(made, 1) << "not due";
  tick(11);
  tick(12);
  EXPECT_THAT(contents(), ElementsAre("a", "b")) << "the same again is not written";
  content = "";
  tick(13);
  EXPECT_THAT(contents(), ElementsAre("a", "b"));
  content = "c";
  tick(14);
  EXPECT_THAT(contents(), ElementsAre("b", "c"));
  EXPECT_EQ(made, 5);
}

TEST(BackupFolderTest, NothingToKeepIsNotWritten) {
  FaultFileSystem files(1);
  BackupFolder folder(
      {.path = "/backups"}, []() -> absl::StatusOr<std::string> { return ""; }, &files);
  folder.Tick(kSecondNs, kUnixMs);
  EXPECT_FALSE(files.Exists("/backups"));
}

TEST(BackupFolderTest, WithoutAFolderNothingIsMade) {
  FaultFileSystem files(1);
  BackupFolder folder(
      {}, []() -> absl::StatusOr<std::string> { return "x"; }, &files);
  folder.Tick(kSecondNs, kUnixMs);
  EXPECT_FALSE(files.Exists("/backups"));
}

}  // namespace backup_folder_test
}  // namespace hotbed
