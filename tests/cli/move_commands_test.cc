// hotbed shard move, drain, moves, pause, resume, abort, limit; rebalance; events; plan apply,
// over a fake coordinator with table user (four shards; three on s0, one on s1, which is down).
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "common/files/file_system.h"
#include "common/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/cli_fixture.h"

namespace hotbed {
namespace move_commands_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kS0 = 10, kS1 = 11, kS2 = 12;
constexpr uint64_t kUser = uint64_t{1} << 32;

class MoveCommandsTest : public RunCliTest {
 protected:
  MoveCommandsTest() {
    v1::ServerInfo* server = fake_.map.add_servers();
    server->set_server(kS2);
    server->set_name("s2");
    server->set_live(true);
    for (v1::ShardRecord& shard : *fake_.map.mutable_shards()) {
      *shard.add_members() = shard.primary();
    }
    fake_.move_reply.set_number(5);
    fake_.drain_reply.set_number(6);
  }
  // The coordinator's answer to a move of these shards to s2.
  void WillMove(const std::vector<uint32_t>& indices) {
    for (const uint32_t index : indices) {
      v1::ShardGoal* goal = fake_.move_reply.add_goals();
      goal->set_shard(kUser | index);
      goal->add_servers(kS2);
      goal->set_number(5);
    }
    fake_.move_reply.set_bytes(100 * indices.size());
  }
  void Arrive(const std::vector<uint32_t>& indices) {
    for (const uint32_t index : indices) {
      v1::ShardRecord* shard = fake_.map.mutable_shards(static_cast<int>(index));
      shard->mutable_primary()->set_server(kS2);
      shard->clear_members();
      shard->add_members()->set_server(kS2);
    }
  }
  v1::ListMovesReply UnderWay(int moves) {
    v1::ListMovesReply list;
    for (int i = 0; i < moves; ++i) {
      v1::ShardMove* move = list.add_moves();
      move->mutable_goal()->set_shard(kUser | static_cast<uint64_t>(i));
      move->mutable_goal()->add_servers(kS2);
      move->mutable_goal()->set_number(5);
      move->mutable_goal()->set_reason("move asked for");
      *move->mutable_record() = fake_.map.shards(i);
      move->set_step("copying");
      move->set_bytes_copied(40);
      move->set_bytes_total(100);
    }
    list.set_moves_total(static_cast<uint64_t>(moves));
    list.set_bytes_left(60 * static_cast<uint64_t>(moves));
    list.set_bytes_per_s(30);
    list.mutable_rebalance()->set_on(true);
    return list;
  }
};

TEST_F(MoveCommandsTest, MoveAsksSetsTheDialAndWaits) {
  WillMove({0, 1});
  fake_.lists = {UnderWay(2), UnderWay(1), v1::ListMovesReply()};
  fake_.on_list = [this](const v1::ListMovesRequest& request) {
    EXPECT_EQ(request.number(), 5u);
    if (fake_.lists_asked == 3) Arrive({0, 1});
  };
  const Answer answer = RunAt({"shard", "move", "user/0-1", "--to", "s2", "--bandwidth", "200MiB/s",
                               "--pull-p99-max", "20ms"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  ASSERT_EQ(fake_.moved.moves_size(), 2);
  EXPECT_EQ(fake_.moved.moves(1).shard(), kUser | 1);
  EXPECT_EQ(fake_.moved.moves(1).from(), 0u);
  EXPECT_EQ(fake_.moved.moves(1).to(), kS2);
  EXPECT_EQ(fake_.controlled.bytes_per_s(), 200u << 20);
  EXPECT_EQ(fake_.controlled.pull_p99_ms_max(), 20u);
  EXPECT_THAT(answer.out, HasSubstr("moving 2 shards of 200 B (request 5)"));
  EXPECT_THAT(answer.out, HasSubstr("done in"));
  EXPECT_THAT(answer.err, HasSubstr("2 of 2 moves"));
  EXPECT_EQ(fake_.lists_asked, 3);
}

TEST_F(MoveCommandsTest, MoveThatWasGivenUpFails) {
  WillMove({0, 1});
  Arrive({0});
  const Answer answer = RunAt({"shard", "move", "user/0", "user/1", "--to", "s2"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("1 of 2 shards are not where they were to be, the first is "
                                    "user/1"));
}

TEST_F(MoveCommandsTest, MoveWithoutWaitingReturnsAtOnce) {
  WillMove({0});
  const Answer answer = RunAt({"shard", "move", "user/0", "--to", "s2", "--no-wait"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("hotbed shard moves --watch 5"));
  EXPECT_EQ(fake_.lists_asked, 0);
  const nlohmann::json json =
      RunAt({"shard", "move", "user/0", "--to", "s2", "--no-wait", "-o", "json"}).json();
  EXPECT_EQ(json["request"], 5);
  EXPECT_EQ(json["done"], false);
  EXPECT_EQ(json["moves"][0]["shard"], "user/0");
  EXPECT_EQ(json["moves"][0]["servers"][0], "s2");
}

TEST_F(MoveCommandsTest, DryRunChangesNothing) {
  WillMove({0});
  const Answer answer =
      RunAt({"shard", "move", "user/0", "--to", "s2", "--dry-run", "--bandwidth", "1MiB/s"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(fake_.moved.dry_run());
  EXPECT_FALSE(fake_.controlled.has_bytes_per_s());
  EXPECT_EQ(fake_.lists_asked, 0);
  EXPECT_THAT(answer.out, HasSubstr("would move 1 shard"));
}

TEST_F(MoveCommandsTest, RangesPassOverWhatIsThere) {
  Arrive({0, 1, 2, 3});
  const Answer answer = RunAt({"shard", "move", "all", "--to", "s2"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("4 of 4 shards stay: there already"));
  EXPECT_EQ(fake_.moved.moves_size(), 0);
  const nlohmann::json json = RunAt({"shard", "move", "all", "--to", "s2", "-o", "json"}).json();
  EXPECT_EQ(json["passed_over"], 4);
  EXPECT_EQ(json["done"], true);
  RunAt({"shard", "move", "user/all", "--from", "s2", "--to", "s0", "--no-wait"});
  ASSERT_EQ(fake_.moved.moves_size(), 4);
  EXPECT_EQ(fake_.moved.moves(0).from(), kS2);
}

TEST_F(MoveCommandsTest, RefusalsAreToldAsTheCoordinatorSaysThem) {
  fake_.move_status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                                   "user/0 is on s2 already: nothing to move");
  const Answer answer = RunAt({"shard", "move", "user/0", "--to", "s2"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(answer.err, "hotbed: user/0 is on s2 already: nothing to move\n");
  EXPECT_THAT(RunAt({"shard", "move", "user/0", "--to", "s9"}).err,
              HasSubstr("--to s9: there is no server 's9'; did you mean 's"));
  EXPECT_THAT(RunAt({"shard", "move", "user/9", "--to", "s2"}).err, HasSubstr("shards 0-3"));
}

TEST_F(MoveCommandsTest, WrongFlagsExitWithTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {"shard", "move", "user/0"},
      {"shard", "move", "--to", "s2"},
      {"shard", "move", "user/0", "--to", "s2", "--bandwidth", "fast"},
      {"shard", "move", "user/0", "--to", "s2", "--pull-p99-max", "2h"},
      {"shard", "drain"},
      {"shard", "abort"},
      {"shard", "abort", "0"},
      {"shard", "abort", "5", "--all"},
      {"rebalance", "maybe"},
      {"events", "--limit", "0"},
  };
  for (const auto& args : wrong) {
    const Answer answer = Ask(args);
    EXPECT_EQ(answer.code, 2) << ::testing::PrintToString(args) << answer.err;
    EXPECT_EQ(answer.out, "");
  }
}

TEST_F(MoveCommandsTest, DrainWaitsUntilNothingNamesTheServer) {
  *fake_.drain_reply.mutable_server() = fake_.map.servers(0);
  fake_.drain_reply.set_shards(3);
  fake_.map.mutable_servers(0)->set_draining(true);
  // No move is listed from the start: the shards of the server decide.
  fake_.on_list = [this](const v1::ListMovesRequest& request) {
    EXPECT_EQ(request.number(), 6u);
    if (fake_.lists_asked == 3) Arrive({0, 1, 2});
  };
  const Answer answer = RunAt({"shard", "drain", "s0"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(fake_.drained.server(), "10");
  EXPECT_FALSE(fake_.drained.undo());
  EXPECT_EQ(fake_.lists_asked, 3);
  EXPECT_THAT(answer.out, HasSubstr("draining s0: 3 replicas to leave (request 6)"));
  EXPECT_THAT(answer.out, HasSubstr("it may be stopped"));
  EXPECT_THAT(answer.out, HasSubstr("hotbed shard drain s0 --undo"));
}

TEST_F(MoveCommandsTest, DrainThatIsUndoneMeanwhileFails) {
  *fake_.drain_reply.mutable_server() = fake_.map.servers(0);
  const Answer answer = RunAt({"shard", "drain", "s0"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("the drain of s0 was undone; 3 shards are still there"));
}

TEST_F(MoveCommandsTest, DrainMayBeTriedAndUndone) {
  const Answer dry = RunAt({"shard", "drain", "s0", "--dry-run", "-o", "json"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_TRUE(fake_.drained.dry_run());
  EXPECT_EQ(dry.json()["server"], "s0");
  EXPECT_EQ(dry.json()["done"], false);
  const Answer undone = RunAt({"shard", "drain", "s0", "--undo"});
  EXPECT_TRUE(fake_.drained.undo());
  EXPECT_THAT(undone.out, HasSubstr("s0 takes shards again"));
  EXPECT_THAT(RunAt({"shard", "drain", "so"}).err, HasSubstr("did you mean 's"));
}

TEST_F(MoveCommandsTest, AReplicaIsChosenForOneShardOrForAllThatNeedIt) {
  const Answer one = RunAt({"shard", "choose", "user", "2", "--server", "s2", "--yes"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, "chosen: shard 2 kept\n");
  ASSERT_EQ(fake_.choices.size(), 1u);
  EXPECT_EQ(fake_.choices[0].server(), std::to_string(kS2));
  EXPECT_FALSE(fake_.choices[0].dry_run());
  // Shards of a range that need no choice are left out; one that is named by itself is an error.
  fake_.on_choose = [](const v1::ChooseReplicaRequest& request) {
    return ShardId::FromPacked(request.shard()).index == 3
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "nothing is to be chosen");
  };
  const Answer all =
      RunAt({"shard", "choose", "user", "all", "--server", "s2", "--dry-run", "-o", "json"});
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_TRUE(fake_.choices.back().dry_run());
  ASSERT_EQ(all.json()["chosen"].size(), 1u);
  EXPECT_EQ(all.json()["chosen"][0]["shard"], 3);
  const Answer none = RunAt({"shard", "choose", "user", "0", "--server", "s2", "--yes"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("nothing is to be chosen"));
  // What cannot be undone is not done without a word of the person.
  const size_t asked = fake_.choices.size();
  EXPECT_THAT(Ask({"shard", "choose", "user", "0", "--server", "s2"}).err, HasSubstr("--yes"));
  EXPECT_EQ(fake_.choices.size(), asked);
}

TEST_F(MoveCommandsTest, MetadataAreBackedUpAndRebuilt) {
  const std::string path = ::testing::TempDir() + "/hotbed_metadata_backup";
  const Answer backup = RunAt({"metadata", "backup", path, "-o", "json"});
  ASSERT_EQ(backup.code, 0) << backup.err;
  EXPECT_EQ(backup.json()["bytes"], 12);
  EXPECT_EQ(*FileSystem::Real()->ReadAll(path), "the metadata");

  EXPECT_THAT(Ask({"metadata", "rebuild"}).err, HasSubstr("--from-servers"));
  EXPECT_THAT(RunAt({"metadata", "rebuild", "--from-servers"}).err, HasSubstr("not empty"));
  EXPECT_FALSE(fake_.rebuild.dry_run() || fake_.rebuild.without_missing());
  fake_.rebuild_status = grpc::Status::OK;
  fake_.rebuild_reply.set_cluster_id("c");
  fake_.rebuild_reply.set_generation(3);
  fake_.rebuild_reply.add_servers()->set_name("s1");
  fake_.rebuild_reply.set_replicas_kept(4);
  fake_.rebuild_reply.add_servers_missing("s7");
  v1::RebuiltTable* table = fake_.rebuild_reply.add_tables();
  table->mutable_spec()->set_name("orders");
  table->set_left_out("shard 3 is missing");
  table = fake_.rebuild_reply.add_tables();
  table->mutable_spec()->set_name("users");
  table->set_shards_of_earlier_step(2);
  table->set_committed_step(70);
  const Answer text =
      RunAt({"metadata", "rebuild", "--from-servers", "--without-missing", "--dry-run"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(fake_.rebuild.dry_run() && fake_.rebuild.without_missing());
  for (const char* part : {"would adopt cluster c, generation 3, with 1 server: s1; without s7",
                           "left out: shard 3 is missing", "2 shards without the commit of step 70",
                           "4 shards have a late replica"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const Answer json = RunAt({"metadata", "rebuild", "--from-servers", "-o", "json"});
  ASSERT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(json.json()["tables"][0]["left_out"], "shard 3 is missing");
  EXPECT_EQ(json.json()["servers"][0]["name"], "s1");
}

TEST_F(MoveCommandsTest, MovesAreListedWithWhatTheyWaitFor) {
  v1::ListMovesReply list = UnderWay(2);
  list.mutable_moves(1)->set_step("waiting");
  list.mutable_moves(1)->set_bytes_total(0);
  list.mutable_moves(1)->set_waits_for("two transfers to s2 are in progress");
  list.set_paused(true);
  list.mutable_limits()->set_bytes_per_s(1 << 20);
  fake_.lists = {list};
  const Answer text = RunAt({"shard", "moves"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out,
              HasSubstr("2 moves in progress or waiting, 120 B left at 30 B/s, ETA 4.00 s"));
  EXPECT_THAT(text.out, HasSubstr("PAUSED"));
  EXPECT_THAT(text.out, HasSubstr("at most 1 MiB/s"));
  EXPECT_THAT(text.out, HasSubstr("s0 -> s2"));
  EXPECT_THAT(text.out, HasSubstr("40 B of 100 B"));
  EXPECT_THAT(text.out, HasSubstr("two transfers to s2 are in progress"));
  const nlohmann::json json = RunAt({"shard", "moves", "5", "-o", "json"}).json();
  EXPECT_EQ(json["moves_total"], 2);
  EXPECT_EQ(json["moves"][0]["request"], 5);
  EXPECT_EQ(json["moves"][1]["waits_for"], "two transfers to s2 are in progress");
  EXPECT_EQ(json["limits"]["bytes_per_s"], 1 << 20);
  fake_.lists = {UnderWay(1), UnderWay(1), v1::ListMovesReply()};
  const Answer watched = RunAt({"shard", "moves", "--watch"});
  EXPECT_EQ(watched.code, 0) << watched.err;
  EXPECT_THAT(watched.out, HasSubstr("0 moves in progress"));
}

TEST_F(MoveCommandsTest, PauseResumeAbortAndTheDial) {
  fake_.control_reply.set_moves(3);
  fake_.control_reply.set_paused(true);
  EXPECT_THAT(RunAt({"shard", "pause"}).out, HasSubstr("paused: 3 moves\ntransfers: PAUSED"));
  EXPECT_EQ(fake_.controlled.action(), v1::ControlMovesRequest::PAUSE);
  fake_.control_reply.set_paused(false);
  EXPECT_THAT(RunAt({"shard", "resume"}).out, HasSubstr("resumed: 3 moves"));
  EXPECT_EQ(RunAt({"shard", "abort", "5"}).code, 0);
  EXPECT_EQ(fake_.controlled.action(), v1::ControlMovesRequest::ABORT);
  EXPECT_EQ(fake_.controlled.number(), 5u);
  EXPECT_EQ(RunAt({"shard", "abort", "--all", "-o", "json"}).json()["moves"], 3);
  EXPECT_EQ(fake_.controlled.number(), 0u);
  fake_.controlled.Clear();
  fake_.lists = {UnderWay(2)};
  EXPECT_THAT(RunAt({"shard", "abort", "5", "--dry-run"}).out, HasSubstr("would be aborted: 2"));
  EXPECT_EQ(fake_.controlled.action(), v1::ControlMovesRequest::NOTHING);
  EXPECT_THAT(RunAt({"shard", "limit"}).out, HasSubstr("no limit of bandwidth"));
  fake_.control_reply.mutable_limits()->set_pull_p99_ms_max(20);
  EXPECT_THAT(RunAt({"shard", "limit", "--bandwidth", "none", "--pull-p99-max", "20ms"}).out,
              HasSubstr("slower while pulls take above 20 ms"));
  EXPECT_TRUE(fake_.controlled.has_bytes_per_s());
  EXPECT_EQ(fake_.controlled.bytes_per_s(), 0u);
  EXPECT_EQ(fake_.controlled.pull_p99_ms_max(), 20u);
}

TEST_F(MoveCommandsTest, RebalancingOnOffAndStatus) {
  fake_.lists = {UnderWay(0)};
  EXPECT_THAT(RunAt({"rebalance", "status"}).out, HasSubstr("rebalancing on"));
  EXPECT_EQ(RunAt({"rebalance", "status", "-o", "json"}).json()["on"], true);
  EXPECT_THAT(RunAt({"rebalance", "off"}).out, HasSubstr("rebalancing off"));
  EXPECT_EQ(fake_.controlled.action(), v1::ControlMovesRequest::REBALANCE_OFF);
  fake_.control_reply.mutable_rebalance()->set_on(true);
  EXPECT_THAT(RunAt({"rebalance", "on"}).out, HasSubstr("rebalancing on"));
  EXPECT_EQ(fake_.controlled.action(), v1::ControlMovesRequest::REBALANCE_ON);
}

TEST_F(MoveCommandsTest, EventsOldestFirstTheLastOnesAndWhatComes) {
  for (int i = 1; i <= 5; ++i) {
    v1::ClusterEvent* event = fake_.events.add_events();
    event->set_number(static_cast<uint64_t>(i));
    event->set_kind("move");
    event->set_text("event " + std::to_string(i));
  }
  const Answer last = RunAt({"events", "--limit", "2"});
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.out, Not(HasSubstr("event 3")));
  EXPECT_LT(last.out.find("event 4"), last.out.find("event 5"));
  const nlohmann::json json = RunAt({"events", "--after", "3", "-o", "json"}).json();
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["number"], 4);
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGINT);
  });
  const Answer followed = RunAt({"events", "--follow", "--after", "4"});
  later.join();
  EXPECT_EQ(followed.code, 0) << followed.err;
  EXPECT_THAT(followed.out, HasSubstr("event 5"));
}

TEST_F(MoveCommandsTest, PlanApplyMovesWhatThePlannerSays) {
  // All shards are on s0 and s2 is empty, so half of them move.
  fake_.map.mutable_shards(3)->mutable_primary()->set_server(kS0);
  fake_.map.mutable_shards(3)->mutable_members(0)->set_server(kS0);
  for (v1::ServerInfo& server : *fake_.map.mutable_servers()) {
    server.mutable_load()->set_host_bytes_limit(1 << 30);
  }
  fake_.map.mutable_tables(0)->set_rows(1'000'000);
  for (int i = 0; i < 4; ++i) {
    fake_.map.mutable_shards(i)->set_range_first(static_cast<uint64_t>(i) * 250'000);
    fake_.map.mutable_shards(i)->set_range_limit(static_cast<uint64_t>(i) * 250'000 + 250'000);
  }
  const Answer dry = RunAt({"plan", "apply", "--dry-run", "-o", "json"});
  ASSERT_EQ(dry.code, 0) << dry.err << dry.out;
  const nlohmann::json planned = dry.json();
  ASSERT_GT(planned["moves"].size(), 0u);
  EXPECT_EQ(planned["dry_run"], true);
  EXPECT_EQ(fake_.moved.moves_size(), 0) << "a dry run asks for nothing";
  WillMove({0, 1});
  const Answer applied = RunAt({"plan", "apply", "--no-wait", "-o", "json"});
  ASSERT_EQ(applied.code, 0) << applied.err;
  EXPECT_EQ(applied.json()["request"], 5);
  EXPECT_EQ(applied.json()["dry_run"], false);
  EXPECT_EQ(fake_.moved.reason(), "plan apply");
  // The planner cuts this table in eight: two of its pieces are a shard.
  uint64_t rows = 0;
  for (const auto& move : planned["moves"]) {
    rows += move["rows"][1].get<uint64_t>() - move["rows"][0].get<uint64_t>();
  }
  EXPECT_EQ(static_cast<uint64_t>(fake_.moved.moves_size()), rows / 250'000);
  EXPECT_GT(fake_.moved.moves_size(), 0);
  for (const auto& move : fake_.moved.moves()) {
    EXPECT_EQ(move.from(), kS0);
    EXPECT_EQ(move.to(), kS2);
  }
  const Answer drained = RunAt({"plan", "apply", "--drain", "s0"});
  EXPECT_EQ(drained.code, 1);
  EXPECT_THAT(drained.err, HasSubstr("hotbed shard drain s0"));
}

TEST_F(MoveCommandsTest, PlanApplyMovesSeveralReplicasOfAShardTogether) {
  // Both replicas of every shard are on s0 and s2; s3 and s4 are empty.
  for (const uint64_t id : {13, 14}) {
    v1::ServerInfo* const server = fake_.map.add_servers();
    server->set_server(id);
    server->set_name("s" + std::to_string(id - 10));
    server->set_live(true);
  }
  for (v1::ServerInfo& server : *fake_.map.mutable_servers()) {
    server.set_failure_domain("node of " + server.name());
    server.mutable_load()->set_host_bytes_limit(1 << 30);
  }
  fake_.map.mutable_tables(0)->set_rows(1'000'000);
  fake_.map.mutable_tables(0)->set_durability(v1::DURABILITY_REPLICATED);
  fake_.map.mutable_tables(0)->set_replicas(2);
  // As the planner cuts it.
  constexpr uint64_t kShards = 8, kRows = 125'000;
  fake_.map.clear_shards();
  for (uint64_t i = 0; i < kShards; ++i) {
    v1::ShardRecord* const shard = fake_.map.add_shards();
    shard->set_shard(kUser | i);
    shard->set_range_first(i * kRows);
    shard->set_range_limit(i * kRows + kRows);
    shard->set_column_limit(4);
    shard->set_epoch(3);
    shard->set_active(true);
    shard->mutable_primary()->set_server(i % 2 == 0 ? kS0 : kS2);
    for (const uint64_t id : {kS0, kS2}) shard->add_members()->set_server(id);
  }
  WillMove({0});
  const Answer applied = RunAt({"plan", "apply", "--no-wait", "-o", "json"});
  ASSERT_EQ(applied.code, 0) << applied.err;
  std::set<uint64_t> seen;
  int both = 0;
  for (const auto& move : fake_.moved.moves()) {
    EXPECT_TRUE(seen.insert(move.shard()).second) << move.shard() << " stands twice";
    if (move.servers().empty()) continue;
    ++both;
    const std::set<uint64_t> members(move.servers().begin(), move.servers().end());
    EXPECT_EQ(members.size(), 2u);
    EXPECT_NE(members, (std::set<uint64_t>{kS0, kS2})) << "as before";
    EXPECT_EQ(move.from() + move.to(), 0u);
  }
  EXPECT_GT(both, 0);
}

// A plan of a file, and one for a problem, reach the shards of the table; what divides a shard by
// columns is refused by name and asks for nothing.
TEST_F(MoveCommandsTest, PlanApplyTakesAPlanOrAProblem) {
  const std::string path = testing::TempDir() + "/move_commands_test_plan.json";
  const auto write = [&](const std::string& shards) {
    std::ofstream(path) << R"({"strategy": "basic", "tables": [{"name": "user", "shards": [)"
                        << shards << "]}]}";
  };
  write(R"({"server": "s2", "rows": [0, 50], "columns": [0, 4]},
           {"server": "s0", "rows": [50, 75], "columns": [0, 4]},
           {"server": "s1", "rows": [75, 100], "columns": [0, 4]})");
  WillMove({0, 1});
  const Answer dry = RunAt({"plan", "apply", path, "--dry-run"});
  ASSERT_EQ(dry.code, 0) << dry.err << dry.out;
  EXPECT_TRUE(fake_.moved.dry_run()) << "the coordinator says whether the servers may take them";
  EXPECT_THAT(dry.out, HasSubstr("A plan by strategy basic for plan revision 7"));
  EXPECT_THAT(dry.out, HasSubstr("2 moves"));
  const Answer applied = RunAt({"plan", "apply", path, "--no-wait", "-o", "json"});
  ASSERT_EQ(applied.code, 0) << applied.err;
  EXPECT_EQ(applied.json()["request"], 5);
  EXPECT_FALSE(fake_.moved.dry_run());
  ASSERT_EQ(fake_.moved.moves_size(), 2);
  EXPECT_EQ(fake_.moved.moves(1).shard(), kUser | 1);
  EXPECT_EQ(fake_.moved.moves(1).to(), 0u);
  ASSERT_EQ(fake_.moved.moves(1).servers_size(), 1);
  EXPECT_EQ(fake_.moved.moves(1).servers(0), kS2);

  fake_.moved.Clear();
  write(R"({"server": "s2", "rows": [0, 40], "columns": [0, 2]},
           {"server": "s0", "rows": [0, 40], "columns": [2, 4]},
           {"server": "s0", "rows": [40, 100], "columns": [0, 4]})");
  const Answer cut = RunAt({"plan", "apply", path});
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.err, HasSubstr("table \"user\", shard 1 (rows [25, 40)"));
  EXPECT_EQ(RunAt({"plan", "apply", path, "--move-bytes-max", "1GiB"}).code, 1);
  EXPECT_EQ(RunAt({"plan", "apply", path, "--input", path}).code, 2);
  EXPECT_EQ(fake_.moved.moves_size(), 0);

  // By basic the one table goes to the first server of the problem; by cost it may stay.
  const auto problem = [&](const std::string& strategy) {
    std::ofstream(path) << R"({"tables": [{"name": "user", "rows": 100, "dim": 4}],
        "topology": {"servers": [{"name": "s2", "host_bytes": 1e9}, {"name": "s0",
        "host_bytes": 1e9}, {"name": "s1", "host_bytes": 1e9}]}, "planner": {"strategy": ")"
                        << strategy << R"(", "column_slice_threshold": 1000}})";
  };
  problem("basic");
  WillMove({2, 3});
  const Answer basic = RunAt({"plan", "apply", "--input", path, "--no-wait"});
  ASSERT_EQ(basic.code, 0) << basic.err << basic.out;
  ASSERT_EQ(fake_.moved.moves_size(), 4);
  for (const auto& move : fake_.moved.moves()) EXPECT_EQ(move.servers(0), kS2);
  fake_.map.mutable_tables(0)->set_dim(8);
  const Answer resized = RunAt({"plan", "apply", "--input", path});
  EXPECT_EQ(resized.code, 1);
  EXPECT_THAT(resized.err, HasSubstr("table \"user\" is 100 rows x 4 columns in --input and 100 "
                                     "rows x 8 columns in the cluster"));
  problem("nonsense");
  EXPECT_EQ(RunAt({"plan", "apply", "--input", path}).code, 1);
}

}  // namespace move_commands_test
}  // namespace hotbed
