#include "cli/tables/find_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "row_math/position.h"

namespace hotbed {
namespace find_table_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::ClusterMap Map() {
  v1::ClusterMap map;
  v1::TableSpec* table = map.add_tables();
  table->set_id(1);
  table->set_name("user");
  table->set_rows(100);
  table->set_dim(4);
  for (const uint32_t index : {1u, 0u}) {  // a map may be out of order
    v1::ShardRecord* shard = map.add_shards();
    shard->set_shard((1ull << 32) | index);
    shard->set_range_first(index * 50);
    shard->set_range_limit(index * 50 + 50);
  }
  map.add_shards()->set_shard(2ull << 32);  // of another table
  return map;
}

TEST(FindTable, ByNameOrWithTheNearestOne) {
  const v1::ClusterMap map = Map();
  EXPECT_EQ(FindTable(map, "user")->rows, 100u);
  const auto missing = FindTable(map, "usr");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()),
              ::testing::HasSubstr("'usr'; did you mean 'user'?"));
}

TEST(FindTable, ShardsInOrderAndTheOneOfAnId) {
  const v1::ClusterMap map = Map();
  const auto spec = FindTable(map, "user");
  const auto shards = ShardsOf(map, 1);
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0].range_first(), 0u);
  EXPECT_THAT(ShardsOfId(*spec, shards, 49), ElementsAre(&shards[0]));
  EXPECT_THAT(ShardsOfId(*spec, shards, 50), ElementsAre(&shards[1]));
  EXPECT_THAT(ShardsOfId(*spec, shards, 100), IsEmpty());
}

TEST(FindTable, AnIdIsOnAShardOfEachSlice) {
  TableSpec spec;
  spec.rows = 10;
  std::vector<v1::ShardRecord> shards(4);
  for (int i = 0; i < 4; ++i) {
    shards[i].set_range_first(i % 2 == 0 ? 0 : 5);
    shards[i].set_range_limit(i % 2 == 0 ? 5 : 10);
    shards[i].set_column_first(i / 2 * 8);
    shards[i].set_column_limit(i / 2 * 8 + 8);
  }
  EXPECT_THAT(ShardsOfId(spec, shards, 7), ElementsAre(&shards[1], &shards[3]));
}

TEST(FindTable, HashedIdsGoByBucket) {
  TableSpec spec;
  spec.hashed = true;
  std::vector<v1::ShardRecord> shards(2);
  shards[0].set_range_limit(kBuckets / 2);
  shards[1].set_range_first(kBuckets / 2);
  shards[1].set_range_limit(kBuckets);
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{123456789}}) {
    const bool upper = (Mix64(id) >> 63) != 0;
    EXPECT_THAT(ShardsOfId(spec, shards, id), ElementsAre(&shards[upper ? 1 : 0])) << id;
  }
}

}  // namespace find_table_test
}  // namespace hotbed
