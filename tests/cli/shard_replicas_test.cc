#include "cli/shards/shard_replicas.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace shard_replicas_test {

constexpr uint64_t kShard = uint64_t{1} << 32;

void SetMember(uint64_t server, uint64_t incarnation, v1::Member* member) {
  member->set_server(server);
  member->set_incarnation(incarnation);
}

// Servers s0 to s3 (10 to 13, incarnations 1), s3 is down; one table with two replicas.
v1::ClusterMap Map() {
  v1::ClusterMap map;
  for (uint64_t i = 0; i < 4; ++i) {
    v1::ServerInfo* server = map.add_servers();
    server->set_server(10 + i);
    server->set_name("s" + std::to_string(i));
    server->set_incarnation(1);
    server->set_live(i != 3);
    server->set_failure_domain(i < 2 ? "rack-a" : "rack-b");
  }
  map.add_tables()->set_id(1);
  map.mutable_tables(0)->set_name("user");
  map.mutable_tables(0)->set_replicas(2);
  return map;
}

v1::ShardRecord* AddShard(v1::ClusterMap* map, std::vector<std::pair<uint64_t, uint64_t>> members) {
  v1::ShardRecord* shard = map->add_shards();
  shard->set_shard(kShard | static_cast<uint64_t>(map->shards_size() - 1));
  shard->set_active(true);
  for (const auto& [server, incarnation] : members) {
    SetMember(server, incarnation, shard->add_members());
  }
  *shard->mutable_primary() = shard->members(0);
  return shard;
}

void SayLsn(v1::ServerInfo* server, uint64_t shard, uint64_t lsn) {
  v1::ShardLoad* load = server->mutable_load()->add_shards();
  load->set_shard(shard);
  load->set_applied_lsn(lsn);
}

TEST(ShardReplicas, RolesLifeAndLag) {
  v1::ClusterMap map = Map();
  v1::ShardRecord* shard = AddShard(&map, {{11, 1}, {10, 1}, {13, 1}});
  SetMember(12, 1, shard->add_learners());
  SayLsn(map.mutable_servers(1), kShard, 100);
  SayLsn(map.mutable_servers(0), kShard, 100);
  SayLsn(map.mutable_servers(2), kShard, 58);
  const auto replicas = ReplicaView(map).ReplicasOf(map.shards(0));
  ASSERT_EQ(replicas.size(), 4u);
  EXPECT_EQ(ReplicasText(replicas, ReplicaRole::kPrimary), "s1");
  EXPECT_EQ(ReplicasText(replicas, ReplicaRole::kMember), "s0 s3(down)");
  EXPECT_EQ(ReplicasText(replicas, ReplicaRole::kLearner), "s2(42 behind)");
  const auto json = ReplicasJson(replicas);
  EXPECT_EQ(json[0]["role"], "primary");
  EXPECT_EQ(json[1]["behind"], 0);
  EXPECT_TRUE(json[2]["behind"].is_null()) << "a server that is down says nothing";
  EXPECT_EQ(json[2]["live"], false);
  EXPECT_EQ(json[3]["behind"], 42);
}

TEST(ShardReplicas, AReplicaAheadOfAnOlderReportIsNotBehind) {
  v1::ClusterMap map = Map();
  AddShard(&map, {{11, 1}, {10, 1}});
  SayLsn(map.mutable_servers(1), kShard, 90);
  SayLsn(map.mutable_servers(0), kShard, 100);
  EXPECT_EQ(ReplicaView(map).ReplicasOf(map.shards(0))[1].behind, 0u);
}

TEST(ShardReplicas, AnEarlierProcessIsNoLiveReplica) {
  v1::ClusterMap map = Map();
  AddShard(&map, {{11, 1}, {10, 1}});
  AddShard(&map, {{11, 1}, {10, 0}});  // s0 was restarted since
  AddShard(&map, {{11, 1}, {13, 1}});
  map.mutable_shards(2)->set_active(false);
  const ReplicaCount count = ReplicaView(map).CountOf(1);
  EXPECT_EQ(count.shards, 3u);
  EXPECT_EQ(count.replicas, 2u);
  EXPECT_EQ(count.short_of, 2u);
  EXPECT_EQ(count.first_short, "user/1");
  EXPECT_EQ(ActiveText(count), "2 of 3; 2 short of replicas");
  EXPECT_EQ(ActiveText(ReplicaView(map).CountOf(7)), "0 of 0");
}

TEST(ShardReplicas, LearnersDoNotCountAsReplicas) {
  v1::ClusterMap map = Map();
  SetMember(12, 1, AddShard(&map, {{11, 1}})->add_learners());
  const ReplicaCount count = ReplicaView(map).CountOf(1);
  EXPECT_EQ(count.short_of, 1u);
  EXPECT_EQ(count.learners, 1u);
}

TEST(ShardReplicas, ReplicasOfOneDomainAreFound) {
  v1::ClusterMap map = Map();
  AddShard(&map, {{11, 1}, {12, 1}});
  std::string first;
  EXPECT_EQ(ReplicaView(map).SharingDomains(&first), 0u);
  AddShard(&map, {{11, 1}, {10, 1}});
  AddShard(&map, {{12, 1}, {13, 1}});  // a replica that is down does not count
  EXPECT_EQ(ReplicaView(map).SharingDomains(&first), 1u);
  EXPECT_EQ(first, "user/1");
}

}  // namespace shard_replicas_test
}  // namespace hotbed
