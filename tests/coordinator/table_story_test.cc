// Stories of tables: created, refused, cut short, dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/table_spec.h"
#include "tests/coordinator/core_story.h"

namespace hotbed {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

using TableStory = CoreStory;

TEST_F(TableStory, ATableFromCreationToDrop) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  auto created = rig_.Create(CoreRig::Table("clicks"));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_TRUE(created->created());
  EXPECT_EQ(created->spec().id(), 1u);
  EXPECT_EQ(created->spec().seed(), DefaultTableSeed("clicks"));
  const size_t shards = created->shards_size();
  EXPECT_GE(shards, 8u);
  for (const v1::ShardRecord& r : created->shards()) EXPECT_GT(r.revision(), 0u);
  EXPECT_THAT(ShardLines(Map()), SizeIs(shards));
  EXPECT_EQ(Map().servers(0).shards(), shards / 2) << "spread over both servers";
  EXPECT_EQ(Map().servers(1).shards(), shards / 2);

  auto dropped = rig_.Drop("clicks");
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->id(), 1u);
  EXPECT_EQ(dropped->shards(), shards);
  EXPECT_EQ(Map().tables_size(), 0);
  EXPECT_EQ(Map().shards_size(), 0);
  EXPECT_TRUE(rig_.store.Range(keys::kShards, PrefixLimit(keys::kShards)).kvs.empty());
  EXPECT_STATUS(rig_.Drop("clicks"), kNotFound, "\"clicks\"");
  EXPECT_EQ(rig_.Create(CoreRig::Table("clicks"))->spec().id(), 2u) << "ids are never reused";
}

TEST_F(TableStory, AnswersTellWhichMapsAreOlderThanTheyAre) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  const uint64_t before = Map().plan_revision();
  const auto created = rig_.Create(CoreRig::Table("t"));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_GT(created->plan_revision(), before);
  EXPECT_EQ(created->plan_revision(), Map().plan_revision());
  v1::CreateTableRequest again = CoreRig::Table("t");
  again.set_if_not_exists(true);
  EXPECT_EQ(rig_.Create(again)->plan_revision(), Map().plan_revision());
  const auto dropped = rig_.Drop("t");
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_GT(dropped->plan_revision(), created->plan_revision());
  EXPECT_EQ(dropped->plan_revision(), Map().plan_revision());
}

TEST_F(TableStory, MapsTellTheMessagesThatServersTake) {
  v1::RegisterServerRequest request;
  request.set_name("s1");
  request.set_address("s1:1");
  request.set_message_bytes_max(70000);
  ASSERT_TRUE(rig_.Call<v1::RegisterServerReply>(request).ok());
  ASSERT_EQ(Map().servers_size(), 1);
  EXPECT_EQ(Map().servers(0).message_bytes_max(), 70000u);
}

TEST_F(TableStory, ACreationCutShortLeavesNothing) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::CreateTableRequest request = CoreRig::Table("wide");
  request.set_shards(300);
  rig_.Send(request);
  for (int done = 0; done < 3; ++done) rig_.StepStore();  // all shards, not the table
  EXPECT_EQ(rig_.store.Range(keys::kShards, PrefixLimit(keys::kShards)).kvs.size(), 300u);
  EXPECT_EQ(Map().tables_size(), 0);
  EXPECT_EQ(Map().shards_size(), 0) << "not visible before the table is";
  rig_.Start();
  rig_.Pump();
  EXPECT_TRUE(rig_.store.Range(keys::kShards, PrefixLimit(keys::kShards)).kvs.empty());
  EXPECT_EQ(rig_.Create(CoreRig::Table("wide"))->spec().id(), 2u) << "its id is gone";
}

TEST_F(TableStory, IfNotExistsTellsTheFieldThatDiffers) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::CreateTableRequest request = CoreRig::Table("t");
  ASSERT_TRUE(rig_.Create(request).ok());
  EXPECT_STATUS(rig_.Create(request), kAlreadyExists, "\"t\" exists already (id 1)");
  request.set_if_not_exists(true);
  auto same = rig_.Create(request);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_FALSE(same->created());
  EXPECT_EQ(same->spec().id(), 1u);
  EXPECT_EQ(same->shards_size(), 8);
  request.mutable_spec()->set_dim(32);
  EXPECT_STATUS(rig_.Create(request), kAlreadyExists, "dim: 16 -> 32");
}

TEST_F(TableStory, ADryRunWritesNothing) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::CreateTableRequest request = CoreRig::Table("t");
  request.set_dry_run(true);
  const uint64_t revision = rig_.store.revision;
  auto planned = rig_.Create(request);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_FALSE(planned->created());
  EXPECT_EQ(planned->shards_size(), 8);
  EXPECT_EQ(rig_.store.revision, revision);
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t")).ok());
  v1::DropTableRequest drop;
  drop.set_name("t");
  drop.set_dry_run(true);
  EXPECT_EQ(rig_.Call<v1::DropTableReply>(drop)->shards(), 8u);
  EXPECT_EQ(Map().tables_size(), 1);
}

TEST_F(TableStory, BadSpecsAreRefused) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::CreateTableRequest request = CoreRig::Table("bad name!");
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "name");
  request = CoreRig::Table("t");
  request.mutable_spec()->set_dim(100000);
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "dim is 100000");
  request = CoreRig::Table("t");
  request.mutable_spec()->set_id(5);
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "id is 5");
  request = CoreRig::Table("t");
  request.set_shards(2000);
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "2000 shards");
  EXPECT_TRUE(rig_.store.Range(keys::kShards, PrefixLimit(keys::kShards)).kvs.empty());
}

TEST_F(TableStory, LimitsAreTold) {
  rig_.limits.tables_max = 1;
  rig_.limits.servers_max = 1;
  rig_.limits.sessions_max = 1;
  rig_.limits.shards_max = 8;
  rig_.Start();
  rig_.Pump();
  ASSERT_TRUE(rig_.Register("s1").ok());
  EXPECT_STATUS(rig_.Register("s2"), kResourceExhausted, "limit is 1");
  v1::CreateTableRequest wide = CoreRig::Table("wide");
  wide.set_shards(9);
  EXPECT_STATUS(rig_.Create(wide), kResourceExhausted, "9 shards");
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t")).ok());
  EXPECT_STATUS(rig_.Create(CoreRig::Table("u")), kResourceExhausted, "1 tables");
  ASSERT_TRUE(rig_.OpenSession("a").ok());
  EXPECT_STATUS(rig_.OpenSession("b"), kResourceExhausted, "limit is 1");
  EXPECT_TRUE(rig_.OpenSession("a").ok());
}

TEST_F(TableStory, ADrainingServerGetsNoNewShards) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  v1::HeartbeatRequest beat;
  beat.set_server(1);
  beat.set_incarnation(1);
  beat.set_draining(true);
  ASSERT_TRUE(rig_.Call<v1::HeartbeatReply>(beat).ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t")).ok());
  for (const v1::ShardRecord& r : Records()) EXPECT_EQ(r.primary().server(), 2u);
}

TEST_F(TableStory, DroppedNamesAreRememberedUpToTheLimit) {
  rig_.limits.dropped_max = 3;
  rig_.Start();
  rig_.Pump();
  ASSERT_TRUE(rig_.Register("s1").ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
    ASSERT_TRUE(rig_.Drop("t").ok());
  }
  EXPECT_THAT(Map().tables_dropped(), ElementsAre(3, 4, 5));
}

}  // namespace
}  // namespace hotbed
