// Replicas, moves and events in status, the lists and doctor, over a fake coordinator with table
// user: four shards with two replicas each, on s0, s1 (down) and s2.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "admin/admin_server.h"
#include "common/host_port.h"
#include "common/metrics.h"
#include "common/rare_counter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/cli_fixture.h"

namespace hotbed {
namespace cluster_commands_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kS0 = 10, kS1 = 11, kS2 = 12;

class ClusterCommandsTest : public RunCliTest {
 protected:
  ClusterCommandsTest() {
    v1::ServerInfo* server = fake_.map.add_servers();
    server->set_server(kS2);
    server->set_name("s2");
    server->set_live(true);
    for (int s = 0; s < 3; ++s) {
      fake_.map.mutable_servers(s)->set_failure_domain("rack-" + std::to_string(s));
    }
    fake_.map.mutable_tables(0)->set_durability(v1::DURABILITY_REPLICATED);
    fake_.map.mutable_tables(0)->set_replicas(2);
    for (v1::ShardRecord& shard : *fake_.map.mutable_shards()) {
      *shard.add_members() = shard.primary();
      shard.add_members()->set_server(kS2);
      shard.set_active(true);
    }
    fake_.lists.emplace_back();
    fake_.lists[0].mutable_rebalance()->set_on(true);
  }
  // Verdict and text of one check.
  std::pair<std::string, std::string> Doctor(const std::string& check) {
    for (const auto& one : RunAt({"doctor", "-o", "json", "--timeout", "500ms"}).json()) {
      if (one["check"] == check) return {one["verdict"], one["found"]};
    }
    return {"missing", ""};
  }
};

TEST_F(ClusterCommandsTest, DoctorAsksEveryServerWhetherItIsReady) {
  fake_.map.mutable_servers(0)->set_admin_address("127.0.0.1:1");  // nobody listens there
  const auto [verdict, found] = Doctor("ready");
  EXPECT_EQ(verdict, "FAILED");
  EXPECT_THAT(found, HasSubstr("s0: "));
}

// An HTTP server of this process that knows /readyz and says yes.
class ReadyPort {
 public:
  explicit ReadyPort(const std::string& listen) {
    AdminOptions options;
    options.listen = listen;
    options.healthy = [](std::string*) { return true; };
    options.ready = [] { return std::vector<ReadyCondition>(); };
    options.status = [] { return StatusPage(); };
    auto started = AdminServer::Start(std::move(options));
    if (started.ok()) admin_ = *std::move(started);
  }
  bool ok() const { return admin_ != nullptr; }
  std::string port() const { return SplitHostPort(admin_->address(), 1)->port; }

 private:
  std::unique_ptr<AdminServer> admin_;
};

// Numbers of this process stand for those of a server and of the coordinator.
TEST_F(ClusterCommandsTest, DoctorReadsTheNumbersOfEveryProcess) {
  fake_.map.mutable_servers(2)->set_live(false);
  v1::ServerInfo* const server = fake_.map.mutable_servers(0);
  const ReadyPort port("127.0.0.1:0");
  ASSERT_TRUE(port.ok());
  server->set_admin_address("127.0.0.1:" + port.port());
  for (const char* check : {"damage", "memory", "in flight", "peers", "directories"}) {
    EXPECT_EQ(Doctor(check).first, "ok") << check;
  }
  const std::string resident(256 << 20, 'x');  // far above what the server says it may have
  const MetricSource numbers([](std::vector<MetricSample>* samples) {
    AddSample("hotbed_server_shards_refused", "", {}, 2, samples);
    AddSample("hotbed_server_host_limit_bytes", "", {}, 1 << 20, samples);
    for (const char* budget : {"pull", "push"}) {
      AddSample("hotbed_server_in_flight_bytes", "", {{"budget", budget}}, 600, samples);
    }
    AddSample("hotbed_server_in_flight_limit_bytes", "", {{"budget", "pull"}}, 1000, samples);
    AddSample("hotbed_server_in_flight_limit_bytes", "", {{"budget", "push"}}, 2000, samples);
  });
  RareCounter rare("hotbed_port_ended_total", "", {{"reason", "message_bytes"}});
  EXPECT_EQ(Doctor("peers").first, "ok");
  rare.Add(1);
  // In the map of a coordinator that listens wide there is no host.
  fake_.map.set_coordinator_admin_address("0.0.0.0:" + port.port());
  EXPECT_EQ(Doctor("damage").first, "FAILED");
  EXPECT_THAT(Doctor("damage").second, HasSubstr("s0: 2;"));
  EXPECT_EQ(Doctor("memory").first, "warning");
  EXPECT_THAT(Doctor("memory").second,
              ContainsRegex("^s0 has .* MiB, expected at most 129.1 MiB$"));
  EXPECT_EQ(Doctor("in flight").first, "warning");
  EXPECT_THAT(Doctor("in flight").second, HasSubstr("s0: pull 600 B of 1000 B"));
  EXPECT_THAT(Doctor("in flight").second, Not(HasSubstr("push")));
  EXPECT_EQ(Doctor("peers").first, "warning");
  EXPECT_THAT(Doctor("peers").second, HasSubstr("s0: connections ended or refused for message_b"));
  EXPECT_THAT(Doctor("peers").second, HasSubstr("coordinator: connections ended"));
  EXPECT_EQ(resident[resident.size() / 2], 'x');
}

TEST_F(ClusterCommandsTest, DoctorTellsOfDirectoriesThatWereRefused) {
  v1::ClusterEvent* event = fake_.events.add_events();
  event->set_number(1);
  event->set_kind("server_refused");
  event->set_unix_ms(absl::ToUnixMillis(absl::Now() - absl::Hours(1)));
  event->set_text("long ago");
  EXPECT_EQ(Doctor("directories").first, "ok");
  event = fake_.events.add_events();
  event->set_number(2);
  event->set_kind("server_refused");
  event->set_unix_ms(absl::ToUnixMillis(absl::Now()));
  event->set_text("a copy of s0");
  EXPECT_EQ(Doctor("directories").first, "warning");
  EXPECT_THAT(Doctor("directories").second, HasSubstr("a copy of s0"));
}

TEST_F(ClusterCommandsTest, DoctorAsksNamesAndIpv6Addresses) {
  fake_.map.mutable_servers(2)->set_live(false);
  v1::ServerInfo* const server = fake_.map.mutable_servers(0);
  const ReadyPort four("127.0.0.1:0");
  ASSERT_TRUE(four.ok());
  server->set_admin_address("localhost:" + four.port());
  server->set_address("localhost:" + four.port());
  EXPECT_EQ(Doctor("ready"), std::pair(std::string("ok"), std::string("1 servers are ready")));
  EXPECT_EQ(Doctor("data ports").first, "ok");
  const ReadyPort six("[::1]:0");
  if (!six.ok()) GTEST_SKIP() << "this machine has no IPv6";
  server->set_admin_address("[::1]:" + six.port());
  server->set_address("[::1]:" + six.port());
  EXPECT_EQ(Doctor("ready").first, "ok") << Doctor("ready").second;
  EXPECT_EQ(Doctor("data ports").first, "ok");
}

TEST_F(ClusterCommandsTest, DoctorConnectsToTheDataPortsOfTheMap) {
  fake_.map.mutable_servers(2)->set_live(false);
  fake_.map.mutable_servers(0)->set_address("127.0.0.1:1");  // nobody listens there
  const auto [verdict, found] = Doctor("data ports");
  EXPECT_EQ(verdict, "FAILED");
  EXPECT_THAT(found, HasSubstr("s0 at 127.0.0.1:1: cannot connect: Connection refused"));
}

// A program that listens there on this machine is not that server.
TEST_F(ClusterCommandsTest, DoctorDoesNotAskTheLoopbackOfAnotherMachine) {
  fake_.map.mutable_servers(2)->set_live(false);
  const ReadyPort other("127.0.0.1:0");
  ASSERT_TRUE(other.ok());
  fake_.map.mutable_servers(0)->set_address("192.0.2.7:7500");  // for documentation: nobody's
  fake_.map.mutable_servers(0)->set_admin_address("127.0.0.1:" + other.port());
  const auto [verdict, found] = Doctor("ready");
  EXPECT_EQ(verdict, "warning");
  EXPECT_THAT(found, HasSubstr("start it with --admin-listen=0.0.0.0:" + other.port()));
}

TEST_F(ClusterCommandsTest, HealthAsksTheAdminPortOfOneProcess) {
  const ReadyPort process("127.0.0.1:0");
  ASSERT_TRUE(process.ok());
  // As it listens in a container.
  const std::string admin = "0.0.0.0:" + process.port();
  EXPECT_EQ(Ask({"health", "--admin", admin}).code, 0);
  const Answer ready = Ask({"health", "--ready", "--admin", admin, "-o", "json"});
  EXPECT_EQ(ready.code, 0) << ready.err;
  EXPECT_EQ(ready.json()["page"], "/readyz");
  EXPECT_EQ(ready.json()["address"], "127.0.0.1:" + process.port());
  const Answer nobody = Ask({"health", "--admin", "127.0.0.1:1"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("cannot connect"));
  EXPECT_EQ(Ask({"health", "--admin", "127.0.0.1"}).code, 2);
}

TEST_F(ClusterCommandsTest, AServerRetiresWhenOthersHaveItsReplicas) {
  const Answer may = RunAt({"server", "retire", "s0", "--wait=0s"});
  EXPECT_EQ(may.code, 0) << may.err;
  EXPECT_THAT(may.out, HasSubstr("s0 may be stopped"));
  EXPECT_THAT(may.out, HasSubstr("3 shards go on with their other replicas"));
  // The other member of user/3 is down.
  const Answer must_not = RunAt({"server", "retire", "s2", "--wait=0s"});
  EXPECT_EQ(must_not.code, 1);
  EXPECT_THAT(must_not.err, HasSubstr("s2 holds 1 shards that would miss it: user/3 has 1 of 2"));
  fake_.map.mutable_servers(1)->set_live(true);
  EXPECT_EQ(RunAt({"server", "retire", "s2", "--wait=0s"}).code, 0);
  fake_.map.mutable_shards(0)->set_active(false);
  EXPECT_THAT(RunAt({"server", "retire", "s2", "--wait=0s"}).err, HasSubstr("is not active"));
  EXPECT_THAT(RunAt({"server", "retire", "s7", "--wait=0s"}).err, HasSubstr("s7"));
}

TEST_F(ClusterCommandsTest, ShardsWithoutAnotherReplicaDoNotHoldAServerBack) {
  fake_.map.mutable_tables(0)->set_replicas(1);
  const nlohmann::json json = RunAt({"server", "retire", "s0", "--wait=0s", "-o", "json"}).json();
  EXPECT_EQ(json["shards_handed_over"], 0);
  EXPECT_EQ(json["shards_waiting"], 3);
}

TEST_F(ClusterCommandsTest, ADrainedServerRetiresWhenItIsEmpty) {
  setenv("HOTBED_NAME", "s0", 1);
  EXPECT_EQ(RunAt({"server", "retire", "--wait=0s"}).code, 0);
  EXPECT_EQ(fake_.drained.server(), "");
  EXPECT_EQ(RunAt({"server", "retire", "--drain", "--wait=0s"}).code, 0);
  EXPECT_EQ(fake_.drained.server(), "10");
  fake_.map.mutable_servers(0)->set_draining(true);
  const Answer full = RunAt({"server", "retire", "--wait=0s"});
  unsetenv("HOTBED_NAME");
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.err, HasSubstr("user/0 has not left it yet"));
  fake_.map.clear_shards();
  EXPECT_THAT(RunAt({"server", "retire", "s0", "--wait=0s"}).out,
              HasSubstr("it holds nothing any more"));
}

TEST_F(ClusterCommandsTest, AServingServerRetiresWhenOtherCopiesAnswerForIt) {
  v1::ServingMap& map = fake_.serving.map;
  v1::ServedTable& table = *map.add_tables();
  table.set_table(1);
  map.add_specs()->set_name("user");
  v1::ServedVersion& version = *map.add_versions();
  version.set_number(7);
  version.set_name("v42");
  for (const char* name : {"r0", "r1"}) {
    table.add_servers(name);
    v1::ServingServerInfo& server = *map.add_servers();
    server.set_name(name);
    server.set_alive(true);
    v1::ReplicaReport& replica = *server.add_replicas();
    replica.set_table(1);
    replica.set_ready(true);
    v1::VersionReport& held = *replica.add_versions();
    held.set_number(7);
    held.set_held(true);
  }
  const auto retire = [&](const char* name) {
    return RunAt({"server", "retire", name, "--wait=0s", "--wait-min=1ms"});
  };
  EXPECT_THAT(retire("r0").out, HasSubstr("other copies answer for 1 of its tables"));
  v1::ReplicaReport& other = *map.mutable_servers(1)->mutable_replicas(0);
  other.mutable_versions(0)->set_held(false);
  EXPECT_THAT(retire("r0").err, HasSubstr("r0 holds 1 copies that lookups would miss: of table "
                                          "user, its copy on r1 does not hold version v42"));
  EXPECT_EQ(retire("r1").code, 0) << "r0 has all that r1 has";
  other.set_ready(false);
  EXPECT_THAT(retire("r0").err, HasSubstr("of table user, its copy on r1 is loading"));
  EXPECT_EQ(retire("r1").code, 0) << "nobody asks a copy that is not ready";
  *map.add_servers() = map.servers(0);
  map.mutable_servers(2)->set_name("r3");
  table.add_servers("r3");
  EXPECT_EQ(retire("r0").code, 0) << "r3 answers, whatever r1 does";
  map.mutable_servers(2)->set_alive(false);
  EXPECT_THAT(retire("r0").err, HasSubstr("of table user, its copy on r1 is loading"));
  table.mutable_servers()->RemoveLast();
  table.mutable_servers()->RemoveLast();
  EXPECT_THAT(retire("r0").out, HasSubstr("and 1 have no other copy"));
  EXPECT_THAT(RunAt({"server", "retire", "r0", "--drain", "--wait=0s"}).err,
              HasSubstr("r0 is a serving server, and --drain moves shards"));
  EXPECT_THAT(retire("r2").err, HasSubstr("there is no server 'r2'"));
  table.add_servers("r2");
  EXPECT_THAT(retire("r2").err, HasSubstr("r2 has not reported to this coordinator yet"));
}

// r0 has the whole table, and r0 and r1 have the parts of another cut of it.
TEST_F(ClusterCommandsTest, ARetiringServingServerCountsBothCutsOfATable) {
  v1::ServingMap& map = fake_.serving.map;
  v1::ServedTable& table = *map.add_tables();
  table.set_table(1);
  table.add_servers("r0");
  map.add_specs()->set_name("user");
  table.mutable_beside()->set_parts(2);
  for (const uint32_t part : {0, 1}) {
    const std::string name = absl::StrCat("r", part);
    table.mutable_beside()->add_servers(name);
    table.mutable_beside()->add_server_parts(part);
    v1::ServingServerInfo& server = *map.add_servers();
    server.set_name(name);
    server.set_alive(true);
    v1::ReplicaReport& replica = *server.add_replicas();
    replica.set_table(1);
    replica.set_part(part);
    replica.set_parts(2);
    replica.set_ready(true);
  }
  v1::ReplicaReport& whole = *map.mutable_servers(0)->add_replicas();
  whole.set_table(1);
  whole.set_ready(true);
  const auto retire = [&](const char* name) {
    return RunAt({"server", "retire", name, "--wait=0s", "--wait-min=1ms"});
  };
  EXPECT_THAT(retire("r1").out, HasSubstr("; it loads 1 part that is to follow"));
  EXPECT_THAT(retire("r0").out, HasSubstr("and 1 have no other copy"));
  EXPECT_THAT(retire("r0").out, HasSubstr("; it loads 1 part that is to follow"));
  // The parts are the ones that readers are told of now, and some still ask for the whole table.
  table.set_parts(2);
  *table.mutable_servers() = table.beside().servers();
  *table.mutable_server_parts() = table.beside().server_parts();
  table.mutable_beside()->Clear();
  table.mutable_beside()->add_servers("r0");
  table.mutable_beside()->set_leaves(true);
  EXPECT_EQ(retire("r1").code, 0);
  EXPECT_THAT(retire("r0").err, HasSubstr("r0 holds 1 copies that lookups would miss: of table "
                                          "user, readers may ask for its former parts"));
  // One of which the coordinator has not heard yet.
  map.mutable_servers(0)->set_name("r2");
  EXPECT_THAT(retire("r0").err, HasSubstr("r0 has not reported to this coordinator yet"));
}

TEST_F(ClusterCommandsTest, StatusShowsReplicasDrainsMovesAndEvents) {
  fake_.map.mutable_servers(0)->set_draining(true);
  fake_.lists[0].set_moves_total(3);
  fake_.lists[0].set_bytes_left(5 << 20);
  for (int i = 1; i <= 7; ++i) {
    v1::ClusterEvent* event = fake_.events.add_events();
    event->set_number(static_cast<uint64_t>(i));
    event->set_kind("drain");
    event->set_text("event " + std::to_string(i));
  }
  const Answer text = RunAt({"status"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, ContainsRegex("s0 +draining .* rack-0 +0 +0 "));
  EXPECT_THAT(text.out, ContainsRegex("s2 +live .* rack-2 +0 +4 "));
  EXPECT_THAT(text.out, ContainsRegex("replicated=2 +4 of 4; 1 short of replicas"));
  EXPECT_THAT(text.out, HasSubstr("moves: 3 in progress or waiting, 5 MiB left"));
  EXPECT_THAT(text.out, HasSubstr("rebalancing: on"));
  EXPECT_THAT(text.out, HasSubstr("event 7"));
  EXPECT_THAT(text.out, Not(HasSubstr("event 2")));
  const nlohmann::json json = RunAt({"status", "-o", "json"}).json();
  EXPECT_EQ(json["servers"][0]["draining"], true);
  EXPECT_EQ(json["servers"][2]["replicas"], 4);
  EXPECT_EQ(json["servers"][2]["failure_domain"], "rack-2");
  EXPECT_EQ(json["tables"][0]["replicas"], 2);
  EXPECT_EQ(json["tables"][0]["shards_short_of_replicas"], 1);
  EXPECT_EQ(json["moves"]["under_way"], 3);
  EXPECT_EQ(json["rebalance"]["on"], true);
  EXPECT_EQ(json["events"].size(), 5u);
}

TEST_F(ClusterCommandsTest, ListsSayWhoHoldsWhatAndWhoIsBehind) {
  const uint64_t shard = fake_.map.shards(0).shard();
  for (const auto& [server, lsn] : {std::pair{0, 100u}, {2, 93u}}) {
    v1::ShardLoad* load = fake_.map.mutable_servers(server)->mutable_load()->add_shards();
    load->set_shard(shard);
    load->set_applied_lsn(lsn);
  }
  fake_.map.mutable_shards(1)->add_learners()->set_server(kS1);
  const std::string list = RunAt({"shard", "list"}).out;
  EXPECT_THAT(list, ContainsRegex("user/0 .* yes +s0 +s2\\(7 behind\\) +-"));
  EXPECT_THAT(list, ContainsRegex("user/1 .* yes +s0 +s2 +s1\\(down\\)"));
  EXPECT_THAT(list, ContainsRegex("user/3 .* yes +s1\\(down\\) +s2"));
  const nlohmann::json json = RunAt({"shard", "list", "-o", "json"}).json();
  EXPECT_EQ(json[0]["replicas"][1]["behind"], 7);
  EXPECT_EQ(json[1]["learners"][0], "s1");
  const std::string described = RunAt({"table", "describe", "user"}).out;
  EXPECT_THAT(described, ContainsRegex("durability +replicated=2"));
  EXPECT_THAT(described,
              ContainsRegex("replicas +2 of each shard; 1 of 4 shards have fewer now, the "
                            "first is user/3; 1 learners; the slowest replica is 7"));
  EXPECT_THAT(described, ContainsRegex("s2 +0 +0 +0 +4 +0 +7"));
  EXPECT_THAT(RunAt({"table", "list"}).out, HasSubstr("4 of 4; 1 short of replicas"));
}

TEST_F(ClusterCommandsTest, ShardsInDoubtAreSaidFirst) {
  EXPECT_EQ(Doctor("complete replicas").first, "ok");
  EXPECT_THAT(RunAt({"status"}).out, Not(HasSubstr("IN DOUBT")));
  fake_.lists[0].set_doubts_total(2);
  v1::ShardDoubt* unheard = fake_.lists[0].add_doubts();
  unheard->set_shard(fake_.map.shards(1).shard());
  unheard->set_since_unix_ms(1'700'000'000'000);
  unheard->set_text("s1 may hold more");
  EXPECT_EQ(Doctor("complete replicas").first, "warning");
  unheard->set_holds_more(true);
  EXPECT_EQ(Doctor("complete replicas"),
            std::make_pair(std::string("FAILED"),
                           std::string("2 in doubt, user/1 since 2023-11-14 22:13:20 UTC: s1 may "
                                       "hold more")));
  v1::ShardDoubt* stopped = fake_.lists[0].add_doubts();
  stopped->set_shard(fake_.map.shards(2).shard());
  stopped->set_stopped(true);
  stopped->set_text("stopped: waits for s1/1");
  EXPECT_THAT(Doctor("complete replicas").second, HasSubstr("user/2 since"));
  const std::string text = RunAt({"status"}).out;
  EXPECT_THAT(text, HasSubstr("IN DOUBT: 2 shards"));
  EXPECT_THAT(text, HasSubstr("  user/1 since 2023-11-14 22:13:20 UTC: s1 may hold more\n"));
  const nlohmann::json json = RunAt({"status", "-o", "json"}).json();
  EXPECT_EQ(json["in_doubt"][1]["shard"], "user/2");
  EXPECT_EQ(json["in_doubt"][1]["stopped"], true);
}

TEST_F(ClusterCommandsTest, DoctorLooksAtReplicasAndDomains) {
  EXPECT_EQ(Doctor("replicas").first, "FAILED");
  EXPECT_THAT(Doctor("replicas").second,
              HasSubstr("1 of 4 replicated shards have fewer replicas than "
                        "wanted, the first is user/3"));
  EXPECT_EQ(Doctor("failure domains").first, "ok");
  fake_.map.mutable_servers(1)->set_live(true);
  EXPECT_EQ(Doctor("replicas").first, "ok");
  fake_.map.mutable_servers(2)->set_failure_domain("rack-0");
  EXPECT_THAT(Doctor("failure domains").second,
              HasSubstr("3 shards have two replicas in one failure domain, the first is user/0"));
  fake_.map.mutable_servers(2)->set_failure_domain("");
  EXPECT_EQ(Doctor("failure domains"),
            std::pair(std::string("warning"),
                      std::string("none said by s2: start them with --failure-domain")));
  fake_.map.mutable_servers(2)->set_failure_domain("rack-2");
  for (const int s : {0, 1}) fake_.map.mutable_servers(s)->set_live(false);
  EXPECT_THAT(Doctor("failure domains").second, HasSubstr("1 live for tables of 2 replicas"));
}

TEST_F(ClusterCommandsTest, DoctorLooksAtMovesAndRebalancing) {
  EXPECT_EQ(Doctor("moves").first, "ok");
  EXPECT_EQ(Doctor("rebalancing").first, "ok");
  v1::ShardMove* move = fake_.lists[0].add_moves();
  move->mutable_goal()->set_shard(fake_.map.shards(2).shard());
  move->mutable_goal()->set_since_unix_ms(absl::ToUnixMillis(absl::Now()));
  move->set_waits_for("s2 to have room");
  EXPECT_EQ(Doctor("moves").first, "ok") << "it has only begun to wait";
  move->mutable_goal()->set_since_unix_ms(absl::ToUnixMillis(absl::Now()) - 90'000);
  EXPECT_EQ(Doctor("moves").first, "warning");
  EXPECT_THAT(Doctor("moves").second,
              ContainsRegex("user/2 does not go on for [0-9]+m .*s: s2 to have room"));
  fake_.lists[0].set_paused(true);
  fake_.lists[0].mutable_rebalance()->set_on(false);
  EXPECT_THAT(Doctor("moves").second, HasSubstr("hotbed shard resume"));
  EXPECT_EQ(Doctor("rebalancing").first, "warning");
}

TEST_F(ClusterCommandsTest, DoctorLooksAtRoom) {
  v1::ServerLoad* load = fake_.map.mutable_servers(2)->mutable_load();
  load->set_host_bytes_limit(100);
  load->set_bytes_held(89);
  EXPECT_EQ(Doctor("room").first, "ok");
  load->set_bytes_held(90);
  EXPECT_EQ(Doctor("room").first, "warning");
  EXPECT_THAT(Doctor("room").second, HasSubstr("s2 holds 90 B with 100 B of memory"));
}

}  // namespace cluster_commands_test
}  // namespace hotbed
