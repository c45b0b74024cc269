// Stories of a coordinator that has lost its metadata and rebuilds them from the servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/tables/session_of_lane.h"
#include "planner/coordinator/state/metadata_backup.h"
#include "tests/coordinator/membership_story.h"

namespace hotbed {
namespace rebuild_story_test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr uint64_t kGeneration = uint64_t{1} << ClusterState::kGenerationShift;

class RebuildStory : public MembershipStory {
 protected:
  // Loses the coordinator with its disk: `rig_` stays as it was, `fresh_` is the new one.
  RebuildStory() { Settle(); }
  // Serving servers would have reported by then.
  void Settle() {
    fresh_.Pump();
    fresh_.now_ns += RememberedServing::kLatelyNs;  // without Tick, which sets the time of day
    fresh_.core->Tick(fresh_.now_ns);
  }

  // What a server remembers of its shards besides their epochs: the records that it has heard of
  // since its start, the holders in its PROMISES, or nothing.
  enum class Memory { kRecords, kHolders, kNothing };
  // The server asks the new coordinator for its old cluster.
  absl::StatusOr<v1::RegisterServerReply> Ask(const std::string& name,
                                              Memory memory = Memory::kRecords) {
    const Fleet::Server& s = fleet_.at(name);
    v1::RegisterServerRequest request;
    request.set_server(s.id);
    request.set_name(name);
    request.set_address(name + ":1");
    request.set_cluster_id(s.cluster);
    request.set_feature_level(kFeatureLevel);
    for (const auto& [packed, record] : s.records) {
      const auto held = fresh_.HeldBy(s.id, packed);
      const absl::StatusOr<ShardRecord> decoded = FromProto(record);
      if (!held.has_value() || !decoded.ok() || !decoded->Names(s.id)) continue;
      *request.add_held() = *held;
      request.mutable_held()->rbegin()->set_committed_step(step_);
      v1::ShardRecord* const remembered = request.mutable_recollection()->add_shards();
      *remembered = record;
      if (memory == Memory::kRecords) continue;
      ShardRecord few;
      few.shard = decoded->shard;
      few.range = decoded->range;
      few.epoch = decoded->epoch;
      few.active = true;
      if (memory == Memory::kHolders) {
        for (const Member& member : decoded->members) few.members.push_back({member.server, 0});
      }
      remembered->Clear();
      ToProto(few, remembered);
    }
    const v1::ClusterMap map = Map();
    for (const v1::TableSpec& table : map.tables()) {
      *request.mutable_recollection()->add_tables() = table;
    }
    for (const v1::ServerInfo& info : map.servers()) {
      if (memory != Memory::kNothing) *request.mutable_recollection()->add_servers() = info;
    }
    return fresh_.Call<v1::RegisterServerReply>(request);
  }
  absl::StatusOr<v1::RebuildMetadataReply> Rebuild(bool without_missing = false,
                                                   bool dry_run = false) {
    v1::RebuildMetadataRequest request;
    request.set_without_missing(without_missing);
    request.set_dry_run(dry_run);
    return fresh_.Call<v1::RebuildMetadataReply>(request);
  }
  // The new coordinator loses its disk, too.
  void LoseAgain() {
    fresh_.store = MapMetaStore();
    fresh_.Start();
    Settle();
  }
  // The servers follow the new coordinator from now on.
  void Come(const std::vector<std::string>& names) {
    fleet_.Follow(&fresh_);
    Start(names);
  }
  std::vector<std::string> NewLines() {
    std::vector<std::string> lines;
    const v1::ClusterMap map = fresh_.core->Map(0);
    for (const v1::ShardRecord& r : map.shards()) lines.push_back(Line(r));
    return lines;
  }
  std::string DoubtText() {
    const v1::ListMovesReply moves = fresh_.core->Moves({});
    return moves.doubts().empty() ? "" : moves.doubts(0).text();
  }

  CoreRig fresh_;
  uint64_t step_ = 0;
};

TEST_F(RebuildStory, TheFullestReplicaOfAllThatAskGoesOnAboveAllNumbers) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  ASSERT_THAT(Lines(), ElementsAre("s1 s2 e1"));
  EXPECT_STATUS(Ask("s1"), kUnavailable, "this coordinator has no metadata. 'hotbed metadata");
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "fewer than 2 replicas are here");
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "not asked yet: server s2; ");
  EXPECT_STATUS(Ask("s2"), kUnavailable, "hotbed metadata rebuild --from-servers");
  const auto planned = Rebuild(/*without_missing=*/false, /*dry_run=*/true);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->servers_size(), 2);
  EXPECT_THAT(fresh_.core->Map(0).tables(), IsEmpty()) << "a dry run writes nothing";

  const auto rebuilt = Rebuild();
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  EXPECT_EQ(rebuilt->cluster_id(), rig_.core->state().cluster_id());
  EXPECT_EQ(rebuilt->generation(), 1u);
  ASSERT_EQ(rebuilt->tables_size(), 1);
  EXPECT_EQ(rebuilt->tables(0).shards(), 1u);
  EXPECT_EQ(fresh_.core->state().cluster_id(), rig_.core->state().cluster_id());
  // Nobody is asked before the fence is there, and what was said before it does not count.
  EXPECT_THAT(NewLines(), ElementsAre(absl::StrCat("s1 s2 e", kGeneration, " waits")));

  fresh_.disks[fleet_.at("s1").id] = 40;  // s2 has taken more meanwhile
  Come({"s1", "s2"});
  fleet_.Run(1000);
  EXPECT_THAT(NewLines(), ElementsAre(AllOf(StartsWith("s2 s1 e"), Not(HasSubstr("waits")))));
  const v1::ClusterMap map = fresh_.core->Map(0);
  EXPECT_GT(map.shards(0).epoch(), kGeneration);
  EXPECT_GT(map.servers(0).incarnation(), kGeneration);
  EXPECT_GT(map.plan_revision(), kGeneration) << "clients and servers take no older map";
  const auto session = fresh_.OpenSession("trainer");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_GE(session->session(), ClusterState::FirstSession(1));
  const auto created = fresh_.Create(CoreRig::Table("new"));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_GT(created->spec().id(), 1000u) << "ids of tables that nobody remembers are not reused";

  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "no server of a cluster that lost its metadata");
  fresh_.Start();  // the metadata are in its store now
  fresh_.Pump();
  EXPECT_EQ(fresh_.core->state().generation(), 1u);
  EXPECT_THAT(NewLines(), SizeIs(created->shards_size() + 1));
}

// The server still holds the upper part, as one that was away during the merge does.
TEST_F(RebuildStory, AMergedShardIsAdoptedWithoutThePartThatHasEnded) {
  Start({"s1"});
  v1::CreateTableRequest table = Request("t", 1, 2);
  table.mutable_spec()->set_durability(v1::DURABILITY_LOG);
  ASSERT_TRUE(rig_.Create(table).ok());
  fleet_.Run(300);
  v1::CutShardRequest merge;
  merge.set_shard(ShardId{1, 0}.packed());
  merge.set_merge_with(ShardId{1, 1}.packed());
  const auto asked = rig_.Call<v1::CutShardReply>(merge);
  ASSERT_TRUE(asked.ok()) << asked.status();
  const ShardRecord& lower = rig_.core->state().shards().begin()->second;
  v1::CommitCutRequest commit;
  *commit.mutable_cut() = asked->cut();
  commit.set_epoch(lower.epoch);
  commit.set_epoch_with(rig_.core->state().shards().rbegin()->second.epoch);
  commit.set_server(lower.primary.server);
  commit.set_incarnation(lower.primary.incarnation);
  ASSERT_TRUE(rig_.Call<v1::CommitCutReply>(commit).ok());
  fleet_.Run(300);
  ASSERT_EQ(rig_.core->state().shards().size(), 1u);
  ASSERT_EQ(fleet_.at("s1").records.size(), 2u);
  Ask("s1").IgnoreError();
  const auto rebuilt = Rebuild();
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  EXPECT_EQ(rebuilt->tables(0).left_out(), "");
  ASSERT_EQ(fresh_.core->state().shards().size(), 1u);
  const ShardRecord& adopted = fresh_.core->state().shards().begin()->second;
  EXPECT_EQ(adopted.lanes, rig_.core->state().shards().begin()->second.lanes);
}

TEST_F(RebuildStory, OneClusterAtATimeIntoEmptyMetadataOnly) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "no server of a cluster that lost its metadata");
  Ask("s1").IgnoreError();
  fleet_.at("s2").cluster = "another";
  Ask("s2").IgnoreError();
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "cluster another: s2; cluster cluster 1: s1;");
  fresh_.Tick(11'000);  // both are gone

  ASSERT_TRUE(fresh_.Register("n1").ok());
  fleet_.at("s1").cluster = "a third";  // both rigs count their clusters from 1
  EXPECT_STATUS(Ask("s1"), kFailedPrecondition, "has a data directory of cluster");
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "are not empty: 1 servers and 0 tables");
}

// Merged shards keep sessions of their lanes under numbers of their own.
TEST(SessionNumbers, OfAnyGenerationLeaveTheUpperBitsFree) {
  EXPECT_LT(ClusterState::FirstSession((uint64_t{1} << 34) - 2), kSessionMax);
  const SessionId session = ClusterState::FirstSession(1'900'000'000) + 7;
  EXPECT_EQ(ClientSessionOf(SessionOfLane(session, kShardNumbersMax - 1)), session);
  EXPECT_EQ(LaneTagOf(SessionOfLane(session, kShardNumbersMax - 1)), kShardNumbersMax - 1);
}

TEST_F(RebuildStory, NumbersFromNowhereAreRefused) {
  Start({"s1"});
  Create("t", 1, 1);
  fleet_.at("s1").records.begin()->second.set_epoch(~uint64_t{0});
  Ask("s1").IgnoreError();
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "names a number of generation 17179869183");
}

TEST_F(RebuildStory, NothingNewBeginsWhileServersAskForTheirCluster) {
  Start({"s1"});
  Create("t", 1, 1);
  Ask("s1").IgnoreError();
  EXPECT_STATUS(fresh_.Register("n1"), kUnavailable, "server \"s1\" at s1:1 asks for cluster");
  fresh_.Tick(11'000);
  EXPECT_TRUE(fresh_.Register("n1").ok()) << "it asks no more";
}

TEST_F(RebuildStory, ALateServerIsPassedOverAndItsReplicasAreKept) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  fleet_.at("s2").state = Fleet::State::kDown;
  Ask("s1").IgnoreError();
  ASSERT_TRUE(Rebuild(/*without_missing=*/true).ok());
  fresh_.disks[fleet_.at("s1").id] = 40;
  Come({"s1"});
  fleet_.Run(9000);
  EXPECT_THAT(DoubtText(), HasSubstr("which may hold more")) << "s1 remembers s2";
  fleet_.Run(3000);
  EXPECT_THAT(NewLines(), ElementsAre(AllOf(StartsWith("s1 e"), Not(HasSubstr("waits")))));
  const std::vector<std::string> alone = NewLines();

  EXPECT_STATUS(Ask("s2"), kUnavailable, "was away when its metadata were rebuilt");
  ASSERT_TRUE(Rebuild().ok());
  fleet_.Start("s2");
  fleet_.Run(2000);
  EXPECT_EQ(NewLines(), alone) << "it is not overwritten";
  EXPECT_THAT(DoubtText(), HasSubstr("s2 holds more, up to LSN 100"));
}

TEST_F(RebuildStory, AReplicaOfWhichNobodyKnewIsKept) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  fleet_.at("s2").state = Fleet::State::kDown;
  Ask("s1", Memory::kNothing).IgnoreError();
  ASSERT_TRUE(Rebuild(/*without_missing=*/true).ok());
  Come({"s1"});
  fleet_.Run(1000);
  EXPECT_THAT(NewLines(), ElementsAre(StartsWith("s1 e"))) << "at once: nobody else is known";
  Ask("s2", Memory::kNothing).IgnoreError();
  const auto late = Rebuild();
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->replicas_kept(), 1u);
  fleet_.Start("s2");
  fleet_.Run(2000);
  EXPECT_THAT(NewLines(), ElementsAre(StartsWith("s1 e")));
  EXPECT_THAT(DoubtText(), HasSubstr("s2 holds more"));
}

TEST_F(RebuildStory, ATableOfWhichShardsAreMissingIsLeftOutUntilTheyCome) {
  Start({"s1", "s2"});
  Create("t", 1, 2);
  ASSERT_THAT(Lines(), SizeIs(2));
  Ask("s1").IgnoreError();
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "table t: no server that asks holds shard");
  const auto without = Rebuild(/*without_missing=*/true);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(without->tables(0).left_out(), HasSubstr("no server that asks holds shard"));
  EXPECT_THAT(fresh_.core->Map(0).tables(), IsEmpty());

  // What s1 holds of it is not deleted for it: it is neither dropped nor forgotten.
  auto up = fresh_.Register("s1", fleet_.at("s1").id, fleet_.at("s1").cluster);
  ASSERT_TRUE(up.ok()) << up.status();
  v1::HeartbeatRequest beat;
  beat.set_server(up->server());
  beat.set_incarnation(up->incarnation());
  beat.add_held_unnamed(fleet_.at("s1").records.begin()->first);
  const auto told = fresh_.Call<v1::HeartbeatReply>(beat);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(told->map().tables_dropped(), IsEmpty());

  Ask("s2").IgnoreError();
  const auto rest = Rebuild();
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->generation(), 1u);
  EXPECT_EQ(rest->tables(0).left_out(), "");
  Come({"s1", "s2"});
  fleet_.Run(1000);
  EXPECT_THAT(NewLines(), AllOf(SizeIs(2), Each(Not(HasSubstr("waits")))));
}

TEST_F(RebuildStory, TheNextCoordinatorRemembersWhatWasLeftOut) {
  const std::vector<std::string> names = {"s1", "s2", "s3"};
  Start(names);
  Create("t", 1, 3);
  ASSERT_THAT(Lines(), SizeIs(3));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const bool last = name == names.back();
    Ask(name).IgnoreError();
    const auto rebuilt = Rebuild(/*without_missing=*/!last);
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    ASSERT_EQ(rebuilt->tables_size(), 1);
    EXPECT_EQ(rebuilt->tables(0).left_out().empty(), last) << rebuilt->tables(0).left_out();
    // The servers that were adopted do not ask again.
    fresh_.Start();
    fresh_.Pump();
  }
  EXPECT_THAT(fresh_.core->state().left_out(), IsEmpty()) << "the table is whole";
  Come(names);
  fleet_.Run(1000);
  EXPECT_THAT(NewLines(), AllOf(SizeIs(3), Each(Not(HasSubstr("waits")))));
}

TEST_F(RebuildStory, ALateServerThatHoldsNoMoreIsAMemberAgain) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  fleet_.at("s2").state = Fleet::State::kDown;
  Ask("s1").IgnoreError();
  ASSERT_TRUE(Rebuild(/*without_missing=*/true).ok());
  Come({"s1"});
  fleet_.Run(12'000);
  ASSERT_THAT(NewLines(), ElementsAre(AllOf(StartsWith("s1 e"), Not(HasSubstr("waits")))));
  Ask("s2").IgnoreError();
  ASSERT_TRUE(Rebuild().ok());
  fleet_.Start("s2");
  fleet_.Run(1000);
  EXPECT_THAT(NewLines(), ElementsAre(StartsWith("s1 s2 e")));
  EXPECT_EQ(DoubtText(), "");
}

// What they remember is in their PROMISES.
TEST_F(RebuildStory, NoPersonDecidesAlsoIfAllServersWereStartedAgain) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  fleet_.at("s2").state = Fleet::State::kDown;
  Ask("s1", Memory::kHolders).IgnoreError();
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "not asked yet: server s2; ");
  ASSERT_TRUE(Rebuild(/*without_missing=*/true).ok());
  Come({"s1"});
  fleet_.Run(9000);
  EXPECT_THAT(DoubtText(), HasSubstr("which may hold more")) << "s1 remembers s2";
  fleet_.Run(3000);
  ASSERT_THAT(NewLines(), ElementsAre(AllOf(StartsWith("s1 e"), Not(HasSubstr("waits")))));
  Ask("s2", Memory::kHolders).IgnoreError();
  const auto late = Rebuild();
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->replicas_kept(), 0u) << "the record names it";
  fleet_.Start("s2");
  fleet_.Run(1000);
  EXPECT_THAT(NewLines(), ElementsAre(StartsWith("s1 s2 e")));
  EXPECT_EQ(DoubtText(), "");
}

// A serving server as its process is: it keeps the records, and obeys no coordinator without them.
struct ServingServer {
  std::string name;
  v1::ServingRecords kept;
  bool wanted = false;
  std::vector<uint32_t> tables;

  void Report(CoreRig* rig) {
    v1::ServingReport report;
    report.set_name(name);
    report.set_run(7);
    report.set_address("127.0.0.1:1");
    report.set_bytes_max(1 << 30);
    if (!kept.tables().empty()) {
      report.set_records_cluster(kept.cluster_id());
      report.set_records_revision(kept.revision());
      if (wanted) *report.mutable_records() = kept;
    }
    const auto orders = rig->Call<v1::ServingOrders>(report);
    ASSERT_TRUE(orders.ok()) << orders.status();
    wanted = orders->records_wanted();
    if (wanted) return;
    if (orders->has_records()) kept = orders->records();
    tables.clear();
    for (const v1::ServedTable& table : orders->tables()) tables.push_back(table.table());
  }
};

v1::PublishVersionRequest Publication(const std::string& name) {
  v1::PublishVersionRequest request;
  request.set_name(name);
  request.set_folder("/versions/" + name);
  request.add_tables("t");
  return request;
}

TEST_F(RebuildStory, WhichTablesAreServedIsRemembered) {
  LoseAgain();  // so that the new cluster has another id
  Start({"s1"});
  Create("t", 1, 1);
  Create("other", 1, 1);
  ServingServer r0{.name = "r0"}, r1{.name = "r1"};
  r0.Report(&rig_);
  r1.Report(&rig_);
  v1::ServeTablesRequest serve;
  serve.add_tables("t");
  serve.set_format(v1::SERVED_INT8);
  serve.set_replicas(2);
  serve.set_staleness_ms_max(1234);
  ASSERT_TRUE(rig_.Call<v1::ServeTablesReply>(serve).ok());
  r0.Report(&rig_);
  ASSERT_THAT(r0.tables, SizeIs(1));
  ASSERT_TRUE(rig_.Call<v1::PublishVersionReply>(Publication("v1")).ok());
  r1.Report(&rig_);  // r0 does not hear of v1
  const std::vector<uint32_t> tables = r1.tables;
  const v1::ServingMap before = *rig_.core->Serving();

  for (ServingServer* server : {&r0, &r1}) server->Report(&fresh_);
  EXPECT_STATUS(fresh_.core->Serving(), kUnavailable, "metadata rebuild");
  EXPECT_EQ(r0.tables, tables);  // it goes on with them
  ASSERT_FALSE(Ask("s1").ok());
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "have not said yet which tables are served: r0 r1");
  for (int i = 0; i < 30; ++i) {  // 15 s, after which a server that is silent is away
    for (ServingServer* server : {&r0, &r1}) server->Report(&fresh_);
    fresh_.Tick(500);
  }
  ASSERT_FALSE(Ask("s1").ok());
  EXPECT_STATUS(fresh_.core->Serving(), kUnavailable, "metadata rebuild");
  const auto rebuilt = Rebuild();
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  const v1::ServingMap after = *fresh_.core->Serving();
  ASSERT_THAT(after.tables(), SizeIs(1));
  EXPECT_EQ(after.tables(0).SerializeAsString(), before.tables(0).SerializeAsString());
  ASSERT_THAT(after.versions(), SizeIs(1));
  EXPECT_EQ(after.versions(0).SerializeAsString(), before.versions(0).SerializeAsString());
  EXPECT_EQ(after.choice().SerializeAsString(), before.choice().SerializeAsString());
  ServingServer r2{.name = "r2"};
  r2.Report(&fresh_);
  fresh_.Tick(500);
  fresh_.Pump();
  for (ServingServer* server : {&r0, &r1}) {
    server->Report(&fresh_);
    EXPECT_EQ(server->tables, tables) << "no copy goes to a server that reports first";
    EXPECT_THAT(server->kept.versions(), SizeIs(1));
  }
  // Later changes count as later.
  const uint64_t revision = r0.kept.revision();
  serve.set_action(v1::ServeTablesRequest::REMOVE);
  ASSERT_TRUE(fresh_.Call<v1::ServeTablesReply>(serve).ok());
  r0.Report(&fresh_);
  EXPECT_THAT(r0.tables, IsEmpty());
  EXPECT_GT(r0.kept.revision(), revision);
}

TEST_F(RebuildStory, WhichTablesAreServedIsWaitedFor) {
  Start({"s1"});
  Create("t", 1, 1);
  ServingServer r0{.name = "r0"}, r1{.name = "r1"};
  for (ServingServer* server : {&r0, &r1}) server->Report(&rig_);
  v1::ServeTablesRequest serve;
  serve.add_tables("t");
  serve.set_replicas(2);
  ASSERT_TRUE(rig_.Call<v1::ServeTablesReply>(serve).ok());
  for (ServingServer* server : {&r0, &r1}) server->Report(&rig_);
  ASSERT_THAT(r0.kept.tables(), SizeIs(1));

  fresh_.store = MapMetaStore();
  fresh_.Start();
  fresh_.Pump();
  EXPECT_STATUS(fresh_.core->Serving(), kUnavailable, "metadata rebuild");
  ASSERT_FALSE(Ask("s1").ok());
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "serving servers, which report within 3 s");
  fresh_.Tick(2500);
  ASSERT_FALSE(Ask("s1").ok());
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "serving servers, which report within 1 s");
  for (int i = 0; i < 2; ++i) r0.Report(&fresh_);  // it is asked, and says
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "which tables are served: serving server r1; ");
  const auto planned = Rebuild(/*without_missing=*/false, /*dry_run=*/true);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_THAT(planned->serving_missing(), ElementsAre("serving server r1"));
  ASSERT_TRUE(Rebuild(/*without_missing=*/true).ok());
  EXPECT_THAT(fresh_.core->Serving()->tables(), SizeIs(1));
}

TEST_F(RebuildStory, NoPartsAreAdoptedThatNoCoordinatorWouldHaveMade) {
  v1::TableSpec spec;
  spec.set_id(7);
  spec.set_rows(10);
  const auto adopted = [&spec](uint32_t parts, const std::vector<uint32_t>& of) {
    v1::ServingRecords records;
    v1::ServedTable& table = *records.add_tables();
    table.set_table(7);
    table.set_replicas(1);
    table.set_parts(parts);
    for (const uint32_t part : of) {
      table.add_servers(absl::StrCat("r", table.servers_size()));
      table.add_server_parts(part);
    }
    return !OpsToAdopt(records, {{7, spec}}).empty();
  };
  EXPECT_TRUE(adopted(0, {}));
  EXPECT_TRUE(adopted(2, {}));
  EXPECT_TRUE(adopted(2, {1, 0}));
  EXPECT_FALSE(adopted(2, {1, 2})) << "there is no third part";
  EXPECT_FALSE(adopted(11, {})) << "there are ten rows";
  EXPECT_FALSE(adopted(65, {})) << "the limit is 64";
}

TEST_F(RebuildStory, AServingServerOfAnotherClusterGetsNoOrders) {
  ServingServer r0{.name = "r0"};
  r0.kept.set_cluster_id("another");
  r0.kept.add_tables()->set_table(7);
  r0.tables = {7};
  ASSERT_TRUE(fresh_.Register("s9").ok());
  r0.Report(&fresh_);
  EXPECT_TRUE(r0.wanted);
  EXPECT_THAT(r0.tables, ElementsAre(7));
  EXPECT_THAT(fresh_.core->Serving()->servers(), IsEmpty());
  // Started again, it has nothing to remember.
  r0 = {.name = "r0"};
  r0.Report(&fresh_);
  EXPECT_FALSE(r0.wanted);
  EXPECT_THAT(fresh_.core->Serving()->servers(), SizeIs(1));
}

// Rebuilds that are cut short behind each of their transactions: the coordinator is killed, and the
// next one goes on with what is in its store.
class CutShortStory : public RebuildStory, public testing::WithParamInterface<uint32_t> {
 protected:
  // Clients take tables that are missing from a later map for dropped.
  void ExpectNoTableMissing() {
    const v1::ClusterMap map = fresh_.core->Map(0);
    if (map.plan_revision() >= kGeneration) {
      EXPECT_EQ(map.tables_size(), 2);
    }
    const std::optional<v1::ClusterMap> news = fresh_.core->MapToFollow(0);
    const bool later = news.has_value() && news->plan_revision() >= kGeneration;
    if (later) {
      EXPECT_EQ(news->tables_size(), 2);
    }
    EXPECT_EQ(later, !fresh_.core->state().servers().empty());
  }
};

TEST_P(CutShortStory, IsTakenUpByTheNextRebuild) {
  const std::vector<std::string> names = {"s1", "s2", "s3"};
  Start(names);
  Create("a", 2, GetParam());
  Create("b", 2, 3);
  const size_t shards = Lines().size();
  uint64_t generation = 0;
  SessionId session = 0;
  bool whole = false;
  int cut = 0;
  for (; !whole; ++cut) {
    SCOPED_TRACE(absl::StrCat("killed behind ", cut, " transactions"));
    fresh_.Tick(1000);
    LoseAgain();
    // One comes late, to what the first coordinator has left.
    const std::string& late = names[static_cast<size_t>(cut) % names.size()];
    for (const std::string& name : names) {
      if (name != late) Ask(name).IgnoreError();
    }
    if (cut % 2 == 0) Ask(late).IgnoreError();
    v1::RebuildMetadataRequest request;
    request.set_without_missing(true);
    const CallerToken caller = fresh_.Send(request);
    ExpectNoTableMissing();
    for (int i = 0; i < cut && fresh_.StoreWaits(); ++i) {
      fresh_.StepStore();
      ExpectNoTableMissing();
    }
    whole = fresh_.replies.count(caller) > 0;
    if (whole) {
      EXPECT_TRUE(fresh_.replies.at(caller).ok()) << fresh_.replies.at(caller).status();
    }
    fresh_.Start();
    Settle();
    ExpectNoTableMissing();
    if (fresh_.core->state().servers().empty()) {
      Ask("s1").IgnoreError();
      EXPECT_STATUS(Rebuild(), kFailedPrecondition, "not asked yet: server s2, s3");
      EXPECT_STATUS(fresh_.OpenSession("t"), kUnavailable, "knows no server");
      if (cut > 0) {
        EXPECT_STATUS(fresh_.Register("n1"), kUnavailable, "are not rebuilt yet");
      }
    }

    for (const std::string& name : names) Ask(name).IgnoreError();
    const auto rest = Rebuild();
    ASSERT_TRUE(rest.ok() || (whole && cut % 2 == 0)) << rest.status();
    Come(names);
    fleet_.Run(15'000);
    EXPECT_EQ(NewLines().size(), shards);
    EXPECT_THAT(NewLines(), Each(Not(HasSubstr("waits"))));
    EXPECT_EQ(DoubtText(), "");
    EXPECT_THAT(fresh_.core->state().Orphans(1), IsEmpty());
    const v1::ClusterMap map = fresh_.core->Map(0);
    EXPECT_EQ(map.tables_size(), 2);
    EXPECT_EQ(map.servers_size(), 3);
    for (const v1::ShardRecord& r : map.shards()) ASSERT_EQ(r.members_size(), 2) << Line(r);
    EXPECT_GT(fresh_.core->state().generation(), generation);
    generation = fresh_.core->state().generation();
    const auto opened = fresh_.OpenSession("t");
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_GT(opened->session(), session);
    session = opened->session();
  }
  EXPECT_GT(cut, 1) << "no transaction was cut off";
}

// So many shards that the last transaction begins with the records of tables, or of servers.
INSTANTIATE_TEST_SUITE_P(Shards, CutShortStory, testing::Values(20, 102, 105, 106, 107));

TEST_F(RebuildStory, NoGenerationIsGivenTwiceEvenIfNobodyRemembersIt) {
  Start({"s1", "s2"});
  Create("t", 2, 1);
  const auto numbers = [&](const std::string& name, bool without) {
    Ask(name).IgnoreError();
    const auto rebuilt = Rebuild(without);
    EXPECT_TRUE(rebuilt.ok()) << rebuilt.status();
    return rebuilt.ok() ? rebuilt->generation() : 0;
  };
  fresh_.Tick(0);
  const uint64_t first = numbers("s1", /*without=*/true);
  const auto session = fresh_.OpenSession("one");
  ASSERT_TRUE(session.ok()) << session.status();
  const uint64_t revision = fresh_.core->state().plan_revision();
  Fleet::Server& s1 = fleet_.at("s1");
  const auto hears = [&](Fleet::Server* server) {
    const v1::ClusterMap map = fresh_.core->Map(0);
    for (const v1::ShardRecord& r : map.shards()) server->records[r.shard()] = r;
  };
  hears(&s1);
  ASSERT_GT(s1.records.begin()->second.epoch(), kGeneration);

  LoseAgain();
  fresh_.Tick(1000);
  const uint64_t second = numbers("s2", /*without=*/true);  // it has not heard of the first one
  EXPECT_GT(second, first);
  EXPECT_GT(fresh_.core->state().plan_revision(), revision);
  const auto other = fresh_.OpenSession("other");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_GT(other->session(), session->session());
  const v1::ClusterMap map = fresh_.core->Map(0);
  for (const v1::ShardRecord& r : map.shards()) {
    EXPECT_GT(r.epoch(), s1.records.at(r.shard()).epoch());
  }
  EXPECT_EQ(numbers("s1", /*without=*/false), second) << "it is adopted as a late one";

  hears(&s1);
  LoseAgain();
  fresh_.core->SetUnixMs(1000);  // the clock was set back
  EXPECT_EQ(numbers("s1", /*without=*/true), second + 1);
}

TEST_F(RebuildStory, GroupsOfTrainersBeginAboveTheStepsOfTheShards) {
  Start({"s1"});
  auto request = Request("t", 1, 1);
  request.mutable_spec()->set_consistency(v1::CONSISTENCY_SYNC);
  ASSERT_TRUE(rig_.Create(request).ok());
  fleet_.Run(300);
  step_ = 500;
  Ask("s1").IgnoreError();
  const auto rebuilt = Rebuild();
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  EXPECT_EQ(rebuilt->tables(0).committed_step(), 500u);
  const v1::GivenOut given = BuildGivenOut(fresh_.core->state(), fleet_.at("s1").id);
  ASSERT_EQ(given.steps_size(), 1);
  EXPECT_EQ(given.steps(0).step(), 500u);
  EXPECT_GE(given.session(), ClusterState::FirstSession(1) - 1);
  const auto session = fresh_.OpenSession("trainer");
  ASSERT_TRUE(session.ok()) << session.status();
  v1::TrainRequest join;
  join.set_kind(v1::TrainRequest::JOIN);
  join.set_group("g");
  join.set_name("trainer");
  join.set_session(session->session());
  join.set_incarnation(session->incarnation());
  join.set_wait_ms(30'000);
  const CallerToken caller = fresh_.Send(join);
  for (int i = 0; i < 100 && fresh_.replies.count(caller) == 0; ++i) fresh_.Tick(100);
  ASSERT_EQ(fresh_.replies.count(caller), 1u);
  const absl::StatusOr<Reply>& joined = fresh_.replies.at(caller);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(std::get<v1::TrainReply>(*joined).ended_step(), 500u) << "it begins with step 501";
}

TEST_F(RebuildStory, AnOldBackupGivesTheNamesAndTheServersTheRest) {
  Start({"s1", "s2"});
  const auto before = rig_.OpenSession("trainer");
  ASSERT_TRUE(before.ok());
  const auto all = rig_.store.Range(keys::kRoot, PrefixLimit(keys::kRoot));
  const std::string backup = SerializeBackup(all.kvs);
  // What happens after the backup: a table, and a session that the backup does not know.
  Create("t", 2, 1);
  const auto after = rig_.OpenSession("later");
  ASSERT_TRUE(after.ok());

  const auto records = ParseBackup(backup);
  ASSERT_TRUE(records.ok()) << records.status();
  fresh_.store = MapMetaStore();
  TwinStore store(&fresh_.store);
  EXPECT_TRUE(*RestoreBackup(*records, &store));
  EXPECT_FALSE(*RestoreBackup(*records, &store)) << "it holds metadata by now";
  fresh_.Start();
  Settle();
  EXPECT_EQ(fresh_.core->state().cluster_id(), rig_.core->state().cluster_id());
  EXPECT_THAT(fresh_.core->Map(0).servers(), IsEmpty());
  EXPECT_STATUS(fresh_.Register("n1"), kUnavailable, "are not rebuilt yet");
  EXPECT_STATUS(fresh_.OpenSession("x"), kUnavailable, "knows no server");
  Ask("s1").IgnoreError();
  Ask("s2").IgnoreError();
  const auto rebuilt = Rebuild();
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  Come({"s1", "s2"});
  fleet_.Run(1000);
  EXPECT_THAT(NewLines(), ElementsAre(AllOf(HasSubstr("s1"), HasSubstr("s2"))));
  const auto again = fresh_.OpenSession("trainer");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->session(), before->session()) << "its pushes are recognised";
  EXPECT_GT(again->incarnation(), after->incarnation());
  EXPECT_GT(fresh_.OpenSession("other")->session(), after->session());

  std::string damaged = backup;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_STATUS(ParseBackup(damaged), kDataLoss, "damaged");
  EXPECT_STATUS(ParseBackup(backup.substr(0, backup.size() - 1)), kDataLoss, "damaged");
}

TEST_F(RebuildStory, IdsBeyondTheLimitAreRefused) {
  Start({"s1"});
  Create("t", 1, 1);
  fleet_.at("s1").records.begin()->second.add_members()->set_server(uint64_t{1} << 48);
  Ask("s1").IgnoreError();
  EXPECT_STATUS(Rebuild(), kFailedPrecondition, "names an id beyond the limit");
}

TEST(StrangersTest, ACopyThatAsksNoMoreIsForgotten) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  ClusterState state;
  v1::RegisterServerRequest original;
  original.set_cluster_id("c");
  original.set_server(1);
  original.set_run(1);
  original.set_address("a:1");
  v1::RegisterServerRequest copy = original;
  copy.set_run(2);
  copy.set_address("b:1");
  Strangers strangers;
  strangers.Note(1 * kSecondNs, original);
  strangers.Note(2 * kSecondNs, copy);
  strangers.Note(3 * kSecondNs, original);
  ASSERT_THAT(strangers.Waiting(3 * kSecondNs, state), SizeIs(1));
  EXPECT_EQ(strangers.Waiting(3 * kSecondNs, state)[0]->rival, "b:1");
  strangers.Note(13 * kSecondNs, original);
  ASSERT_THAT(strangers.Waiting(13 * kSecondNs, state), SizeIs(1));
  EXPECT_EQ(strangers.Waiting(13 * kSecondNs, state)[0]->rival, "");
}

}  // namespace rebuild_story_test
}  // namespace hotbed
