#include "planner/coordinator/console/cluster_document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/ids.h"

namespace hotbed {
namespace cluster_document_test {

using Json = nlohmann::json;

// Two servers, of which the second is behind with a replica, and a move.
class ClusterDocumentTest : public testing::Test {
 protected:
  ClusterDocumentTest() {
    map_.set_cluster_id("c1");
    map_.set_plan_revision(7);
    for (const uint64_t id : {1, 2}) {
      v1::ServerInfo* const server = map_.add_servers();
      server->set_server(id);
      server->set_name(id == 1 ? "s\"1" : "s2");
      server->set_live(true);
      v1::ShardLoad* const load = server->mutable_load()->add_shards();
      load->set_shard(shard_.packed());
      load->set_primary(id == 1);
      load->set_applied_lsn(id == 1 ? 50 : 42);
      load->set_rows_pushed_total(1000 * id);
      load->set_rows_pulled_total(10);
      v1::TableLoad* const table = server->mutable_load()->add_tables();
      table->set_table(3);
      table->set_rows_resident(5);
      table->set_device_bytes(64);
    }
    v1::TableSpec* const table = map_.add_tables();
    table->set_id(3);
    table->set_name("clicks");
    table->set_rows(100);
    v1::ShardRecord* const record = map_.add_shards();
    record->set_shard(shard_.packed());
    record->mutable_primary()->set_server(1);
    record->add_members()->set_server(1);
    record->add_members()->set_server(2);
    record->set_range_limit(100);
    record->set_active(true);
  }
  Json Document() const {
    return Json::parse(ClusterDocument({.map = map_,
                                        .moves = moves_,
                                        .events = events_,
                                        .served = served_,
                                        .address = "a:1",
                                        .serving = true,
                                        .trouble = "",
                                        .unix_ms = 99}));
  }

  const ShardId shard_{3, 0};
  v1::ClusterMap map_;
  v1::ListMovesReply moves_;
  v1::ListEventsReply events_;
  v1::ServingMap served_;
};

TEST_F(ClusterDocumentTest, TellsOfServingServersAndCopies) {
  v1::ServedTable* const table = served_.add_tables();
  table->set_table(3);
  table->set_format(v1::SERVED_INT8);
  table->set_replicas(2);
  table->add_servers("r0");
  table->add_servers("r1");
  served_.add_specs()->set_name("clicks");
  v1::ServingServerInfo* const server = served_.add_servers();
  server->set_name("r0");
  server->set_alive(true);
  server->set_silent_ms(200);
  server->set_lookups_total(77);
  v1::ReplicaReport* const replica = server->add_replicas();
  replica->set_table(3);
  replica->set_ready(true);
  replica->set_rows(100);
  replica->set_age_ms(50);
  replica->add_versions()->set_held(true);
  replica->add_versions();
  served_.add_versions()->set_number(4);
  served_.mutable_versions(0)->set_name("v4");
  v1::VersionChoice* const choice = served_.add_choices();
  choice->set_model("default");
  choice->set_target(4);
  const Json document = Document();
  EXPECT_EQ(document["serving_servers"][0]["lookups_total"], 77);
  EXPECT_EQ(document["serving_servers"][0]["tables_ready"], 1);
  const Json served = document["served_tables"][0];
  EXPECT_EQ(served["format"], "int8");
  EXPECT_EQ(served["age_ms_max"], nullptr);
  const Json& copies = served["copies"];
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0]["state"], "ready");
  EXPECT_EQ(copies[0]["age_ms"], 250) << "as old as the report, and older";
  EXPECT_EQ(copies[0]["versions_held"], 1);
  EXPECT_EQ(copies[0]["versions_wanted"], 2);
  EXPECT_EQ(copies[1]["state"], "not reported");
  EXPECT_EQ(served["parts"], 1);
  EXPECT_EQ(copies[0]["part"], 0);
  const Json model = document["models"][0];
  EXPECT_EQ(model["current"], nullptr);
  EXPECT_EQ(model["target"], "v4");
  server->set_alive(false);
  EXPECT_EQ(Document()["served_tables"][0]["copies"][0]["state"], "silent");
  // What it reports is of the whole table; it is to have a part.
  table->set_parts(2);
  table->add_server_parts(1);
  table->add_server_parts(0);
  const Json cut = Document()["served_tables"][0];
  EXPECT_EQ(cut["parts"], 2);
  EXPECT_EQ(cut["parts_to_follow"], nullptr);
  table->mutable_beside()->set_parts(1);
  EXPECT_EQ(Document()["served_tables"][0]["parts_to_follow"], 1);
  table->mutable_beside()->set_leaves(true);
  EXPECT_EQ(Document()["served_tables"][0]["parts_to_follow"], nullptr);
  EXPECT_EQ(cut["copies"][0]["part"], 1);
  EXPECT_EQ(cut["copies"][0]["state"], "not reported");
  replica->set_part(1);
  replica->set_parts(2);
  EXPECT_EQ(Document()["served_tables"][0]["copies"][0]["state"], "silent");
}

TEST_F(ClusterDocumentTest, SumsWhatServersReport) {
  const Json document = Document();
  EXPECT_EQ(document["cluster_id"], "c1");
  EXPECT_EQ(document["unix_ms"], 99);
  EXPECT_EQ(document["servers"][0]["name"], "s\"1");
  EXPECT_EQ(document["servers"][0]["device_bytes"], 64);
  EXPECT_EQ(document["servers"][0]["free_bytes"], nullptr) << "not reported";
  EXPECT_EQ(document["tables"][0]["rows_resident"], 10);
  const Json shard = document["shards"][0];
  EXPECT_EQ(shard["members"], Json({1, 2}));
  EXPECT_EQ(shard["rows_pushed_total"], 1000) << "the primary's: every replica applies each push";
  EXPECT_EQ(shard["rows_pulled_total"], 20) << "of both, which may serve pulls";
  EXPECT_EQ(shard["records_behind"], 8);
}

TEST_F(ClusterDocumentTest, LagIsUnknownWithoutBothReports) {
  map_.mutable_servers(1)->mutable_load()->clear_shards();
  EXPECT_EQ(Document()["shards"][0]["records_behind"], nullptr);
}

TEST_F(ClusterDocumentTest, StatesMovesAndEvents) {
  map_.mutable_servers(0)->set_draining(true);
  map_.mutable_servers(1)->set_live(false);
  v1::ShardMove* const move = moves_.add_moves();
  move->mutable_record()->set_shard(shard_.packed());
  move->mutable_goal()->add_servers(2);
  move->set_step("copying");
  move->set_bytes_total(10);
  for (uint64_t number = 1; number <= 150; ++number) {
    v1::ClusterEvent* const event = events_.add_events();
    event->set_number(number);
    event->set_text(number == 150 ? "not UTF-8: \xff" : "text");
  }
  const Json document = Document();
  EXPECT_EQ(document["servers"][0]["state"], "draining");
  EXPECT_EQ(document["servers"][1]["state"], "down");
  EXPECT_EQ(document["moves"]["list"][0]["step"], "copying");
  EXPECT_EQ(document["moves"]["list"][0]["servers"], Json({2}));
  EXPECT_EQ(document["events"].size(), 100u);
  EXPECT_EQ(document["events"][0]["number"], 150) << "the newest first";
  EXPECT_EQ(document["events"][0]["text"], "not UTF-8: \xef\xbf\xbd");
}

TEST_F(ClusterDocumentTest, NeighboursShareAnEntryWhereThereAreMany) {
  for (uint32_t index = 1; index < 10; ++index) {
    v1::ShardRecord* const record = map_.add_shards();
    record->set_shard(ShardId{3, index}.packed());
    record->set_range_first(100 * index);
    record->set_range_limit(100 * index + 100);
    record->set_active(index != 5);
  }
  map_.add_shards()->set_shard(ShardId{4, 0}.packed());
  const Json all = Document()["shards"];
  ASSERT_EQ(all.size(), 11u);
  EXPECT_EQ(all[5]["shards"], 1);
  const Json few = Json::parse(ClusterDocument({.map = map_,
                                                .moves = moves_,
                                                .events = events_,
                                                .served = served_,
                                                .entries_max = 3}))["shards"];
  ASSERT_EQ(few.size(), 4u) << "three of table 3 with four shards at most, one of table 4";
  EXPECT_EQ(few[0]["shards"], 4);
  EXPECT_EQ(few[0]["first"], 0);
  EXPECT_EQ(few[0]["limit"], 400);
  EXPECT_EQ(few[0]["active"], true);
  EXPECT_EQ(few[0]["rows_pulled_total"], 20);
  EXPECT_EQ(few[0]["records_behind"], 8);
  EXPECT_EQ(few[1]["index"], 4);
  EXPECT_EQ(few[1]["active"], false);
  EXPECT_EQ(few[1]["inactive"], 1);
  EXPECT_EQ(few[2]["shards"], 2);
  EXPECT_EQ(few[3]["table"], 4);
}

}  // namespace cluster_document_test
}  // namespace hotbed
