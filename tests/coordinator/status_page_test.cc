#include "planner/coordinator/shell/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hotbed {
namespace status_page_test {

TEST(StatusPageTest, TablesAreDescribedInTheWordsOfTheCommandLine) {
  CoordinatorStatus status;
  v1::TableSpec* const table = status.map.add_tables();
  table->set_id(3);
  table->set_name("users");
  table->set_rows(1000);
  table->set_dim(16);
  table->set_weight_type(v1::WEIGHT_BF16);
  table->mutable_optimizer()->set_kind(v1::OPTIMIZER_ROWWISE_ADAGRAD);
  table->set_durability(v1::DURABILITY_CHECKPOINT);
  v1::TableSpec* const later = status.map.add_tables();
  later->set_weight_type(static_cast<v1::WeightType>(77));
  const StatusPage page = MakeStatusPage(status, "127.0.0.1:1", 0);
  ASSERT_EQ(page.tables.size(), 5u);
  ASSERT_EQ(page.tables[1].rows.size(), 2u);
  EXPECT_THAT(page.tables[1].rows[0],
              testing::ElementsAre("3", "users", "bounded", "1000", "16", "bf16", "rowwise-adagrad",
                                   "0", "0", "checkpoint"));
  EXPECT_EQ(page.tables[1].rows[1][5], "77") << "a value of a later version";
}

TEST(StatusPageTest, ReplicasMovesAndEventsAreShown) {
  CoordinatorStatus status;
  for (const char* name : {"a", "b", "c"}) {
    v1::ServerInfo* const server = status.map.add_servers();
    server->set_server(status.map.servers_size());
    server->set_name(name);
    server->set_live(true);
  }
  status.map.mutable_servers(1)->set_draining(true);
  v1::ShardRecord record;
  record.set_shard(ShardId{3, 7}.packed());
  for (const ServerId id : {1, 2}) record.add_members()->set_server(id);
  *record.mutable_primary() = record.members(0);
  record.add_learners()->set_server(3);
  *status.map.add_shards() = record;
  v1::ShardMove* const move = status.moves.add_moves();
  *move->mutable_record() = record;
  move->mutable_goal()->add_servers(1);
  move->mutable_goal()->add_servers(3);
  move->mutable_goal()->set_reason("drain of b");
  move->set_step("copying");
  v1::ClusterEvent* const event = status.events.add_events();
  event->set_number(9);
  event->set_kind("drain");
  event->set_text("b: 1 shards are to leave");
  const StatusPage page = MakeStatusPage(status, "127.0.0.1:1", 0);
  EXPECT_EQ(page.tables[0].rows[1][2], "draining");
  EXPECT_THAT(page.tables[2].rows[0], testing::ElementsAre("", "7", "[0, 0)", "a", "b", "c", "0",
                                                           "waiting for its server"));
  EXPECT_THAT(page.tables[3].rows[0], testing::ElementsAre("/7", "a c", "copying", testing::_,
                                                           testing::_, "drain of b", ""));
  EXPECT_THAT(page.tables[4].rows[0], testing::ElementsAre("9", "1970-01-01 00:00:00.000", "drain",
                                                           "b: 1 shards are to leave"));
}

double ShardsShort(const CoordinatorStatus& status) {
  std::vector<MetricSample> samples;
  AddGauges(status, 0, &samples);
  for (const MetricSample& sample : samples) {
    if (sample.name == "hotbed_coordinator_shards_short") return sample.value;
  }
  return -1;
}

TEST(StatusPageTest, ShardsWithoutALiveMemberOfTheirOwnAreShort) {
  CoordinatorStatus status;
  v1::TableSpec* const table = status.map.add_tables();
  table->set_id(3);
  table->set_replicas(2);
  for (const ServerId id : {1, 2}) {
    v1::ServerInfo* const server = status.map.add_servers();
    server->set_server(id);
    server->set_incarnation(7);
    server->set_live(true);
  }
  v1::ShardRecord record;
  record.set_shard(ShardId{3, 0}.packed());
  for (const ServerId id : {1, 2}) {
    v1::Member* const member = record.add_members();
    member->set_server(id);
    member->set_incarnation(7);
  }
  *status.map.add_shards() = record;
  EXPECT_EQ(ShardsShort(status), 0);
  // It lives, as another process: that is no member yet.
  status.map.mutable_servers(1)->set_incarnation(8);
  EXPECT_EQ(ShardsShort(status), 1);
  status.map.mutable_servers(1)->set_incarnation(7);
  status.map.mutable_servers(1)->set_live(false);
  EXPECT_EQ(ShardsShort(status), 1);
  status.map.mutable_tables(0)->set_replicas(1);
  EXPECT_EQ(ShardsShort(status), 0);
}

}  // namespace status_page_test
}  // namespace hotbed
