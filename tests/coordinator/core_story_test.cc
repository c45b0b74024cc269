// Stories of the coordinator's core, told one event after another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/table_spec.h"
#include "tests/coordinator/core_rig.h"

namespace hotbed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "0: e1 s1.1 active base s1.1" for each shard: index, epoch, primary server.incarnation, state,
// base.
std::vector<std::string> Shards(const v1::ClusterMap& map) {
  std::vector<std::string> out;
  for (const v1::ShardRecord& r : map.shards()) {
    std::string line = absl::StrCat(ShardId::FromPacked(r.shard()).index, ": e", r.epoch(), " s",
                                    r.primary().server(), ".", r.primary().incarnation());
    EXPECT_EQ(r.members_size(), 1);
    EXPECT_EQ(r.members(0).incarnation(), r.primary().incarnation());
    if (r.active()) line += " active";
    for (const v1::Member& m : r.base()) {
      absl::StrAppend(&line, " base s", m.server(), ".", m.incarnation());
    }
    out.push_back(line);
  }
  return out;
}

#define EXPECT_STATUS(expression, expected_code, text)                     \
  do {                                                                     \
    const absl::Status status_ = (expression).status();                    \
    EXPECT_EQ(status_.code(), absl::StatusCode::expected_code) << status_; \
    EXPECT_THAT(std::string(status_.message()), HasSubstr(text));          \
  } while (false)

class CoreStory : public ::testing::Test {
 protected:
  CoreStory() { rig_.Pump(); }
  v1::ClusterMap Map(uint64_t known = 0) { return rig_.core->Map(known); }
  std::vector<v1::ShardRecord> Records() {
    const v1::ClusterMap map = Map();
    return {map.shards().begin(), map.shards().end()};
  }
  void Activate(ServerId id, Incarnation incarnation) {
    auto reply = rig_.Call<v1::ActivateShardsReply>(CoreRig::ActivationOf(Map(), id, incarnation));
    ASSERT_TRUE(reply.ok()) << reply.status();
    for (const v1::ShardRecord& r : reply->records()) EXPECT_TRUE(r.active());
  }
  CoreRig rig_;
};

TEST_F(CoreStory, AnEmptyStoreBecomesACluster) {
  EXPECT_TRUE(rig_.core->serving());
  EXPECT_EQ(Map().cluster_id(), "cluster 1");
  rig_.Start();
  rig_.Pump();
  EXPECT_EQ(Map().cluster_id(), "cluster 1") << "the id stays";
}

TEST_F(CoreStory, ATableFromCreationToDrop) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  auto created = rig_.Create(CoreRig::Table("clicks"));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_TRUE(created->created());
  EXPECT_EQ(created->spec().id(), 1u);
  EXPECT_EQ(created->spec().seed(), DefaultTableSeed("clicks"));
  EXPECT_EQ(created->shards_size(), 8);
  for (const v1::ShardRecord& r : created->shards()) EXPECT_GT(r.revision(), 0u);
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e1 s1.1", "1: e1 s1.1", "2: e1 s1.1", "3: e1 s1.1",
                                         "4: e1 s2.1", "5: e1 s2.1", "6: e1 s2.1", "7: e1 s2.1"));
  EXPECT_EQ(Map().servers(0).shards(), 4u);

  auto dropped = rig_.Drop("clicks");
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->id(), 1u);
  EXPECT_EQ(dropped->shards(), 8u);
  EXPECT_EQ(Map().tables_size(), 0);
  EXPECT_EQ(Map().shards_size(), 0);
  EXPECT_TRUE(rig_.store.Range(keys::kShards, PrefixLimit(keys::kShards)).kvs.empty());
  EXPECT_STATUS(rig_.Drop("clicks"), kNotFound, "\"clicks\"");
  EXPECT_EQ(rig_.Create(CoreRig::Table("clicks"))->spec().id(), 2u) << "ids are never reused";
}

TEST_F(CoreStory, AServerThatComesBackGetsItsShardsAtTheNextEpoch) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e1 s1.1"));
  Activate(1, 1);
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e1 s1.1 active base s1.1"));

  // kill -9 and a quick restart: its lease still holds.
  auto again = rig_.Register("s1", 1, "cluster 1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->server(), 1u);
  EXPECT_EQ(again->incarnation(), 2u);
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e2 s1.2 base s1.1"));
  // And once more before it could activate: base still names who may have acknowledged.
  ASSERT_TRUE(rig_.Register("s1", 1, "cluster 1").ok());
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e3 s1.3 base s1.1"));
  Activate(1, 3);
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e3 s1.3 active base s1.3"));
}

TEST_F(CoreStory, AnEndedLeaseShowsTheServerAsDownAndMovesNothing) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  Activate(1, 1);
  rig_.Tick(1000);
  EXPECT_TRUE(rig_.Heartbeat(1, 1)->lease_held());
  for (int i = 0; i < 29; ++i) rig_.Tick(100);
  rig_.Pump();
  EXPECT_TRUE(Map().servers(0).live()) << "2.9 of 3 s";
  rig_.Tick(100);
  rig_.Pump();
  EXPECT_FALSE(Map().servers(0).live());
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e1 s1.1 active base s1.1"));
  EXPECT_FALSE(rig_.Heartbeat(1, 1)->lease_held()) << "it must register again";
  EXPECT_STATUS(rig_.Create(CoreRig::Table("other")), kFailedPrecondition,
                "no shard server is live");

  ASSERT_TRUE(rig_.Register("s1", 1, "cluster 1").ok());
  EXPECT_TRUE(Map().servers(0).live());
  EXPECT_THAT(Shards(Map()), ElementsAre("0: e2 s1.2 base s1.1"));
}

TEST_F(CoreStory, ACoordinatorThatStartsGivesEveryLeaseAFullTerm) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  for (int i = 0; i < 29; ++i) rig_.Tick(100);
  rig_.Start();
  rig_.Pump();
  for (int i = 0; i < 29; ++i) rig_.Tick(100);
  rig_.Pump();
  EXPECT_TRUE(Map().servers(0).live());
  EXPECT_TRUE(rig_.Heartbeat(1, 1)->lease_held()) << "the process is still the same";
}

TEST_F(CoreStory, ACoordinatorThatWasHeldUpBlamesNobody) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  rig_.Tick(100);
  rig_.Tick(60000);  // SIGSTOP, say
  rig_.Pump();
  EXPECT_TRUE(Map().servers(0).live());
  for (int i = 0; i < 30; ++i) rig_.Tick(100);
  rig_.Pump();
  EXPECT_FALSE(Map().servers(0).live());
}

TEST_F(CoreStory, ActivationNeedsEpochAndPrimary) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  const v1::ShardRecord record = Map().shards(0);
  const auto attempt = [&](ServerId server, Incarnation incarnation, Epoch epoch) {
    v1::ActivateShardsRequest request;
    request.set_server(server);
    request.set_incarnation(incarnation);
    request.add_shards()->set_shard(record.shard());
    request.mutable_shards(0)->set_epoch(epoch);
    request.add_shards()->set_shard(ShardId{99, 0}.packed());  // of no table
    auto reply = rig_.Call<v1::ActivateShardsReply>(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->records_size(), 1);
    return reply->records(0);
  };
  EXPECT_FALSE(attempt(1, 1, 2).active()) << "an epoch of the future";
  EXPECT_FALSE(attempt(1, 1, 0).active());
  EXPECT_FALSE(attempt(2, 1, 1).active()) << "another server";
  EXPECT_FALSE(attempt(1, 2, 1).active()) << "another process";
  EXPECT_TRUE(attempt(1, 1, 1).active());
  const uint64_t revision = rig_.store.revision;
  EXPECT_TRUE(attempt(1, 1, 1).active());
  EXPECT_EQ(rig_.store.revision, revision) << "the second time changes nothing";
}

TEST_F(CoreStory, ManyShardsAreHandedOverInBatches) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::CreateTableRequest request = CoreRig::Table("wide");
  request.set_shards(1000);
  auto created = rig_.Create(request);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->shards_size(), 1000);
  Activate(1, 1);
  ASSERT_TRUE(rig_.Register("s1", 1, "cluster 1").ok());
  for (const v1::ShardRecord& r : Records()) {
    EXPECT_EQ(r.epoch(), 2u);
    EXPECT_FALSE(r.active());
  }
  Activate(1, 2);
  for (const v1::ShardRecord& r : Records()) EXPECT_TRUE(r.active());
}

TEST_F(CoreStory, WhoMayRegister) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  EXPECT_STATUS(rig_.Register("s2", 1, "cluster x"), kFailedPrecondition, "cluster x");
  EXPECT_STATUS(rig_.Register("s2", 1, "cluster x"), kFailedPrecondition, "cluster 1");
  EXPECT_STATUS(rig_.Register("s2", 7, "cluster 1"), kFailedPrecondition, "server 7");
  EXPECT_STATUS(rig_.Register("a b"), kInvalidArgument, "name is \"a b\"");
  EXPECT_STATUS(rig_.Register(""), kInvalidArgument, "name");
  v1::RegisterServerRequest request;
  request.set_name("s2");
  for (const char* address : {"", "nowhere", ":1", "host:0", "host:x", "host:70000"}) {
    request.set_address(address);
    EXPECT_STATUS(rig_.Call<v1::RegisterServerReply>(request), kInvalidArgument, "address");
  }
  request.set_address("elsewhere:1");
  request.set_name("s1");
  EXPECT_STATUS(rig_.Call<v1::RegisterServerReply>(request), kAlreadyExists,
                "belongs to server 1 \"s1\" at s1:1 (live");
  ASSERT_TRUE(rig_.Register("s2").ok());
  EXPECT_STATUS(rig_.Register("s1", 2, "cluster 1"), kAlreadyExists, "server 1 \"s1\"");
  EXPECT_TRUE(rig_.Register("s3", 2, "cluster 1").ok()) << "a server may be renamed";
}

TEST_F(CoreStory, ANameIsTakenOverFromAServerThatHoldsNothing) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  // It died before it kept its id, and comes back on the same port with an empty data directory.
  auto again = rig_.Register("s1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->server(), 1u);
  EXPECT_EQ(again->incarnation(), 2u);
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t")).ok());
  EXPECT_STATUS(rig_.Register("s1"), kAlreadyExists, "8 shards");
}

TEST_F(CoreStory, ACreationCutShortLeavesNothing) {
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

TEST_F(CoreStory, IfNotExistsTellsTheFieldThatDiffers) {
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

TEST_F(CoreStory, ADryRunWritesNothing) {
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

TEST_F(CoreStory, BadSpecsAreRefused) {
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

TEST_F(CoreStory, LimitsAreTold) {
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

TEST_F(CoreStory, SessionsKeepTheirIdAndGrowTheirIncarnation) {
  EXPECT_EQ(rig_.OpenSession("job/0")->session(), 1u);
  EXPECT_EQ(rig_.OpenSession("job/1")->session(), 2u);
  rig_.Start();
  rig_.Pump();
  auto again = rig_.OpenSession("job/0");
  EXPECT_EQ(again->session(), 1u);
  EXPECT_EQ(again->incarnation(), 2u);
  EXPECT_EQ(again->cluster_id(), "cluster 1");
  EXPECT_STATUS(rig_.OpenSession(""), kInvalidArgument, "session name");
  EXPECT_STATUS(rig_.OpenSession("a\nb"), kInvalidArgument, "session name");
}

TEST_F(CoreStory, MapsCarryWhatChanged) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("a", 10)).ok());
  const uint64_t known = Map().plan_revision();
  EXPECT_TRUE(Map(known).delta());
  EXPECT_EQ(Map(known).shards_size(), 0);
  ASSERT_TRUE(rig_.Create(CoreRig::Table("b", 10)).ok());
  ASSERT_TRUE(rig_.Drop("a").ok());
  const v1::ClusterMap delta = Map(known);
  EXPECT_TRUE(delta.delta());
  EXPECT_EQ(delta.tables_size(), 1);
  EXPECT_EQ(delta.tables(0).name(), "b");
  EXPECT_EQ(delta.shards_size(), 1);
  EXPECT_THAT(delta.tables_dropped(), ElementsAre(1));
  EXPECT_EQ(delta.servers_size(), 0);
  // Of the future, as after a restore of an older store: everything.
  EXPECT_FALSE(Map(delta.plan_revision() + 1).delta());
  // A restarted coordinator does not know what changed when, but what there is.
  rig_.Start();
  rig_.Pump();
  EXPECT_FALSE(Map(known).delta());
  EXPECT_FALSE(Map(delta.plan_revision()).delta());
  EXPECT_THAT(Map(known).tables_dropped(), ElementsAre(1));
}

TEST_F(CoreStory, AServerIsToldOfItsOwnShards) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  const uint64_t known = Map().plan_revision();
  ASSERT_TRUE(rig_.Create(CoreRig::Table("a")).ok());
  for (const uint64_t from : {uint64_t{0}, known}) {
    auto beat = rig_.Heartbeat(2, 1, from);
    ASSERT_TRUE(beat.ok());
    EXPECT_EQ(beat->map().delta(), from != 0);
    EXPECT_EQ(beat->map().tables_size(), 1);
    EXPECT_EQ(beat->map().shards_size(), 4);
    for (const v1::ShardRecord& r : beat->map().shards()) EXPECT_EQ(r.primary().server(), 2u);
  }
  const uint64_t now = Map().plan_revision();
  ASSERT_TRUE(rig_.Register("s1", 1, "cluster 1").ok());
  EXPECT_EQ(rig_.Heartbeat(2, 1, now)->map().shards_size(), 0)
      << "s1's shards are not its business";
  EXPECT_FALSE(rig_.Heartbeat(1, 1)->lease_held()) << "an overtaken process";
  EXPECT_FALSE(rig_.Heartbeat(9, 1)->lease_held());
}

TEST_F(CoreStory, ADrainingServerGetsNoNewShards) {
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

TEST_F(CoreStory, ARivalsWriteIsNotOverwritten) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  const CallerToken caller = rig_.Send(CoreRig::Table("t", 10));
  // Someone else gives out the id that the transaction was made for.
  rig_.store.Txn({}, {{Op::Kind::kPut, keys::kTableCounter, "41", 0}});
  rig_.Pump();
  ASSERT_TRUE(rig_.replies.at(caller).ok()) << rig_.replies.at(caller).status();
  EXPECT_EQ(std::get<v1::CreateTableReply>(*rig_.replies.at(caller)).spec().id(), 42u);
}

TEST_F(CoreStory, AnOvertakenCoordinatorStopsForGood) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  const CallerToken caller = rig_.Send(CoreRig::Table("t", 10));
  const CallerToken queued = rig_.Send(CoreRig::Table("u", 10));
  rig_.store.Txn({}, {{Op::Kind::kPut, keys::kLeaderKey, "another", 0}});
  rig_.Pump();
  EXPECT_EQ(rig_.core->phase(), Core::Phase::kOvertaken);
  EXPECT_STATUS(rig_.replies.at(caller), kUnavailable, "overtaken");
  EXPECT_STATUS(rig_.replies.at(queued), kUnavailable, "another");
  EXPECT_STATUS(rig_.OpenSession("x"), kUnavailable, "overtaken");
  EXPECT_EQ(rig_.store.Range(keys::kTables, PrefixLimit(keys::kTables)).kvs.size(), 0u);
}

TEST_F(CoreStory, AnUnknownOutcomeIsToldAndReadAgain) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  const CallerToken caller = rig_.Send(CoreRig::Table("t", 10));
  rig_.StepStore();
  rig_.StepStore(CoreRig::Outcome::kWrittenButLost);
  EXPECT_STATUS(rig_.replies.at(caller), kUnavailable, "may or may not");
  EXPECT_STATUS(rig_.OpenSession("x"), kUnavailable, "cannot be read");
  rig_.Tick(200);
  rig_.StepStore(CoreRig::Outcome::kLost);
  EXPECT_STATUS(rig_.OpenSession("x"), kUnavailable, "cannot be read");
  rig_.Tick(200);
  rig_.Pump();
  EXPECT_EQ(Map().tables_size(), 1) << "it had been written";
}

TEST_F(CoreStory, RequestsBeyondTheQueueAreRefused) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::OpenSessionRequest request;
  request.set_name("a");
  for (int i = 0; i < 8193; ++i) rig_.Send(request);  // one runs, 8,192 wait
  const CallerToken last = rig_.Send(request);
  EXPECT_STATUS(rig_.replies.at(last), kResourceExhausted, "limit is 8192");
  rig_.Pump();
  EXPECT_EQ(rig_.OpenSession("a")->incarnation(), 8194u);
}

TEST_F(CoreStory, DroppedNamesAreRememberedUpToTheLimit) {
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

TEST(CoreStart, RefusesAnotherFormatAndDamage) {
  CoreRig rig;
  rig.store.Txn({}, {{Op::Kind::kPut, keys::kFormatKey, "9", 0},
                     {Op::Kind::kPut, keys::kClusterKey, "old", 0}});
  rig.Pump();
  EXPECT_EQ(rig.core->phase(), Core::Phase::kFailed);
  EXPECT_THAT(std::string(rig.core->trouble().message()), HasSubstr("format 9"));

  CoreRig damaged;
  damaged.store.Txn({}, {{Op::Kind::kPut, keys::Shard({1, 2}), "\xff\xff", 0}});
  damaged.Pump();
  EXPECT_EQ(damaged.core->phase(), Core::Phase::kFailed);
  EXPECT_THAT(std::string(damaged.core->trouble().message()),
              HasSubstr("/hotbed/shards/0000000001/0002"));
}

TEST(CoreStart, WaitsForAStoreThatIsAway) {
  CoreRig rig;
  rig.StepStore(CoreRig::Outcome::kLost);
  EXPECT_FALSE(rig.core->serving());
  rig.Tick(10);
  rig.Tick(200);
  rig.Pump();
  EXPECT_TRUE(rig.core->serving());
}

}  // namespace
}  // namespace hotbed
