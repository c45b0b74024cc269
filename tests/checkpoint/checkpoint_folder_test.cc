#include "checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/prune.h"
#include "tests/checkpoint/saved_checkpoint.h"
#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace checkpoint_folder_test {

absl::StatusOr<Verified> Verify(const std::string& folder, Place* place) {
  return VerifyCheckpoint(folder, place, [](uint64_t, uint64_t) {});
}

TEST(CheckpointFolderTest, ListsThemByTimeAndFindsTheNewestWholeOne) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  EXPECT_TRUE(absl::IsNotFound(ListCheckpoints("/c", &place).status()));
  ASSERT_TRUE(Save("/c", "b", 1000, &place).ok());
  ASSERT_TRUE(Save("/c", "a", 2000, &place).ok());
  ASSERT_TRUE(MakeCheckpointFolder("/c", "broken", "3000 17", &place).ok());
  ASSERT_TRUE(files.MakeDir("/c/else").ok());
  const auto listed = ListCheckpoints("/c", &place);
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::vector<std::string> names;
  for (const CheckpointFolder& folder : *listed) names.push_back(folder.name);
  EXPECT_THAT(names, testing::ElementsAre("b", "a", "broken"));
  EXPECT_EQ((*listed)[2].trouble, "its save has not ended");
  EXPECT_EQ(*FindCheckpoint("/c", &place), "/c/a");
  EXPECT_EQ(*FindCheckpoint("/c/b", &place), "/c/b");
  EXPECT_TRUE(absl::IsAlreadyExists(Save("/c", "a", 4000, &place).status()));
  const auto verified = Verify("/c/a", &place);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_EQ(verified->shards, 2u);
  EXPECT_EQ(verified->rows, 10u);
}

TEST(PruneTest, WhatASaveUnderWayNeedsStays) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  for (const auto& [name, ms] : {std::pair("a", 1000), {"its parent", 2000}, {"c", 3000}}) {
    ASSERT_TRUE(Save("/c", name, ms, &place).ok());
  }
  ASSERT_TRUE(MakeCheckpointFolder("/c", "d", SavingMark(4000, 17, "its parent"), &place).ok());
  const auto deleted = [&](int64_t orphans_before_ms) {
    const auto pruned =
        PruneCheckpoints("/c", {.keep = 1, .orphans_before_unix_ms = orphans_before_ms}, &place);
    return pruned.ok() ? pruned->deleted : std::vector<std::string>{pruned.status().ToString()};
  };
  EXPECT_THAT(deleted(4000), testing::ElementsAre("a"));
  EXPECT_THAT(deleted(4001), testing::ElementsAre("its parent", "d")) << "it has broken off";
  EXPECT_TRUE(Verify("/c/c", &place).ok());
  // One that needs no other keeps none.
  ASSERT_TRUE(Save("/c", "e", 5000, &place).ok());
  ASSERT_TRUE(MakeCheckpointFolder("/c", "f", SavingMark(6000, 17, ""), &place).ok());
  EXPECT_THAT(deleted(4001), testing::ElementsAre("c"));
}

// As an object store that has moved to another region.
class RefusingPlace : public DirectoryPlace {
 public:
  using DirectoryPlace::DirectoryPlace;
  absl::StatusOr<std::string> ReadAll(const std::string& path) override {
    if (path == "/c/new/manifest.json") return absl::InvalidArgumentError("another region");
    return DirectoryPlace::ReadAll(path);
  }
};

TEST(CheckpointFolderTest, AnOlderOneIsNotTakenWhereThePlaceRefusesToTell) {
  FaultFileSystem files(1);
  RefusingPlace place(&files);
  ASSERT_TRUE(Save("/c", "old", 1000, &place).ok());
  ASSERT_TRUE(Save("/c", "new", 2000, &place).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(FindCheckpoint("/c", &place).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ListCheckpoints("/c", &place).status()));
  EXPECT_EQ(*FindCheckpoint("/c/old", &place), "/c/old");
  DirectoryPlace tells(&files);
  EXPECT_EQ(*FindCheckpoint("/c", &tells), "/c/new");
}

// After a power loss or a full disk at any byte of a save, the checkpoint before is whole, and the
// new one is whole or not taken for one.
TEST(CheckpointFolderTest, ASaveThatBreaksOffIsNeverWhole) {
  uint64_t bytes_of_save = 0;
  {
    FaultFileSystem files(1);
    DirectoryPlace place(&files);
    ASSERT_TRUE(Save("/c", "new", 2000, &place).ok());
    const auto listed = ListCheckpoints("/c", &place);
    for (const CheckpointFolder& folder : *listed) bytes_of_save += folder.bytes;
  }
  for (uint64_t free = 0; free <= bytes_of_save + 100; free += 13) {
    FaultFileSystem files(free + 1);
    DirectoryPlace place(&files);
    ASSERT_TRUE(Save("/c", "old", 1000, &place).ok());
    files.SetFreeBytes(free);
    const bool saved = Save("/c", "new", 2000, &place).ok();
    files.Crash();
    files.SetFreeBytes(UINT64_MAX);
    EXPECT_TRUE(Verify("/c/old", &place).ok()) << free;
    const std::string newest = *FindCheckpoint("/c", &place);
    const auto verified = Verify(newest, &place);
    EXPECT_TRUE(verified.ok()) << free << ": " << verified.status();
    if (saved) {
      EXPECT_EQ(newest, "/c/new");
    }
    const auto listed = ListCheckpoints("/c", &place);
    ASSERT_TRUE(listed.ok());
    for (const CheckpointFolder& folder : *listed) {
      if (folder.whole) continue;
      EXPECT_TRUE(DeleteCheckpoint(folder.path, &place).ok()) << free;
    }
  }
}

TEST(CheckpointFolderTest, ADeletionThatBreaksOffLeavesAnOrphan) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  ASSERT_TRUE(Save("/c", "one", 1000, &place).ok());
  ASSERT_TRUE(files.WriteAtomically("/c/one/saving", "1").ok());
  ASSERT_TRUE(files.Delete("/c/one/manifest.json").ok());
  EXPECT_FALSE((*ListCheckpoints("/c", &place))[0].whole);
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint("/c", &place).status()));
  ASSERT_TRUE(DeleteCheckpoint("/c/one", &place).ok());
  EXPECT_THAT(*ListCheckpoints("/c", &place), testing::IsEmpty());
}

TEST(CheckpointFolderTest, OneIsDeletedUnlessAnotherNeedsItOrItIsBeingSaved) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  for (const char* name : {"one", "two"}) ASSERT_TRUE(Save("/c", name, 1000, &place).ok());
  EXPECT_EQ(FindDeletable("/c/one", &place)->name, "one");
  EXPECT_TRUE(absl::IsNotFound(FindDeletable("/c/none", &place).status()));
  EXPECT_TRUE(absl::IsNotFound(FindDeletable("none", &place).status()));
  const auto saving = MakeCheckpointFolder("/c", "new", SavingMark(2000, 7, "two"), &place);
  ASSERT_TRUE(saving.ok()) << saving.status();
  const absl::Status needed = FindDeletable("/c/two", &place).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(needed));
  EXPECT_THAT(std::string(needed.message()), testing::HasSubstr("/c/new needs two"));
  EXPECT_THAT(std::string(FindDeletable("/c/new", &place).status().message()),
              testing::HasSubstr("its save has not ended"));
  ASSERT_TRUE(files.WriteAtomically("/c/new/saving", kDeletingMark).ok());
  EXPECT_TRUE(FindDeletable("/c/new", &place).ok()) << "a deletion that broke off goes on";
  ASSERT_TRUE(files.WriteAtomically("/c/one/manifest.json", "damaged").ok());
  EXPECT_TRUE(FindDeletable("/c/one", &place).ok());
}

TEST(CheckpointFolderTest, VerifyNamesWhatDoesNotFit) {
  FaultFileSystem files(1);
  DirectoryPlace place(&files);
  const std::string folder = *Save("/c", "one", 1000, &place);
  v1::CheckpointManifest manifest = *ReadManifest(folder, &place);
  const auto expect = [&](const char* message) {
    ASSERT_TRUE(WriteManifest(folder, manifest, &place).ok());
    const auto verified = Verify(folder, &place);
    EXPECT_TRUE(absl::IsDataLoss(verified.status())) << verified.status();
    EXPECT_THAT(std::string(verified.status().message()), testing::HasSubstr(message));
    manifest = *ReadManifest(*Save("/c", std::string(message), 1, &place), &place);
  };
  manifest.mutable_tables(0)->mutable_shards(1)->set_rows(6);
  expect("it has 5 rows, the manifest says 6");
  manifest.mutable_tables(0)->mutable_spec()->set_weight_type(v1::WEIGHT_FP16);
  expect("its rows are not those of the table");
  manifest.mutable_tables(0)->mutable_shards(0)->set_range_limit(39);
  manifest.mutable_tables(0)->mutable_shards(1)->set_range_first(39);
  expect("id 39 is outside of its shard or block");
}

}  // namespace checkpoint_folder_test
}  // namespace hotbed
