// Stories of tables: created, refused, cut short, dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/tables/shard_memory.h"
#include "common/tables/table_spec.h"
#include "proto/convert.h"
#include "tests/coordinator/core_story.h"

namespace hotbed {
namespace table_story_test {

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

v1::CreateTablesRequest Together(const std::vector<v1::CreateTableRequest>& tables) {
  v1::CreateTablesRequest request;
  for (const v1::CreateTableRequest& table : tables) {
    *request.add_tables()->mutable_spec() = table.spec();
    request.mutable_tables(request.tables_size() - 1)->set_shards(table.shards());
  }
  return request;
}

TEST_F(TableStory, TablesCreatedTogetherArePlacedByOnePlan) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("before", 10)).ok());
  v1::CreateTableRequest cut = CoreRig::Table("cut", 100);
  cut.set_shards(5);
  const v1::CreateTablesRequest request =
      Together({CoreRig::Table("z"), cut, CoreRig::Table("a", 10), CoreRig::Table("m", 20)});
  const auto created = rig_.Call<v1::CreateTablesReply>(request);
  ASSERT_TRUE(created.ok()) << created.status();
  ASSERT_EQ(created->tables_size(), 4);
  uint64_t on[3] = {0, 0, 0};
  for (int i = 0; i < 4; ++i) {
    const v1::CreateTableReply& table = created->tables(i);
    EXPECT_TRUE(table.created());
    EXPECT_EQ(table.spec().id(), 2u + i) << "in the order of the request";
    EXPECT_EQ(table.spec().name(), request.tables(i).spec().name());
    EXPECT_EQ(table.plan_revision(), Map().plan_revision());
    ASSERT_GT(table.shards_size(), 0);
    EXPECT_EQ(table.shards(table.shards_size() - 1).range_limit(), table.spec().rows());
    for (const v1::ShardRecord& r : table.shards()) {
      EXPECT_GT(r.revision(), 0u);
      EXPECT_EQ(ShardId::FromPacked(r.shard()).table, table.spec().id());
      ++on[r.primary().server()];
    }
  }
  EXPECT_EQ(created->tables(0).shards_size(), 8);
  EXPECT_EQ(created->tables(1).shards_size(), 5);
  EXPECT_GT(on[1], 0u);
  EXPECT_GT(on[2], 0u);
  EXPECT_EQ(Map().tables_size(), 5);
  EXPECT_EQ(rig_.Create(CoreRig::Table("after", 10))->spec().id(), 6u);
}

TEST_F(TableStory, APlanPlacesTheShardsOfNewTables) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  v1::CreateTablesRequest request = Together({CoreRig::Table("planned", 100), CoreRig::Table("x")});
  for (uint64_t i = 0; i < 2; ++i) {
    v1::PlacedShard& shard = *request.mutable_tables(0)->add_placed();
    shard.set_range_first(i * 30);
    shard.set_range_limit(i == 0 ? 30 : 100);
    shard.set_column_limit(16);
    shard.add_servers(2 - i);
  }
  const auto created = rig_.Call<v1::CreateTablesReply>(request);
  ASSERT_TRUE(created.ok()) << created.status();
  ASSERT_EQ(created->tables(0).shards_size(), 2);
  EXPECT_EQ(created->tables(0).shards(0).range_limit(), 30u);
  EXPECT_EQ(created->tables(0).shards(0).primary().server(), 2u);
  EXPECT_EQ(created->tables(0).shards(1).primary().server(), 1u);
  EXPECT_EQ(created->tables(1).shards_size(), 8) << "placed by the planner";

  const uint64_t revision = rig_.store.revision;
  request.mutable_tables(0)->mutable_spec()->set_name("other");
  request.mutable_tables(1)->mutable_spec()->set_name("y");
  request.mutable_tables(0)->mutable_placed(1)->set_servers(0, 7);
  EXPECT_STATUS(rig_.Call<v1::CreateTablesReply>(request), kNotFound,
                "table \"other\", shard 1: the cluster has no server 7");
  request.mutable_tables(0)->set_shards(4);
  EXPECT_STATUS(rig_.Call<v1::CreateTablesReply>(request), kInvalidArgument, "ask for one of both");
  EXPECT_EQ(rig_.store.revision, revision) << "nothing was written";
}

// The shards per slice add up to the number asked for, rounded up, or to the planner's; every slice
// of columns is cut at the same rows, slice by slice.
TEST_F(TableStory, ATableInColumnSlices) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  v1::CreateTableRequest asked = CoreRig::Table("asked", 100);
  asked.mutable_spec()->set_dim(7);
  asked.mutable_spec()->set_column_slices(3);
  asked.mutable_spec()->mutable_optimizer()->set_kind(v1::OPTIMIZER_ROWWISE_ADAGRAD);
  EXPECT_STATUS(rig_.Create(asked), kInvalidArgument, "row_statistics=slice");
  asked.mutable_spec()->mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
  asked.set_shards(5);
  v1::CreateTableRequest planned = CoreRig::Table("planned");
  planned.mutable_spec()->set_column_slices(4);
  planned.mutable_spec()->mutable_optimizer()->set_kind(v1::OPTIMIZER_SGD);
  const auto created = rig_.Call<v1::CreateTablesReply>(Together({asked, planned}));
  ASSERT_TRUE(created.ok()) << created.status();
  for (const v1::CreateTableReply& table : created->tables()) {
    const uint32_t slices = table.spec().column_slices();
    const int in_slice = table.shards_size() / static_cast<int>(slices);
    ASSERT_EQ(table.shards_size(), in_slice * static_cast<int>(slices));
    for (int i = 0; i < table.shards_size(); ++i) {
      const v1::ShardRecord& shard = table.shards(i);
      const ColumnRange columns =
          SliceColumns(table.spec().dim(), slices, static_cast<uint32_t>(i / in_slice));
      EXPECT_EQ(ShardId::FromPacked(shard.shard()).index, static_cast<uint32_t>(i));
      EXPECT_EQ(shard.column_first(), columns.first);
      EXPECT_EQ(shard.column_limit(), columns.limit);
      EXPECT_EQ(shard.range_first(), table.shards(i % in_slice).range_first());
      EXPECT_EQ(shard.range_limit(), table.shards(i % in_slice).range_limit());
    }
    EXPECT_EQ(table.shards(in_slice - 1).range_limit(), table.spec().rows());
  }
  EXPECT_EQ(created->tables(0).shards_size(), 6);
  EXPECT_GE(created->tables(1).shards_size(), 8)
      << "and as many as the load of two servers asks for";
}

TEST_F(TableStory, TablesCreatedTogetherAreAllRightOrNoneIs) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("there", 10)).ok());
  const uint64_t revision = rig_.store.revision;
  const auto create = [&](const std::vector<v1::CreateTableRequest>& tables) {
    return rig_.Call<v1::CreateTablesReply>(Together(tables));
  };
  v1::CreateTableRequest flat = CoreRig::Table("flat");
  flat.mutable_spec()->set_dim(100000);
  EXPECT_STATUS(create({}), kInvalidArgument, "no tables");
  EXPECT_STATUS(create({CoreRig::Table("a"), flat}), kInvalidArgument, "dim is 100000");
  EXPECT_STATUS(create({CoreRig::Table("a"), CoreRig::Table("b"), CoreRig::Table("a")}),
                kInvalidArgument, "tables 0 and 2 of the request have this name");
  EXPECT_STATUS(create({CoreRig::Table("a"), CoreRig::Table("there", 10)}), kAlreadyExists,
                "\"there\" exists already");
  v1::CreateTableRequest many = CoreRig::Table("many", 100);
  many.set_shards(101);
  EXPECT_STATUS(create({CoreRig::Table("a"), many}), kInvalidArgument, "101 shards");
  v1::CreateTablesRequest dry = Together({CoreRig::Table("a"), CoreRig::Table("b", 10)});
  dry.set_dry_run(true);
  const auto planned = rig_.Call<v1::CreateTablesReply>(dry);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_FALSE(planned->tables(0).created());
  EXPECT_EQ(planned->tables(0).shards_size(), 8);
  EXPECT_EQ(rig_.store.revision, revision) << "nothing was written";
  EXPECT_EQ(Map().tables_size(), 1);

  v1::CreateTablesRequest rest = Together({CoreRig::Table("a", 10), CoreRig::Table("there", 10)});
  rest.set_if_not_exists(true);
  const auto made = rig_.Call<v1::CreateTablesReply>(rest);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->tables(0).created());
  EXPECT_FALSE(made->tables(1).created());
  EXPECT_EQ(made->tables(1).spec().id(), 1u);
  EXPECT_EQ(made->tables(1).shards_size(), 1);
  rest.mutable_tables(1)->mutable_spec()->set_dim(32);
  EXPECT_STATUS(rig_.Call<v1::CreateTablesReply>(rest), kAlreadyExists, "dim: 16 -> 32");
}

TEST_F(TableStory, LimitsCountTablesCreatedTogether) {
  rig_.limits.tables_max = 2;
  rig_.limits.shards_max = 10;
  rig_.Start();
  rig_.Pump();
  ASSERT_TRUE(rig_.Register("s1").ok());
  EXPECT_STATUS(rig_.Call<v1::CreateTablesReply>(Together(
                    {CoreRig::Table("a", 1), CoreRig::Table("b", 1), CoreRig::Table("c", 1)})),
                kResourceExhausted, "\"c\": the cluster has 2 tables");
  EXPECT_STATUS(
      rig_.Call<v1::CreateTablesReply>(Together({CoreRig::Table("a"), CoreRig::Table("b")})),
      kResourceExhausted, "\"b\" has 8 shards beside 8");
  EXPECT_EQ(Map().tables_size(), 0);
}

// 130 tables of two shards: three transactions of shards, three of tables.
TEST_F(TableStory, ACreationOfManyTablesCutShortLeavesWholeTables) {
  std::vector<v1::CreateTableRequest> tables;
  for (int i = 0; i < 130; ++i) {
    tables.push_back(CoreRig::Table(absl::StrCat("t", i), 10));
    tables.back().set_shards(2);
  }
  v1::CreateTablesRequest request = Together(tables);
  request.set_if_not_exists(true);
  for (int steps = 0; steps <= 6; ++steps) {
    SCOPED_TRACE(absl::StrCat(steps, " transactions"));
    rig_.store = MapMetaStore();
    rig_.Start();
    rig_.Pump();
    ASSERT_TRUE(rig_.Register("s1").ok());
    rig_.Send(request);
    for (int done = 0; done < steps; ++done) rig_.StepStore();
    const int published = steps < 3 ? 0 : std::min(130, (steps - 3) * kTablesPerTxn);
    EXPECT_EQ(Map().tables_size(), published);
    EXPECT_EQ(Map().shards_size(), 2 * published) << "not visible before its table is";
    rig_.Start();
    rig_.Pump();
    EXPECT_EQ(Map().tables_size(), published);
    EXPECT_EQ(rig_.store.Range(keys::kShards, PrefixLimit(keys::kShards)).kvs.size(),
              2u * published);
    ASSERT_TRUE(rig_.Register("s1", 1, "").ok());
    const auto again = rig_.Call<v1::CreateTablesReply>(request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(Map().tables_size(), 130);
    EXPECT_EQ(Map().shards_size(), 260);
    EXPECT_EQ(again->tables(129).created(), published < 130);
  }
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
  request.mutable_spec()->mutable_optimizer()->set_learning_rate(-1);
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "optimizer.learning_rate is -1");
  request = CoreRig::Table("t");
  request.mutable_spec()->mutable_optimizer()->set_kind(static_cast<v1::OptimizerKind>(99));
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "optimizer.kind has the unknown value 99");
  request = CoreRig::Table("t");
  request.mutable_spec()->set_staleness(3);
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "staleness is 3");
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

TEST_F(TableStory, AServerHoldsNoMoreShardsThanAQuarterOfItsMemoryTakes) {
  rig_.host_bytes = 9 * 4 * kShardBytes;
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t")).ok());  // 8 shards
  v1::CreateTableRequest two = CoreRig::Table("u");
  two.set_shards(2);
  EXPECT_STATUS(rig_.Create(two), kResourceExhausted,
                "server s1 would hold 10 shards, allowed are 9");
  EXPECT_TRUE(rig_.Create(CoreRig::Table("v", 10)).ok()) << "a single shard";
  EXPECT_EQ(Map().tables_size(), 2);
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

// Its numbers have one order: no plan, no split and no growth cuts it.
TEST_F(TableStory, AVocabularyIsOneShard) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  TableSpec spec;
  spec.name = "words";
  MakeVocabulary(50'000'000, &spec);  // which others are cut for
  v1::CreateTableRequest request;
  *request.mutable_spec() = ToProto(spec);
  request.set_shards(2);
  EXPECT_STATUS(rig_.Create(request), kInvalidArgument, "allowed: 1 for a vocabulary");
  request.set_shards(0);
  const auto created = rig_.Create(request);
  ASSERT_TRUE(created.ok()) << created.status();
  ASSERT_EQ(created->shards_size(), 1);
  EXPECT_EQ(created->spec().vocabulary(), 50'000'000u);
  v1::CutShardRequest cut;
  cut.set_shard(created->shards(0).shard());
  EXPECT_STATUS(rig_.Call<v1::CutShardReply>(cut), kFailedPrecondition, "is a vocabulary");
}

}  // namespace table_story_test
}  // namespace hotbed
