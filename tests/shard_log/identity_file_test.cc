#include "server/shard_log/identity_file.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace identity_file_test {

using ::testing::HasSubstr;

constexpr char kPath[] = "/IDENTITY";

TEST(IdentityFileTest, ComesBackAsItWasSaved) {
  FaultFileSystem files(1);
  EXPECT_EQ(IdentityFile::Load(kPath, &files).status().code(), absl::StatusCode::kNotFound);
  IdentityFile saved;
  saved.server = 42;
  saved.cluster_id = "a cluster: with a colon";
  saved.clean_shutdown = true;
  saved.boot_id = "b-1";
  saved.made = true;
  for (const uint64_t run : {11u, 12u, 13u}) saved.NextRun(run);
  ASSERT_TRUE(saved.Save(kPath, &files).ok());
  files.Crash();
  const auto loaded = IdentityFile::Load(kPath, &files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->server, 42);
  EXPECT_EQ(loaded->cluster_id, saved.cluster_id);
  EXPECT_TRUE(loaded->clean_shutdown);
  EXPECT_EQ(loaded->boot_id, "b-1");
  EXPECT_TRUE(loaded->made);
  EXPECT_EQ(loaded->start, 3u);
  EXPECT_EQ(loaded->run, 13u);
  EXPECT_EQ(loaded->runs_before, (std::vector<uint64_t>{11, 12}));
  ASSERT_TRUE(IdentityFile().Save(kPath, &files).ok()) << "before the coordinator has named it";
  EXPECT_EQ(IdentityFile::Load(kPath, &files)->server, 0);
}

// Starts that do not reach the coordinator push out each other, not the one that did.
TEST(IdentityFileTest, KeepsTheRunThatRegisteredLast) {
  IdentityFile identity;
  for (uint64_t run = 1; run <= 1000; ++run) identity.NextRun(run);
  EXPECT_EQ(identity.start, 1000u);
  ASSERT_EQ(identity.runs_before.size(), IdentityFile::kRunsBeforeMax);
  EXPECT_EQ(identity.runs_before.front(), 1u);
  EXPECT_EQ(identity.runs_before.back(), 999u);
}

TEST(IdentityFileTest, AnotherVersionIsRefusedWithBothNumbers) {
  FaultFileSystem files(1);
  ASSERT_TRUE(IdentityFile().Save(kPath, &files).ok());
  const std::string text =
      absl::StrReplaceAll(*files.ReadAll(kPath), {{"version: 3", "version: 12"}});
  ASSERT_TRUE(files.WriteAtomically(kPath, text).ok());
  const absl::Status status = IdentityFile::Load(kPath, &files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 12"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 3 only"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("it is damaged"));
}

TEST(IdentityFileTest, EveryFlippedBitIsFound) {
  FaultFileSystem files(1);
  IdentityFile saved;
  saved.server = 42;
  saved.cluster_id = "c";
  ASSERT_TRUE(saved.Save(kPath, &files).ok());
  const uint64_t size = *files.FileSize(kPath);
  for (uint64_t at = 0; at + 1 < size; ++at) {  // but for the last line break
    files.FlipBit(kPath, at, 0);
    EXPECT_FALSE(IdentityFile::Load(kPath, &files).ok()) << "byte " << at;
    files.FlipBit(kPath, at, 0);
  }
}

TEST(IdentityFileTest, ALineBreakIsRefused) {
  FaultFileSystem files(1);
  IdentityFile identity;
  identity.cluster_id = "a\nb";
  EXPECT_EQ(identity.Save(kPath, &files).code(), absl::StatusCode::kInvalidArgument);
}

TEST(IdentityFileTest, TheRunningMachineHasABootId) {
  EXPECT_EQ(BootId(FileSystem::Real()), BootId(FileSystem::Real()));
}

}  // namespace identity_file_test
}  // namespace hotbed
