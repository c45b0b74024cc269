#include "server/host/shard_directory.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace hotbed {
namespace shard_directory_test {

constexpr ShardId kListedShard{1, 0};

ShardDirectory::Map DirectoryMapOf(Epoch epoch) {
  ShardDirectory::Map map;
  ShardRecord record;
  record.epoch = epoch;
  map[kListedShard].record = record;
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
  EXPECT_TRUE(directory.Shards()->empty());
}

// FindAll looks at the addresses of shards only, so a name stands for each here.
TEST(ShardDirectoryTest, FindAllFindsWhatFindFinds) {
  ShardDirectory directory;
  ShardDirectory::Map map;
  constexpr uint32_t kIds = 100;
  for (uint32_t i = 0; i < kIds; ++i) {
    if (i % 3 == 0) continue;  // unknown
    auto& entry = map[{1, i}];
    auto name = std::make_shared<uint64_t>(i);
    if (i % 3 == 1) entry.shard = {name, reinterpret_cast<Shard*>(name.get())};
  }
  directory.Publish(std::move(map));
  std::vector<Shard*> shards(7);
  for (const uint32_t count : {0u, 1u, 5u, 8u, 9u, kIds}) {
    std::vector<ShardId> ids;
    for (uint32_t i = 0; i < count; ++i) ids.push_back({1, kIds - 1 - i});
    const std::shared_ptr<const ShardDirectory::Map> held = directory.FindAll(ids, &shards);
    ASSERT_NE(held, nullptr);
    ASSERT_EQ(shards.size(), count);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(shards[i], directory.Find(ids[i]).get()) << i;
      EXPECT_EQ(shards[i] != nullptr, ids[i].index % 3 == 1) << i;
    }
  }
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
  EXPECT_EQ(directory.Current().at(kListedShard).record->epoch, 2u);
  EXPECT_EQ(held->at(kListedShard).record->epoch, 1u);
}

TEST(ShardDirectoryTest, ARecordThatNobodyToldIsNone) {
  ShardDirectory directory;
  directory.Publish(DirectoryMapOf(0));
  EXPECT_FALSE(directory.RecordOf(kListedShard).has_value());
}

}  // namespace shard_directory_test
}  // namespace hotbed
