#include "tests/common/fault_file_system.h"

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <set>
#include <string>

#include "tests/common/test_seed.h"

namespace hotbed {
namespace fault_file_system_test {

absl::Status Append(WritableFile* file, const std::string& bytes) {
  const iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  return file->Append({&piece, 1});
}

TEST(FaultFileSystem, ACrashKeepsWhatWasSyncedAndPartOfTheRest) {
  const TestSeed seed(5);
  std::set<size_t> sizes;
  for (int i = 0; i < 200; ++i) {
    FaultFileSystem fs(seed.value() + i);
    auto file = fs.OpenAppend("/log");
    ASSERT_TRUE(Append(file->get(), "synced").ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE(Append(file->get(), "rest").ok());
    fs.Crash();
    const std::string left = *fs.ReadAll("/log");
    ASSERT_EQ(left.substr(0, 6), "synced");
    sizes.insert(left.size());
    EXPECT_EQ(Append(file->get(), "x").code(), absl::StatusCode::kAborted);
    EXPECT_EQ(*fs.ReadAll("/log"), left);
  }
  EXPECT_EQ(sizes, std::set<size_t>({6, 7, 8, 9, 10}));
}

TEST(FaultFileSystem, AKillKeepsAllBytesAndFreesTheLock) {
  FaultFileSystem fs(1);
  auto lock = fs.Lock("/LOCK");
  auto file = fs.OpenAppend("/log");
  ASSERT_TRUE(Append(file->get(), "abc").ok());
  fs.Kill();
  EXPECT_EQ(*fs.ReadAll("/log"), "abc");
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kAborted);
  auto again = fs.Lock("/LOCK");
  ASSERT_TRUE(again.ok());
  lock->reset();  // the handle of the dead process must not free the lock of the living one
  EXPECT_FALSE(fs.Lock("/LOCK").ok());
}

TEST(FaultFileSystem, AFailedSyncLosesItsBytesForGood) {
  FaultFileSystem fs(2);
  auto file = fs.OpenAppend("/log");
  ASSERT_TRUE(Append(file->get(), "ok").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE(Append(file->get(), std::string(1000, 'x')).ok());
  fs.FailSyncs(1);
  EXPECT_EQ((*file)->Sync().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(fs.syncs(), 2u);
  fs.Crash();
  EXPECT_LT(fs.ReadAll("/log")->size(), 1002u);
}

TEST(FaultFileSystem, ACrashMayLoseWhatWasWrittenOver) {
  int kept = 0;
  int lost = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    FaultFileSystem fs(seed);
    ASSERT_TRUE(fs.WriteAtomically("/a", std::string(128, 'o')).ok());
    auto file = fs.OpenAt("/a", 0);
    ASSERT_TRUE(Append(file->get(), std::string(64, 'n')).ok());
    const bool synced = seed % 2 == 0;
    if (synced) {
      ASSERT_TRUE((*file)->Sync().ok());
    }
    fs.Crash();
    const std::string left = *fs.ReadAll("/a");
    const bool is_new = left == std::string(64, 'n') + std::string(64, 'o');
    EXPECT_TRUE(is_new || left == std::string(128, 'o'));
    EXPECT_TRUE(is_new || !synced);
    ++(is_new ? kept : lost);
  }
  EXPECT_GT(kept, 25);
  EXPECT_GT(lost, 5);
}

TEST(FaultFileSystem, ACrashMayUndoARenameThatWasNotSynced) {
  int undone = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    FaultFileSystem fs(seed);
    ASSERT_TRUE(fs.WriteAtomically("/a", "x").ok());
    ASSERT_TRUE(fs.Rename("/a", "/b").ok());
    const bool synced = seed % 2 == 0;
    if (synced) {
      ASSERT_TRUE(fs.SyncDir("/").ok());
    }
    fs.Crash();
    EXPECT_NE(fs.Exists("/a"), fs.Exists("/b"));
    EXPECT_TRUE(fs.Exists("/b") || !synced);
    undone += fs.Exists("/a") ? 1 : 0;
  }
  EXPECT_GT(undone, 5);
}

TEST(FaultFileSystem, RunsOutOfSpaceInTheMiddleOfAWrite) {
  FaultFileSystem fs(3);
  auto file = fs.OpenAppend("/log");
  fs.SetFreeBytes(5);
  ASSERT_TRUE(Append(file->get(), "abc").ok());
  EXPECT_EQ(Append(file->get(), "defg").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*file)->size(), 5u);
  EXPECT_EQ(fs.WriteAtomically("/b", "x").code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE((*file)->Truncate(3).ok());
  EXPECT_TRUE(Append(file->get(), "de").ok());
  ASSERT_TRUE(fs.Delete("/log").ok());
  EXPECT_TRUE(fs.WriteAtomically("/b", "12345").ok());
}

TEST(FaultFileSystem, FailsAppendsAndFlipsBits) {
  FaultFileSystem fs(4);
  auto file = fs.OpenAppend("/log");
  fs.FailAppends(1);
  EXPECT_EQ(Append(file->get(), "abc").code(), absl::StatusCode::kInternal);
  EXPECT_LE((*file)->size(), 3u);
  ASSERT_TRUE(fs.WriteAtomically("/b", "a").ok());
  fs.FlipBit("/b", 0, 1);
  EXPECT_EQ(*fs.ReadAll("/b"), "c");
}

}  // namespace fault_file_system_test
}  // namespace hotbed
