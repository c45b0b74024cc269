#include "server/host/shard_directory.h"

#include <gtest/gtest.h>

#include <thread>

namespace hotbed {
namespace {

constexpr ShardId kShard{1, 0};

ShardDirectory::Map MapOf(Epoch epoch) {
  ShardDirectory::Map map;
  map[kShard].record.epoch = epoch;
  return map;
}

TEST(ShardDirectoryTest, EveryThreadSeesTheNewestMap) {
  ShardDirectory directory;
  EXPECT_FALSE(directory.RecordOf(kShard).has_value());
  for (Epoch epoch = 1; epoch <= 3; ++epoch) {
    directory.Publish(MapOf(epoch));
    EXPECT_EQ(directory.RecordOf(kShard)->epoch, epoch);
    std::thread([&] { EXPECT_EQ(directory.RecordOf(kShard)->epoch, epoch); }).join();
  }
  EXPECT_EQ(directory.Find(kShard), nullptr) << "known, and not held here";
  EXPECT_TRUE(directory.Shards().empty());
}

TEST(ShardDirectoryTest, AThreadKeepsSeveralDirectoriesApart) {
  ShardDirectory a;
  ShardDirectory b;
  a.Publish(MapOf(1));
  b.Publish(MapOf(2));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(a.RecordOf(kShard)->epoch, 1u);
    EXPECT_EQ(b.RecordOf(kShard)->epoch, 2u);
  }
}

TEST(ShardDirectoryTest, AHeldMapOutlivesItsSuccessor) {
  ShardDirectory directory;
  directory.Publish(MapOf(1));
  const auto held = directory.Hold();
  directory.Publish(MapOf(2));
  EXPECT_EQ(directory.Current().at(kShard).record.epoch, 2u);
  EXPECT_EQ(held->at(kShard).record.epoch, 1u);
}

TEST(ShardDirectoryTest, ARecordThatNobodyToldIsNone) {
  ShardDirectory directory;
  directory.Publish(MapOf(0));
  EXPECT_FALSE(directory.RecordOf(kShard).has_value());
}

}  // namespace
}  // namespace hotbed
