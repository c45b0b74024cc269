// What salvage says of log segments that are written over older ones.
#include "server/salvage/salvage.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/shard/host_fixture.h"
#include "tests/shard_log/log_fixture.h"

namespace hotbed {
namespace salvage_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

constexpr uint64_t kRecord = 128 + 8 * 8 + 8 * 8 * 4;
constexpr uint64_t kSegmentBytes = 64 + 5 * kRecord;

class SalvageTest : public ::testing::Test {
 protected:
  // As a kill leaves it: the newest segment is a reused one with two records, and so is the one
  // before with five.
  SalvageTest() : dir_(temp_.path() + "/killed") {
    const std::string alive = temp_.path() + "/alive";
    fs::create_directories(alive);
    const auto marks = *Marks::Open(alive + "/MARKS", FileSystem::Real(), /*make=*/true);
    ShardLogOptions options;
    options.dir = alive + "/log";
    options.segment_bytes = kSegmentBytes;
    options.sync_interval_ms = -1;
    options.run = 1;
    options.marks = marks.get();
    const auto log = *ShardLog::Open(options, FileSystem::Real(), Clock::Real());
    for (Lsn lsn = 1; lsn <= 34; ++lsn) {
      EXPECT_TRUE(AppendCommit(log.get(), kShardA, lsn, 8, 8).ok());
      if (lsn > 10) log->SetLeastNeeded(kShardA, lsn - 9);
    }
    log->SetLeastNeeded(kShardA, 26);
    EXPECT_TRUE(AppendCommit(log.get(), kShardA, 35, 3, 8).ok());
    // Too long for the rest of its file, which is so short that it stays.
    EXPECT_TRUE(AppendCommit(log.get(), kShardA, 36, 20, 8).ok());
    EXPECT_TRUE(AppendCommit(log.get(), kShardA, 37, 8, 8).ok());
    fs::copy(alive, dir_, fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(dir_ + "/log")) {
      if (entry.path().extension() == ".log") segments_.push_back(entry.path());
    }
    std::sort(segments_.begin(), segments_.end());
    for (const std::string& path : {segments_.back(), segments_[segments_.size() - 2]}) {
      EXPECT_TRUE(ReadSegmentHeader(path, FileSystem::Real())->reused) << path;
      EXPECT_EQ(fs::file_size(path), kSegmentBytes) << path;
    }
  }

  // "name: trouble" of the segments that are not whole.
  std::vector<std::string> Troubles() {
    const auto report = Salvage(dir_, "");
    EXPECT_TRUE(report.ok()) << report.status();
    std::vector<std::string> troubles;
    for (const SalvagedFile& file : report.ok() ? report->files : std::vector<SalvagedFile>()) {
      if (absl::StartsWith(file.name, "log/") && !file.trouble.empty()) {
        troubles.push_back(file.name + ": " + file.trouble);
      }
    }
    return troubles;
  }
  void Flip(const std::string& path, uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 4));
  }

  TempDir temp_;
  const std::string dir_;
  std::vector<std::string> segments_;  // oldest first
};

TEST_F(SalvageTest, BytesOfOlderSegmentsAreNoTrouble) { EXPECT_THAT(Troubles(), IsEmpty()); }

TEST_F(SalvageTest, DamageBeforeTheEndIsTold) {
  Flip(segments_.back(), 200);
  ASSERT_EQ(Troubles().size(), 1u);
  EXPECT_THAT(Troubles()[0], HasSubstr("damaged or cut at offset 64"));
}

TEST_F(SalvageTest, WithoutMarksOnlyTheEndOfTheNewestIsUnknown) {
  fs::remove(dir_ + "/MARKS");
  ASSERT_EQ(Troubles().size(), 1u);
  EXPECT_THAT(Troubles()[0], HasSubstr("without MARKS, nobody knows"));
  Flip(segments_[segments_.size() - 2], 200);
  ASSERT_EQ(Troubles().size(), 2u);
  EXPECT_THAT(Troubles()[0], HasSubstr("damaged or cut at offset 64"));
  Flip(segments_.back(), 200);
  ASSERT_EQ(Troubles().size(), 2u);
  EXPECT_THAT(Troubles()[1], HasSubstr("damaged or cut at offset 64"));
}

TEST_F(SalvageTest, AFileThatIsAnotherSegmentIsTroubleAndNotRead) {
  fs::copy(segments_.front(), segments_.back(), fs::copy_options::overwrite_existing);
  // Nothing says any more where the one before ends.
  ASSERT_EQ(Troubles().size(), 2u);
  EXPECT_THAT(Troubles()[0], HasSubstr("damaged or cut at offset"));
  EXPECT_THAT(Troubles()[1], HasSubstr("it says that it is 0000"));
}

}  // namespace salvage_test
}  // namespace hotbed
