// The core under a seeded random world: requests, lost and lying store answers, rivals, lease ends,
// and deaths of the coordinator between any two actions. After every transaction the store itself
// is checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/core_rig.h"
#include "tests/coordinator/store_invariants.h"

namespace hotbed {
namespace core_random_test {

// A reader of maps that keeps itself up to date with what changed.
class MapReader {
 public:
  void Take(const v1::ClusterMap& map) {
    if (!map.delta()) {
      tables.clear();
      shards.clear();
      servers.clear();
    }
    for (const auto& t : map.tables()) tables[t.id()] = t.SerializeAsString();
    for (const auto& s : map.shards()) shards[s.shard()] = s.SerializeAsString();
    for (auto s : map.servers()) {
      s.clear_load();    // told by heartbeats, without a revision
      s.clear_shards();  // counted when the map is made
      servers[s.server()] = s.SerializeAsString();
    }
    for (const TableId id : map.tables_dropped()) {
      tables.erase(id);
      shards.erase(shards.lower_bound(ShardId{id, 0}.packed()),
                   shards.lower_bound(ShardId{id + 1, 0}.packed()));
    }
    known = map.plan_revision();
  }
  uint64_t known = 0;
  std::map<TableId, std::string> tables;
  std::map<uint64_t, std::string> shards;
  std::map<ServerId, std::string> servers;
};

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  void Run(int actions) {
    for (int i = 0; i < actions && !::testing::Test::HasFatalFailure(); ++i) {
      SCOPED_TRACE(absl::StrCat("action ", i));
      Act();
      invariants_.Check(rig_.store);
      TakeReplies();
      ReadMaps();
    }
    Settle();
  }
  int acknowledged() const { return acknowledged_; }

 private:
  struct Server {
    std::string name;
    ServerId id = 0;
    Incarnation incarnation = 0;
    MapReader reader;
  };
  struct Asked {
    std::string kind;
    std::string name;
    int server = 0;  // index into servers_
  };

  void Act() {
    switch (random_.Uniform(16)) {
      case 0:
        rig_.Start();  // kill -9 of the coordinator
        asked_.clear();
        return;
      case 1:
        rig_.Tick(50 + random_.Uniform(400));
        return;
      case 2:
        Rival();
        return;
      case 3:
      case 4:
        return CreateOrDrop();
      case 5:
        return Register();
      case 6:
        return Activate();
      case 7:
        return OpenSession();
      case 8:
      case 9:
        return Heartbeat();
      default:
        if (!rig_.StoreWaits()) return rig_.Tick(100);
        return rig_.StepStore(random_.OneIn(25)   ? CoreRig::Outcome::kLost
                              : random_.OneIn(25) ? CoreRig::Outcome::kWrittenButLost
                                                  : CoreRig::Outcome::kOk);
    }
  }

  void Ask(Asked asked, Request request) {
    asked_[rig_.Send(std::move(request))] = std::move(asked);
  }

  void CreateOrDrop() {
    const std::string name = absl::StrCat("t", random_.Uniform(4));
    if (random_.OneIn(3)) {
      tables_acked_.erase(name);  // from now on it may be gone
      v1::DropTableRequest drop;
      drop.set_name(name);
      return Ask({"drop", name}, drop);
    }
    if (random_.OneIn(3)) return CreateTogether();
    Ask({"create", name}, RandomTable(name));
  }

  v1::CreateTableRequest RandomTable(const std::string& name) {
    v1::CreateTableRequest create = CoreRig::Table(name, 1 + random_.Uniform(1000));
    create.mutable_spec()->set_hashed(random_.OneIn(2));
    // Above kRecordsPerTxn now and then, so that a creation takes several transactions.
    create.set_shards(random_.OneIn(2) ? 1 : 1 + random_.Uniform(200));
    return create;
  }

  void CreateTogether() {
    v1::CreateTablesRequest create;
    for (int i = 0; i < 4; ++i) {
      if (random_.OneIn(2)) continue;
      const v1::CreateTableRequest table = RandomTable(absl::StrCat("t", i));
      v1::NewTable& one = *create.add_tables();
      *one.mutable_spec() = table.spec();
      one.set_shards(random_.OneIn(3) ? 0 : table.shards());
    }
    Ask({"create", ""}, create);
  }

  void Register() {
    const int i = random_.Uniform(3);
    Server& s = servers_[i];
    s.name = absl::StrCat("s", i);
    v1::RegisterServerRequest request;
    request.set_server(s.id);
    request.set_name(s.name);
    request.set_address(absl::StrCat(s.name, ":1"));
    for (const auto& [key, kv] : rig_.store.keys) {  // its disk keeps everything
      v1::ShardRecord record;
      if (!absl::StartsWith(key, keys::kShards) || !record.ParseFromString(kv.value)) continue;
      v1::HeldReplica* const held = request.add_held();
      held->set_shard(record.shard());
      held->mutable_end()->set_epoch(1);
      held->mutable_end()->set_lsn(1);
    }
    Ask({"register", s.name, i}, request);
  }

  void Activate() {
    const Server& s = servers_[random_.Uniform(3)];
    v1::ClusterMap map;
    for (const auto& [id, bytes] : s.reader.shards) map.add_shards()->ParseFromString(bytes);
    Ask({"activate", ""}, CoreRig::ActivationOf(map, s.id, s.incarnation));
  }

  void OpenSession() {
    v1::OpenSessionRequest request;
    request.set_name(absl::StrCat("job/", random_.Uniform(3)));
    Ask({"session", request.name()}, request);
  }

  void Heartbeat() {
    const int i = random_.Uniform(3);
    v1::HeartbeatRequest request;
    request.set_server(servers_[i].id);
    request.set_incarnation(servers_[i].incarnation);
    request.set_plan_revision_known(servers_[i].reader.known);
    Ask({"heartbeat", "", i}, request);
  }

  // Someone else who writes by the same rules: a compare on what it read, an epoch that grows with
  // the incarnation; or a whole other coordinator that takes the leadership.
  void Rival() {
    if (random_.OneIn(5)) {
      rig_.store.Txn({}, {{Op::Kind::kPut, keys::kLeaderKey, "rival"}});
      return;
    }
    if (random_.OneIn(2)) {
      const auto kv = rig_.store.Range(keys::kTableCounter, "").kvs;
      if (kv.empty()) return;
      rig_.store.Txn(
          {}, {{Op::Kind::kPut, keys::kTableCounter, absl::StrCat(std::stoi(kv[0].value) + 1)}});
      return;
    }
    const auto servers = rig_.store.Range(keys::kServers, PrefixLimit(keys::kServers)).kvs;
    if (servers.empty()) return;
    const KeyValue& kv = servers[random_.Uniform(servers.size())];
    v1::ServerInfo info;
    ASSERT_TRUE(info.ParseFromString(kv.value));
    info.set_live(!info.live());
    rig_.store.Txn({}, {{Op::Kind::kPut, kv.key, info.SerializeAsString()}});
  }

  void TakeReplies() {
    for (auto& [caller, reply] : rig_.replies) {
      const Asked asked = asked_[caller];
      asked_.erase(caller);
      if (reply.ok()) Acknowledged(asked, *reply);
    }
    rig_.replies.clear();
    if (rig_.core->phase() == Core::Phase::kOvertaken) rig_.Start();
    ASSERT_NE(rig_.core->phase(), Core::Phase::kFailed) << rig_.core->trouble();
    for (const auto& [name, id] : tables_acked_) {
      ASSERT_EQ(rig_.store.Range(keys::Table(id), "").kvs.size(), 1u)
          << "table " << name << " was acknowledged and is gone";
    }
  }

  void Created(const v1::CreateTableReply& table) {
    ASSERT_TRUE(table.created());
    // A drop may have been asked for meanwhile, or by a process that died: then it need not stay.
    bool drop_pending = false;
    for (const auto& [caller, a] : asked_) {
      drop_pending |= a.kind == "drop" && a.name == table.spec().name();
    }
    if (!drop_pending) tables_acked_[table.spec().name()] = table.spec().id();
    ASSERT_GT(table.shards_size(), 0);
    for (const v1::ShardRecord& s : table.shards()) ASSERT_GT(s.revision(), 0u);
  }

  void Acknowledged(const Asked& asked, const Reply& reply) {
    ++acknowledged_;
    if (auto* r = std::get_if<v1::CreateTableReply>(&reply)) {
      Created(*r);
    } else if (auto* r = std::get_if<v1::CreateTablesReply>(&reply)) {
      for (const v1::CreateTableReply& table : r->tables()) Created(table);
    } else if (auto* r = std::get_if<v1::OpenSessionReply>(&reply)) {
      ASSERT_TRUE(sessions_.insert({r->session(), r->incarnation()}).second) << "given out twice";
      const SessionId known = session_ids_.emplace(asked.name, r->session()).first->second;
      ASSERT_EQ(known, r->session());
    } else if (auto* r = std::get_if<v1::RegisterServerReply>(&reply)) {
      Server& s = servers_[asked.server];
      ASSERT_TRUE(s.id == 0 || s.id == r->server());
      ASSERT_TRUE(incarnations_.insert({r->server(), r->incarnation()}).second);
      s.id = r->server();
      s.incarnation = r->incarnation();
      for (const auto& [key, kv] : rig_.store.keys) {
        v1::ShardRecord record;
        if (!absl::StartsWith(key, keys::kShards)) continue;
        ASSERT_TRUE(record.ParseFromString(kv.value));
        if (record.primary().server() != s.id || !TableVisible(record)) continue;
        ASSERT_EQ(record.primary().incarnation(), s.incarnation) << "not handed over: " << key;
      }
    } else if (auto* r = std::get_if<v1::HeartbeatReply>(&reply)) {
      if (r->lease_held()) servers_[asked.server].reader.Take(r->map());
    }
  }

  bool TableVisible(const v1::ShardRecord& record) const {
    return rig_.store.keys.count(keys::Table(ShardId::FromPacked(record.shard()).table)) > 0;
  }

  // A client that reads only changes sees what one that reads everything sees.
  void ReadMaps() {
    if (!rig_.core->serving() || !random_.OneIn(4)) return;
    client_.Take(rig_.core->Map(client_.known));
    MapReader whole;
    whole.Take(rig_.core->Map(0));
    ASSERT_EQ(client_.tables, whole.tables);
    ASSERT_EQ(client_.shards, whole.shards);
    ASSERT_EQ(client_.servers, whole.servers);
  }

  // With a store that answers, everything asked is answered and every server sees its shards.
  void Settle() {
    rig_.Start();
    asked_.clear();
    rig_.Pump();
    ASSERT_TRUE(rig_.core->serving());
    invariants_.Check(rig_.store);
    for (int i = 0; i < 3; ++i) {
      Server& s = servers_[i];
      if (s.id == 0) continue;
      auto registered = rig_.Register(s.name, s.id);
      ASSERT_TRUE(registered.ok()) << registered.status();
      auto beat = rig_.Heartbeat(s.id, registered->incarnation(), s.reader.known);
      ASSERT_TRUE(beat.ok() && beat->lease_held());
      s.reader.Take(beat->map());
      MapReader whole;
      whole.Take(rig_.Heartbeat(s.id, registered->incarnation(), 0)->map());
      ASSERT_EQ(s.reader.shards, whole.shards);
    }
    TakeReplies();
  }

  Random random_;
  CoreRig rig_;
  StoreInvariants invariants_;
  MapReader client_;
  Server servers_[3];
  std::map<CallerToken, Asked> asked_;
  std::map<std::string, TableId> tables_acked_;
  std::set<std::pair<SessionId, Incarnation>> sessions_;
  std::map<std::string, SessionId> session_ids_;
  std::set<std::pair<ServerId, Incarnation>> incarnations_;
  int acknowledged_ = 0;
};

TEST(CoreRandom, InvariantsHoldInEveryWorld) {
  const TestSeed seed(20260104);
  int acknowledged = 0;
  for (int world = 0; world < 50; ++world) {
    SCOPED_TRACE(absl::StrCat("world ", world));
    World w(seed.value() * 1000 + world);
    w.Run(400);
    acknowledged += w.acknowledged();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(acknowledged, 50 * 20) << "the worlds were too hostile to show anything";
}

}  // namespace core_random_test
}  // namespace hotbed
