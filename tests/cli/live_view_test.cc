#include "cli/shards/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotbed {
namespace live_view_test {

using ::testing::SizeIs;

// Servers 10 (live) and 11 (down). Table 3 has two shards, one on each server, the second one first
// in the map. Table 4 has none.
v1::ClusterMap Map() {
  v1::ClusterMap map;
  for (uint64_t id : {10, 11}) {
    v1::ServerInfo& server = *map.add_servers();
    server.set_server(id);
    server.set_name(id == 10 ? "s0" : "s1");
    server.set_live(id == 10);
    server.mutable_load()->set_host_bytes_limit(id * 1000);
  }
  for (uint32_t id : {3, 4}) {
    v1::TableSpec& table = *map.add_tables();
    table.set_id(id);
    table.set_name("t");
    table.set_rows(100);
    table.set_dim(4);
  }
  for (uint32_t index : {1, 0}) {
    v1::ShardRecord& shard = *map.add_shards();
    shard.set_shard((uint64_t{3} << 32) | index);
    shard.set_range_first(50 * index);
    shard.set_range_limit(50 * index + 50);
    shard.set_column_limit(4);
    shard.mutable_primary()->set_server(10 + index);
  }
  return map;
}

TEST(LiveView, ServersTablesAndShards) {
  const auto view = ViewOfMap(Map());
  ASSERT_TRUE(view.ok()) << view.status();
  ASSERT_THAT(view->servers, SizeIs(2));
  EXPECT_EQ(view->servers[0].host_bytes, 10000u);
  EXPECT_TRUE(view->servers[0].usable && view->servers[0].reachable);
  EXPECT_FALSE(view->servers[1].usable || view->servers[1].reachable);
  ASSERT_THAT(view->tables, SizeIs(1)) << "one has no shards yet";
  ASSERT_THAT(view->tables[0].shards, SizeIs(2));
  EXPECT_EQ(view->tables[0].shards[0].range.first, 0u) << "in position order";
  EXPECT_EQ(view->tables[0].shards[0].primary, 10u);
  EXPECT_EQ(view->tables[0].shards[1].primary, 11u);
}

TEST(LiveView, ReplicasDomainsAndWhatServersSay) {
  v1::ClusterMap map = Map();
  map.mutable_servers(0)->set_failure_domain("rack-a");
  map.mutable_servers(0)->set_draining(true);
  v1::ServerLoad& load = *map.mutable_servers(0)->mutable_load();
  load.set_device_bytes_limit(300);
  load.set_free_bytes(700);
  v1::ShardLoad& shard = *load.add_shards();
  shard.set_shard((uint64_t{3} << 32) | 1);
  shard.set_bytes(500);
  *map.mutable_shards(0)->add_members() = map.shards(0).primary();
  map.mutable_shards(0)->add_members()->set_server(10);
  const auto view = ViewOfMap(map);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->servers[0].failure_domain, "rack-a");
  EXPECT_TRUE(view->servers[0].draining && view->servers[0].reachable);
  EXPECT_FALSE(view->servers[0].usable) << "it takes nothing new";
  EXPECT_EQ(view->servers[0].device_bytes, 300u);
  EXPECT_EQ(view->servers[0].free_bytes, 700u);
  EXPECT_FALSE(view->servers[1].free_bytes.has_value());
  EXPECT_THAT(view->tables[0].shards[0].backups, SizeIs(0));
  EXPECT_THAT(view->tables[0].shards[1].backups, ::testing::ElementsAre(10u));
  EXPECT_EQ(view->tables[0].shards[1].bytes, 500u);
  EXPECT_EQ(UnreachableText(*view), "") << "there is another replica of what s1 has";
}

TEST(LiveView, RatesOfShardsAreTaken) {
  v1::ClusterMap map = Map();
  EXPECT_THAT(LiveWorkloadText(map), ::testing::HasSubstr("512 evenly spread ids"));
  v1::ShardRate& rate = *map.add_rates();
  rate.set_shard((uint64_t{3} << 32) | 1);
  rate.set_rows_pulled(2000);
  rate.set_rows_pushed(500);
  const auto view = ViewOfMap(map);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->tables[0].shards[0].rows_pulled, 0);
  EXPECT_EQ(view->tables[0].shards[1].rows_pulled, 2000);
  EXPECT_EQ(view->tables[0].shards[1].rows_pushed, 500);
  EXPECT_THAT(LiveWorkloadText(map), ::testing::HasSubstr("2500 rows/s"));
}

TEST(LiveView, ServersThatAreDownAreNamed) {
  v1::ClusterMap map = Map();
  EXPECT_EQ(
      UnreachableText(*ViewOfMap(map)),
      "s1 is down: its 1 shard stays its own: no replica exists elsewhere that could be moved.\n");
  map.mutable_shards(0)->mutable_primary()->set_server(10);
  EXPECT_EQ(UnreachableText(*ViewOfMap(map)), "") << "it has nothing";
}

}  // namespace live_view_test
}  // namespace hotbed
