// Stories of servers, leases, sessions, maps and rivals, told one event after another.
#include "tests/coordinator/core_story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace hotbed {
namespace core_story_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ServerStory = CoreStory;

TEST_F(ServerStory, AnEmptyStoreBecomesACluster) {
  EXPECT_TRUE(rig_.core->serving());
  EXPECT_EQ(Map().cluster_id(), "cluster 1");
  rig_.Start();
  rig_.Pump();
  EXPECT_EQ(Map().cluster_id(), "cluster 1") << "the id stays";
}

TEST_F(ServerStory, AServerThatComesBackGetsItsShardsAtTheNextEpoch) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t", 10)).ok());
  EXPECT_THAT(ShardLines(Map()), ElementsAre("0: e1 s1.1"));
  Activate(1, 1);
  EXPECT_THAT(ShardLines(Map()), ElementsAre("0: e1 s1.1 active base s1.1"));

  // kill -9 and a quick restart: its lease still holds.
  auto again = rig_.Register("s1", 1, "cluster 1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->server(), 1u);
  EXPECT_EQ(again->incarnation(), 2u);
  EXPECT_THAT(ShardLines(Map()), ElementsAre("0: e2 s1.2 base s1.1"));
  // And once more before it could activate: base still names who may have acknowledged.
  ASSERT_TRUE(rig_.Register("s1", 1, "cluster 1").ok());
  EXPECT_THAT(ShardLines(Map()), ElementsAre("0: e3 s1.3 base s1.1"));
  Activate(1, 3);
  EXPECT_THAT(ShardLines(Map()), ElementsAre("0: e3 s1.3 active base s1.3"));
}

TEST_F(ServerStory, AnEndedLeaseShowsTheServerAsDownAndMovesNothing) {
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
  EXPECT_THAT(ShardLines(Map()), ElementsAre("0: e1 s1.1 active base s1.1"));
  EXPECT_FALSE(rig_.Heartbeat(1, 1)->lease_held()) << "it must register again";
  EXPECT_STATUS(rig_.Create(CoreRig::Table("other")), kFailedPrecondition,
                "no shard server is live");

  ASSERT_TRUE(rig_.Register("s1", 1, "cluster 1").ok());
  EXPECT_TRUE(Map().servers(0).live());
  EXPECT_THAT(ShardLines(Map()), ElementsAre("0: e2 s1.2 base s1.1"));
}

TEST_F(ServerStory, ACoordinatorThatStartsGivesEveryLeaseAFullTerm) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  for (int i = 0; i < 29; ++i) rig_.Tick(100);
  rig_.Start();
  rig_.Pump();
  for (int i = 0; i < 29; ++i) rig_.Tick(100);
  rig_.Pump();
  EXPECT_TRUE(Map().servers(0).live());
  EXPECT_TRUE(rig_.Heartbeat(1, 1)->lease_held()) << "the process is still the same";
}

TEST_F(ServerStory, ACoordinatorThatWasHeldUpBlamesNobody) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  rig_.Tick(100);
  rig_.Tick(60000);  // SIGSTOP, say
  rig_.Pump();
  EXPECT_TRUE(Map().servers(0).live());
  for (int i = 0; i < 30; ++i) rig_.Tick(100);
  rig_.Pump();
  EXPECT_FALSE(Map().servers(0).live());
}

TEST_F(ServerStory, ActivationNeedsEpochAndPrimary) {
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

TEST_F(ServerStory, ManyShardsAreHandedOverInBatches) {
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

TEST_F(ServerStory, WhoMayRegister) {
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
  request.set_failure_domain("rack\n1");
  EXPECT_STATUS(rig_.Call<v1::RegisterServerReply>(request), kInvalidArgument, "rack\\n1");
  request.clear_failure_domain();
  request.set_name("s1");
  EXPECT_STATUS(rig_.Call<v1::RegisterServerReply>(request), kAlreadyExists,
                "belongs to server 1 \"s1\" at s1:1 (live");
  ASSERT_TRUE(rig_.Register("s2").ok());
  EXPECT_STATUS(rig_.Register("s1", 2, "cluster 1"), kAlreadyExists, "server 1 \"s1\"");
  EXPECT_TRUE(rig_.Register("s3", 2, "cluster 1").ok()) << "a server may be renamed";
}

TEST_F(ServerStory, ANameIsTakenOverFromAServerThatHoldsNothing) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  // It died before it kept its id, and comes back on the same port with an empty data directory.
  auto again = rig_.Register("s1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->server(), 1u);
  EXPECT_EQ(again->incarnation(), 2u);
  ASSERT_TRUE(rig_.Create(CoreRig::Table("t")).ok());
  EXPECT_STATUS(rig_.Register("s1"), kAlreadyExists, "8 shards");
}

TEST_F(ServerStory, SessionsKeepTheirIdAndGrowTheirIncarnation) {
  EXPECT_STATUS(rig_.OpenSession("job/0"), kUnavailable, "knows no server");
  ASSERT_TRUE(rig_.Register("s1").ok());
  EXPECT_EQ(rig_.OpenSession("job/0")->session(), 1u);
  EXPECT_EQ(rig_.OpenSession("job/1")->session(), 2u);
  rig_.Start();
  rig_.Pump();
  auto again = rig_.OpenSession("job/0");
  EXPECT_EQ(again->session(), 1u);
  EXPECT_EQ(again->incarnation(), 3u) << "above those of all names";
  EXPECT_EQ(again->cluster_id(), "cluster 1");
  auto third = rig_.OpenSession("job/2");
  EXPECT_EQ(third->session(), 4u);
  EXPECT_EQ(third->incarnation(), 4u);
  EXPECT_STATUS(rig_.OpenSession(""), kInvalidArgument, "session name");
  EXPECT_STATUS(rig_.OpenSession("a\nb"), kInvalidArgument, "session name");
}

// As when etcd has smaller limits than ours.
TEST_F(ServerStory, ATransactionThatTheStoreRefusesIsToldToItsCallerAlone) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  const CallerToken refused = rig_.Send(CoreRig::Table("t"));
  v1::OpenSessionRequest session;
  session.set_name("job/0");
  const CallerToken waits = rig_.Send(session);
  rig_.StepStore(CoreRig::Outcome::kRefused);
  ASSERT_EQ(rig_.replies.count(refused), 1u);
  EXPECT_STATUS(rig_.replies.at(refused), kInvalidArgument, "too large (planted)");
  EXPECT_EQ(rig_.replies.count(waits), 0u);
  EXPECT_TRUE(rig_.core->serving()) << "heartbeats are answered";
  rig_.Pump();
  ASSERT_EQ(rig_.replies.count(waits), 1u);
  EXPECT_TRUE(rig_.replies.at(waits).ok()) << rig_.replies.at(waits).status();
}

TEST_F(ServerStory, MapsCarryWhatChanged) {
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
  // A revision of the future, as after a restore of an older store, gives the whole map.
  EXPECT_FALSE(Map(delta.plan_revision() + 1).delta());
  // A restarted coordinator does not know what changed when, but what there is.
  rig_.Start();
  rig_.Pump();
  EXPECT_FALSE(Map(known).delta());
  EXPECT_FALSE(Map(delta.plan_revision()).delta());
  EXPECT_THAT(Map(known).tables_dropped(), ElementsAre(1));
}

TEST_F(ServerStory, AServerIsToldOfItsOwnShards) {
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

TEST_F(ServerStory, AServersWholeMapNamesEveryTable) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  ASSERT_TRUE(rig_.Create(CoreRig::Table("a")).ok());
  ASSERT_TRUE(rig_.Register("s2").ok());
  auto beat = rig_.Heartbeat(2, 1, 0);
  ASSERT_TRUE(beat.ok());
  EXPECT_FALSE(beat->map().delta());
  EXPECT_EQ(beat->map().shards_size(), 0) << "all of them are at s1";
  EXPECT_EQ(beat->map().tables_size(), 0) << "it needs no spec";
  EXPECT_THAT(beat->map().tables_elsewhere(), ElementsAre(1)) << "what is missing is dropped";
  beat = rig_.Heartbeat(1, 1, 0);
  ASSERT_TRUE(beat.ok());
  ASSERT_EQ(beat->map().tables_size(), 1);
  EXPECT_EQ(beat->map().tables(0).name(), "a");
  EXPECT_EQ(beat->map().tables_elsewhere_size(), 0);
}

TEST_F(ServerStory, ARivalsWriteIsNotOverwritten) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  const CallerToken caller = rig_.Send(CoreRig::Table("t", 10));
  // Someone else gives out the id that the transaction was made for.
  rig_.store.Txn({}, {{Op::Kind::kPut, keys::kTableCounter, "41"}});
  rig_.Pump();
  ASSERT_TRUE(rig_.replies.at(caller).ok()) << rig_.replies.at(caller).status();
  EXPECT_EQ(std::get<v1::CreateTableReply>(*rig_.replies.at(caller)).spec().id(), 42u);
}

// The leader before writes a table, whose shards are in the store already, after the new one has
// read the store and before it has written the leader's record.
TEST_F(ServerStory, ATableThatCameAfterTheReadIsNotTakenForLeftovers) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  rig_.Send(CoreRig::Table("t", 10));
  const auto writes_table = [&] {
    const std::vector<Op>& ops = rig_.commit_waiting->ops();
    return std::any_of(ops.begin(), ops.end(), [](const Op& op) {
      return op.key.compare(0, std::string(keys::kTables).size(), keys::kTables) == 0;
    });
  };
  while (!writes_table()) {
    rig_.StepStore();
    ASSERT_TRUE(rig_.commit_waiting.has_value());
  }
  const Transaction late = *rig_.commit_waiting;
  rig_.Start();
  rig_.StepStore();  // reads
  ASSERT_TRUE(rig_.store.Txn(late.compares(), late.ops()).succeeded);
  rig_.Pump();
  const v1::ClusterMap map = Map();
  ASSERT_EQ(map.tables_size(), 1);
  EXPECT_EQ(map.shards_size(), 1);
}

TEST_F(ServerStory, AnOvertakenCoordinatorStopsForGood) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  const CallerToken caller = rig_.Send(CoreRig::Table("t", 10));
  const CallerToken queued = rig_.Send(CoreRig::Table("u", 10));
  rig_.store.Txn({}, {{Op::Kind::kPut, keys::kLeaderKey, "another"}});
  rig_.Pump();
  EXPECT_EQ(rig_.core->phase(), Core::Phase::kOvertaken);
  EXPECT_STATUS(rig_.replies.at(caller), kUnavailable, "overtaken");
  EXPECT_STATUS(rig_.replies.at(queued), kUnavailable, "another");
  EXPECT_STATUS(rig_.OpenSession("x"), kUnavailable, "overtaken");
  EXPECT_EQ(rig_.store.Range(keys::kTables, PrefixLimit(keys::kTables)).kvs.size(), 0u);
}

TEST_F(ServerStory, AnUnknownOutcomeIsToldAndReadAgain) {
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

TEST_F(ServerStory, RequestsBeyondTheQueueAreRefused) {
  ASSERT_TRUE(rig_.Register("s1").ok());
  v1::OpenSessionRequest request;
  request.set_name("a");
  for (int i = 0; i < 8193; ++i) rig_.Send(request);  // one runs, 8,192 wait
  const CallerToken last = rig_.Send(request);
  EXPECT_STATUS(rig_.replies.at(last), kResourceExhausted, "limit is 8192");
  rig_.Pump();
  EXPECT_EQ(rig_.OpenSession("a")->incarnation(), 8194u);
}

TEST(CoreStart, RefusesAnotherFormatAndDamage) {
  CoreRig rig;
  rig.store.Txn(
      {}, {{Op::Kind::kPut, keys::kFormatKey, "9"}, {Op::Kind::kPut, keys::kClusterKey, "old"}});
  rig.Pump();
  EXPECT_EQ(rig.core->phase(), Core::Phase::kFailed);
  EXPECT_THAT(std::string(rig.core->trouble().message()), HasSubstr("format 9"));

  CoreRig damaged;
  damaged.store.Txn({}, {{Op::Kind::kPut, keys::Shard({1, 2}), "\xff\xff"}});
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

TEST(CoreStart, AnOutageOfTheStoreEndsNoLease) {
  CoreRig rig;
  rig.Pump();
  const auto server = rig.Register("s1");
  ASSERT_TRUE(server.ok());
  rig.Send(CoreRig::Table("t"));
  rig.StepStore(CoreRig::Outcome::kLost);
  for (int64_t ms = 0; ms < 3 * CoreOptions().lease_ttl_ms; ms += 50) {
    if (rig.StoreWaits()) rig.StepStore(CoreRig::Outcome::kLost);
    rig.Tick(50);
  }
  rig.Tick(1000);
  rig.Pump();
  ASSERT_TRUE(rig.core->serving());
  rig.Tick(50);
  rig.Pump();
  const auto beat = rig.Heartbeat(server->server(), server->incarnation());
  ASSERT_TRUE(beat.ok()) << beat.status();
  EXPECT_TRUE(beat->lease_held());
}

}  // namespace core_story_test
}  // namespace hotbed
