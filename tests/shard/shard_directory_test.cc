#include "server/host/shard_directory.h"

#include <gtest/gtest.h>

#include <thread>

namespace hotbed {
namespace {

constexpr ShardId kListedShard{1, 0};

ShardDirectory::Map DirectoryMapOf(Epoch epoch) {
  ShardDirectory::Map map;
  map[kListedShard].record.epoch = epoch;
  return map;
}

TEST(ShardDirectoryTest, EveryThreadSeesTheNewestMap) {
  ShardDirectory directory;
  EXPECT_FALSE(directory.RecordOf(kListedShard).has_value());
  for (Epoch epoch = 1; epoch <= 3; ++epoch) {
    directory.Publish(DirectoryMapOf(epoch));
    EXPECT_EQ(directory.RecordOf(kListedShard)->epoch, epoch);
    std::thread([&] { EXPECT_EQ(directory.RecordOf(kListedShard)->epoch, epoch); }).join();
  }
  EXPECT_EQ(directory.Find(kListedShard), nullptr) << "known, and not held here";
  EXPECT_TRUE(directory.Shards().empty());
}

TEST(ShardDirectoryTest, AThreadKeepsSeveralDirectoriesApart) {
  ShardDirectory a;
  ShardDirectory b;
  a.Publish(DirectoryMapOf(1));
  b.Publish(DirectoryMapOf(2));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(a.RecordOf(kListedShard)->epoch, 1u);
    EXPECT_EQ(b.RecordOf(kListedShard)->epoch, 2u);
  }
}

TEST(ShardDirectoryTest, AHeldMapOutlivesItsSuccessor) {
  ShardDirectory directory;
  directory.Publish(DirectoryMapOf(1));
  const auto held = directory.Hold();
  directory.Publish(DirectoryMapOf(2));
  EXPECT_EQ(directory.Current().at(kListedShard).record.epoch, 2u);
  EXPECT_EQ(held->at(kListedShard).record.epoch, 1u);
}

TEST(ShardDirectoryTest, ARecordThatNobodyToldIsNone) {
  ShardDirectory directory;
  directory.Publish(DirectoryMapOf(0));
  EXPECT_FALSE(directory.RecordOf(kListedShard).has_value());
}

}  // namespace
}  // namespace hotbed
