#include "server/host/promise_keeper.h"

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
  PromiseKeeper keeper_{*PromiseFile::Open("/promises", &files_), &directory_, nullptr};
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

}  // namespace promise_keeper_test
}  // namespace hotbed
