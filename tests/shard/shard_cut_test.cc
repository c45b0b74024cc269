// Shards that are cut in two on a server: rows, sessions and the log go on in both parts, whenever
// the server is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/common/fault_file_system.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace shard_cut_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kDim = 2;
constexpr uint64_t kRows = 1000;

class ShardCutTest : public testing::Test {
 protected:
  ShardCutTest() : seed_(5), files_(seed_.value()) {}

  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.files = &files_;
    options.checkpoint_interval_ms = 0;
    return options;
  }
  static TableSpec Countdown(bool hashed, Durability durability) {
    TableSpec table = TestTable(1, "countdown", kRows, kDim, OptimizerKind::kSgd);
    table.hashed = hashed;
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    table.durability = durability;
    return table;
  }
  static std::vector<float> Ones(size_t rows) { return std::vector<float>(rows * kDim, 1.0f); }
  void Kill(TestServer* server) {
    server->Kill();
    files_.Kill();
  }
  static uint64_t Middle(const ShardRecord& record) {
    return record.range.first + (record.range.limit - record.range.first) / 2;
  }
  static void Cut(TestServer* server, TestClient* client, ShardId shard, bool tell = true) {
    client->LearnCut(shard, server->Cut(shard, Middle(server->record(shard)), tell));
  }

  TestSeed seed_;
  TempDir dir_;
  FaultFileSystem files_;
};

TEST_F(ShardCutTest, RowsAndSessionsGoOnInBothParts) {
  for (const Durability durability : {Durability::kLog, Durability::kCheckpoint}) {
    TempDir dir;
    ShardHostOptions options = Options();
    options.data_dir = dir.path();
    options.files = nullptr;
    TestServer server(options, {Countdown(false, durability)}, 1);
    server.Start();
    TestClient client(&server, 7);
    client.Push(1, 1, {5, 700}, Ones(2));
    Cut(&server, &client, {1, 0});
    ASSERT_EQ(server.records().size(), 2u);
    EXPECT_EQ(server.Pull(1, {5, 700, 701}), (std::vector<float>{-1, -1, -1, -1, 0, 0}));
    client.ResendLast();
    EXPECT_EQ(server.Pull(1, {5, 700}), std::vector<float>(2 * kDim, -1.0f)) << "pushed once";
    client.Push(1, 2, {5, 700}, Ones(2));
    EXPECT_EQ(server.Pull(1, {5, 700}), std::vector<float>(2 * kDim, -2.0f));
    ASSERT_TRUE(server.Stop().ok());
    server.Start();
    client.ResendLast();
    EXPECT_EQ(server.Pull(1, {5, 700}), std::vector<float>(2 * kDim, -2.0f));
  }
}

TEST_F(ShardCutTest, APartRefusesRowsOfTheOther) {
  TestServer server(Options(), {Countdown(false, Durability::kLog)}, 1);
  server.Start();
  const ShardId upper = server.Cut({1, 0}, 400);
  auto pull = server.MakePull(1, {5, 700});
  for (PullSegment& segment : pull->segments) {
    const bool is_upper = segment.shard_id == upper;
    segment.ids = pull->ids[is_upper ? 0 : 1].data();
  }
  server.Run(pull.get());
  for (const PullSegment& segment : pull->segments) {
    EXPECT_EQ(segment.result.code, SegmentCode::kOutOfRange) << segment.result.detail;
  }
}

// A server that was killed before it heard of the cut cuts its replica when it is told.
TEST_F(ShardCutTest, IsHeardOfAfterARestart) {
  TestServer server(Options(), {Countdown(true, Durability::kLog)}, 1);
  server.Start();
  TestClient client(&server, 7);
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < 64; ++id) ids.push_back(id);
  client.Push(1, 1, ids, Ones(ids.size()));
  Cut(&server, &client, {1, 0}, /*tell=*/false);
  Kill(&server);
  server.Start();
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, ids), std::vector<float>(ids.size() * kDim, -1.0f));
}

// A backup prepares a cut as its primary does, and may do so while it carries the cut out. Then its
// thread for cuts must go on.
TEST_F(ShardCutTest, PreparationsEndWhileTheShardIsCut) {
  TestServer server(Options(), {Countdown(false, Durability::kLog)}, 1);
  server.Start();
  constexpr int kThreads = 3;
  constexpr uint32_t kCuts = 60;
  std::atomic<bool> ends{false};
  std::atomic<uint32_t> shards{1};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      while (!ends.load()) {
        const absl::StatusOr<Epoch> prepared = server.host()->PrepareCut({1, shards.load() - 1});
        prepared.IgnoreError();  // it is being cut
      }
    });
  }
  for (uint32_t i = 0; i < kCuts; ++i) {
    const ShardRecord& newest = server.records().back();
    server.Cut(newest.shard, newest.range.first + 1);
    shards.fetch_add(1);
  }
  ends.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server.records().size(), kCuts + 1);
}

// A record that shows one part alone: the replica stays whole until the other one is known.
TEST_F(ShardCutTest, WaitsForTheRecordOfTheOtherPart) {
  TestServer server(Options(), {Countdown(false, Durability::kLog)}, 1);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5, 700}, Ones(2));
  Cut(&server, &client, {1, 0}, /*tell=*/false);
  EXPECT_EQ(server.host()->ApplyAssignment({}, {server.record({1, 0})}, {}).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_THAT(server.host()->PartsWanted(), ElementsAre(ShardId{1, 0}));
  EXPECT_TRUE(server.host()->ApplyAssignment({}, server.records(), {}).ok());
  EXPECT_THAT(server.host()->PartsWanted(), IsEmpty());
  server.Activate();
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {5, 700}), std::vector<float>(2 * kDim, -1.0f));
}

// After a restart, with the record of the new part alone: its rows are here, in the whole.
TEST_F(ShardCutTest, SaysNothingOfAPartThatLiesUnderTheWhole) {
  TestServer server(Options(), {Countdown(false, Durability::kLog)}, 1);
  server.Start();
  const ShardId part = server.Cut({1, 0}, 400, /*tell=*/false);
  ShardRecord earlier = server.record(part);
  for (Member& member : earlier.members) --member.incarnation;  // of a life before
  earlier.base = earlier.members;
  earlier.primary = earlier.members.front();
  ASSERT_TRUE(server.host()->ApplyAssignment({}, {earlier}, {}).ok());
  for (const ShardHost::HeldReplica& held : server.host()->HeldReplicas(/*asked_for=*/true)) {
    EXPECT_NE(held.shard, part) << "nothing: " << held.nothing;
  }
}

// Against a dumb twin: a counter per row. Pushes, cuts of cuts, kills before and after the parts
// are durable, with a memory that holds few rows.
TEST_F(ShardCutTest, HoldsEveryPushOnceOverKills) {
  for (const bool hashed : {false, true}) {
    TempDir dir;
    ShardHostOptions options = Options();
    options.data_dir = dir.path();
    options.hot_bytes = 16384;
    options.log_segment_bytes = 64 << 10;
    Random random(seed_.value() + (hashed ? 1 : 0));
    TestServer server(options, {Countdown(hashed, Durability::kLog)}, 2);
    server.Start();
    TestClient client(&server, 7);
    std::map<uint64_t, float> twin;
    uint64_t step = 0;
    for (int round = 0; round < 12; ++round) {
      for (int push = 0; push < 20; ++push) {
        std::map<uint64_t, float> ids;
        for (int i = 0; i < 16; ++i) ids[random.Uniform(kRows)] = 1;
        std::vector<uint64_t> list;
        for (const auto& [id, one] : ids) list.push_back(id);
        client.Push(1, ++step, list, Ones(list.size()));
        for (const uint64_t id : list) twin[id] += 1;
      }
      const auto shard = static_cast<uint32_t>(random.Uniform(server.records().size()));
      const uint64_t dice = random.Uniform(4);
      if (round < 8) Cut(&server, &client, {1, shard}, /*tell=*/dice != 0);
      if (dice == 1) Clock::Real()->SleepNs(1'300'000'000);  // the upkeep makes the parts durable
      if (dice < 3) {
        Kill(&server);
        server.Start();
      }
      client.ResendLast();
    }
    EXPECT_EQ(server.records().size(), 10u);
    for (const auto& [id, pushed] : twin) {
      ASSERT_EQ(server.Pull(1, {id}), std::vector<float>(kDim, -pushed)) << "id " << id;
    }
  }
}

}  // namespace shard_cut_test
}  // namespace hotbed
