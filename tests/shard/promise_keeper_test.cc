#include "server/host/promise_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/fault_file_system.h"

namespace hotbed {
namespace promise_keeper_test {

constexpr ShardId kPromisedA{1, 0};
constexpr ShardId kPromisedB{1, 1};

// Shards are not in service here: what they are told, tests/shard/shard_host_test.cc sees.
class PromiseKeeperTest : public testing::Test {
 protected:
  FaultFileSystem files_{1};
  ShardDirectory directory_;
  PromiseKeeper keeper_{*PromiseFile::Open(KeptFile("/promises", &files_, {}), /*make=*/true),
                        &directory_, nullptr};
};

TEST_F(PromiseKeeperTest, TheHighestWantedEpochIsKept) {
  keeper_.Want(kPromisedA, 3);
  keeper_.Want(kPromisedA, 2);
  keeper_.Want(kPromisedB, 5);
  EXPECT_EQ(keeper_.Get(kPromisedA), 0u);
  ASSERT_TRUE(keeper_.KeepAll().ok());
  EXPECT_EQ(keeper_.Get(kPromisedA), 3u);
  EXPECT_EQ(keeper_.Get(kPromisedB), 5u);
}

TEST_F(PromiseKeeperTest, WhatCannotBeWrittenStaysWanted) {
  keeper_.Want(kPromisedA, 3);
  files_.SetFreeBytes(4);
  EXPECT_FALSE(keeper_.KeepAll().ok());
  EXPECT_EQ(keeper_.Get(kPromisedA), 0u);
  files_.SetFreeBytes(1 << 20);
  ASSERT_TRUE(keeper_.KeepAll().ok());
  EXPECT_EQ(keeper_.Get(kPromisedA), 3u);
}

TEST_F(PromiseKeeperTest, ADroppedShardWantsNothing) {
  keeper_.Want(kPromisedA, 3);
  keeper_.Forget(kPromisedA);
  ASSERT_TRUE(keeper_.KeepAll().ok());
  EXPECT_EQ(keeper_.Get(kPromisedA), 0u);
}

TEST_F(PromiseKeeperTest, HoldersFollowTheRecords) {
  using ::testing::ElementsAre;
  ShardRecord record;
  record.shard = kPromisedA;
  record.epoch = 3;
  record.revision = 1;
  record.members = {{1, 10}, {2, 20}};
  record.base = {{2, 20}, {3, 30}};
  record.passed_over = {{4, {1, 1}}};
  const auto publish = [&] {
    ShardDirectory::Map map;
    map[kPromisedA].record = record;
    directory_.Publish(std::move(map));
    keeper_.Learn(record);
    ASSERT_TRUE(keeper_.KeepAll().ok());
  };
  const auto kept = [&] {
    return (*PromiseFile::Open(KeptFile("/promises", &files_, {}), /*make=*/false))
        ->Find(kPromisedA);
  };
  publish();
  EXPECT_EQ(kept().epoch, 0u) << "a record alone promises nothing";
  keeper_.Want(kPromisedA, 3);
  publish();
  EXPECT_THAT(kept().holders, ElementsAre(1, 2, 3, 4));
  record.active = true;
  record.passed_over.clear();
  publish();
  EXPECT_EQ(kept().epoch, 3u);
  EXPECT_THAT(kept().holders, ElementsAre(1, 2)) << "the active epoch does without the others";
  // A record that the disk had no room for is written by the next batch.
  record.members = {{5, 50}};
  directory_.Publish({{kPromisedA, {.record = record}}});
  keeper_.Learn(record);
  files_.SetFreeBytes(4);
  EXPECT_FALSE(keeper_.KeepAll().ok());
  files_.SetFreeBytes(1 << 20);
  ASSERT_TRUE(keeper_.KeepAll().ok());
  EXPECT_THAT(kept().holders, ElementsAre(5));
}

// What was promised ahead is not written again when the shard asks for it.
TEST_F(PromiseKeeperTest, AShardThatAsksForWhatWasPromisedAheadNeedsNoDisk) {
  ShardRecord record;
  record.shard = kPromisedA;
  record.epoch = 3;
  record.members = {{1, 10}};
  files_.SetFreeBytes(4);
  EXPECT_FALSE(keeper_.KeepAhead({record}).ok());
  EXPECT_EQ(keeper_.Get(kPromisedA), 0u);
  files_.SetFreeBytes(1 << 20);
  ASSERT_TRUE(keeper_.KeepAhead({record}).ok());
  EXPECT_EQ(keeper_.Get(kPromisedA), 3u);
  directory_.Publish({{kPromisedA, {.record = record}}});
  keeper_.Learn(record);
  keeper_.Want(kPromisedA, 3);
  files_.SetFreeBytes(4);
  EXPECT_TRUE(keeper_.KeepAll().ok());
  record.epoch = 2;
  ASSERT_TRUE(keeper_.KeepAhead({record}).ok());
  EXPECT_EQ(keeper_.Get(kPromisedA), 3u) << "it never falls";
}

}  // namespace promise_keeper_test
}  // namespace hotbed
