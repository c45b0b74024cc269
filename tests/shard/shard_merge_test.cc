// Neighbouring shards that are merged on a server: rows, sessions and the log go on in the merged
// shard, whenever the server is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "kv/kv_store.h"
#include "server/host/catalog_file.h"
#include "server/tiers/spill/spill_tier.h"
#include "tests/common/fault_file_system.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace shard_merge_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kDim = 2;
constexpr uint64_t kRows = 1000;
const ShardId kLower = {1, 0};
const ShardId kUpper = {1, 1};

class ShardMergeTest : public testing::Test {
 protected:
  ShardMergeTest() : seed_(5), files_(seed_.value()) {}

  ShardHostOptions Options(const TempDir& dir) {
    ShardHostOptions options;
    options.data_dir = dir.path();
    options.host_bytes = 64ull << 20;
    options.files = &files_;
    options.checkpoint_interval_ms = 0;
    return options;
  }
  static TableSpec Countdown(bool hashed, Durability durability = Durability::kLog) {
    TableSpec table = TestTable(1, "countdown", kRows, kDim, OptimizerKind::kSgd);
    table.hashed = hashed;
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    table.durability = durability;
    return table;
  }
  static std::vector<float> Ones(size_t rows) { return std::vector<float>(rows * kDim, 1.0f); }
  static std::vector<float> Minus(size_t rows, float count) {
    return std::vector<float>(rows * kDim, -count);
  }
  void Kill(TestServer* server) {
    server->Kill();
    files_.Kill();
  }
  // The state that a server, which does not run now, has prepared for a merge; empty: none.
  static std::string Prepared(const TempDir& dir, const TestServer& server, ShardId lower) {
    KvOptions kv;
    kv.wal = false;
    auto tier = SpillTier::Open(dir.path() + "/spill", kv);
    EXPECT_TRUE(tier.ok()) << tier.status();
    const SpillShard aside(server.table(lower.table), {0, kRows, 0, kDim},
                           Catalog::MergedName(lower));
    return (*tier)->ReadMeta(aside).value();
  }
  // The coordinator commits the merge; the host is not told.
  static void Commit(TestServer* server, ShardId lower, ShardId upper) {
    auto ready = server->host()->PrepareMerge(lower, upper);
    while (absl::IsUnavailable(ready.status())) {  // a part was cut or merged just now
      Clock::Real()->SleepNs(10'000'000);
      ready = server->host()->PrepareMerge(lower, upper);
    }
    ASSERT_TRUE(ready.ok()) << ready.status();
    ASSERT_GT(ready->epoch, 0u);
    server->Merge(lower, *ready, upper);
  }
  static absl::Status Tell(TestServer* server) {
    return server->host()->ApplyAssignment({}, server->records(), {});
  }

  TestSeed seed_;
  FaultFileSystem files_;
};

TEST_F(ShardMergeTest, RowsAndSessionsGoOnInTheMergedShard) {
  const TempDir dir;
  TestServer server(Options(dir), {Countdown(false)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5, 700}, Ones(2));
  Commit(&server, kLower, kUpper);
  ASSERT_TRUE(Tell(&server).ok());
  EXPECT_THAT(server.host()->Held(), ElementsAre(kLower));
  EXPECT_EQ(server.Pull(1, {5, 700, 701}), (std::vector<float>{-1, -1, -1, -1, 0, 0}));
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {5, 700}), Minus(2, 1)) << "pushed once";
  client.Push(1, 2, {5, 700}, Ones(2));
  ASSERT_TRUE(server.Stop().ok());
  server.Start();
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {5, 700}), Minus(2, 2));
}

// The state that was written ahead of the coordinator's answer is of a moment which has passed.
TEST_F(ShardMergeTest, AMergeThatWasRefusedLeavesNothingForTheNextOne) {
  const TempDir dir;
  ShardHostOptions options = Options(dir);
  options.files = nullptr;
  TestServer server(options, {Countdown(false)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5, 700}, Ones(2));
  for (const bool refused : {false, true}) {
    ASSERT_TRUE(server.host()->PrepareMerge(kLower, kUpper).ok());
    for (const ShardId part : {kLower, kUpper}) {
      if (refused) server.host()->GiveUpCut(part);
    }
    ASSERT_TRUE(server.Stop().ok());
    EXPECT_EQ(Prepared(dir, server, kLower).empty(), refused);
    MarkRowsOpened(dir.path());
    server.Start();
  }
  client.Push(1, 2, {5, 700}, Ones(2));
  Commit(&server, kLower, kUpper);
  ASSERT_TRUE(Tell(&server).ok());
  EXPECT_EQ(server.Pull(1, {5, 700}), Minus(2, 2));
  Kill(&server);
  server.Start();
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {5, 700}), Minus(2, 2));
}

// The last checkpoint of the table has the two parts. `client` pushed before it, `later` after it.
TEST_F(ShardMergeTest, AfterACrashTheLastCheckpointOfTheTableIsMergedOnceMore) {
  const std::vector<uint64_t> ids = {5, 400, 600, 900};
  const std::vector<uint64_t> last = {980};  // of the third shard
  for (const bool told : {true, false}) {
    const TempDir dir;
    ShardHostOptions options = Options(dir);
    options.checkpoint_interval_ms = 3'600'000;  // by a stop, and where a merge waits for one
    TestServer server(options, {Countdown(/*hashed=*/told, Durability::kCheckpoint)}, 3);
    server.Start();
    TestClient client(&server, 7), later(&server, 8);
    client.Push(1, 1, ids, Ones(ids.size()));
    ASSERT_TRUE(server.Stop().ok());
    server.Start();
    later.Push(1, 1, ids, Ones(ids.size()));
    Commit(&server, kLower, kUpper);
    if (told) {
      ASSERT_TRUE(Tell(&server).ok());
      later.Push(1, 2, ids, Ones(ids.size()));
    }
    for (float round = 0; round < 2; ++round) {  // the second one begins with the same checkpoint
      Kill(&server);
      server.Start();
      EXPECT_THAT(server.host()->Held(), ElementsAre(kLower, ShardId{1, 2}));
      EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), 1)) << "the checkpoint, round " << round;
      client.ResendLast();
      EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), round + 1)) << "sessions come with it";
      if (round == 0) client.Push(1, 2, ids, Ones(ids.size()));
    }
    Commit(&server, kLower, {1, 2});  // waits until the merged shard is in a checkpoint
    ASSERT_TRUE(Tell(&server).ok());
    later.Restart();
    later.Push(1, 3, last, Ones(last.size()));
    Kill(&server);
    server.Start();
    EXPECT_THAT(server.host()->Held(), ElementsAre(kLower));
    EXPECT_EQ(server.Pull(1, last), Minus(last.size(), 0));
    client.ResendLast();
    EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), 2)) << "kept with the merged shard";
    client.Push(1, 3, ids, Ones(ids.size()));
    ASSERT_TRUE(server.Stop().ok());
    server.Start();
    Kill(&server);
    server.Start();
    EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), 3)) << "the stop's checkpoint";
  }
}

// A shard that was merged and then cut, all of it since the last checkpoint.
TEST_F(ShardMergeTest, AfterACrashTheMergedShardIsCutOnceMore) {
  const TempDir dir;
  ShardHostOptions options = Options(dir);
  options.checkpoint_interval_ms = 3'600'000;
  TestServer server(options, {Countdown(false, Durability::kCheckpoint)}, 2);
  server.Start();
  TestClient client(&server, 7);
  const std::vector<uint64_t> ids = {5, 400, 600, 900};
  client.Push(1, 1, ids, Ones(ids.size()));
  ASSERT_TRUE(server.Stop().ok());
  server.Start();
  Commit(&server, kLower, kUpper);
  ASSERT_TRUE(Tell(&server).ok());
  client.LearnCut(kUpper, server.Cut(kLower, 700));
  ASSERT_EQ(server.records().size(), 2u);
  Kill(&server);
  server.Start();
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), 1));
}

// The other shards of the server are served.
TEST_F(ShardMergeTest, AMergedShardWhoseStateIsDamagedIsRefusedAlone) {
  std::unique_ptr<TempDir> dir;
  std::unique_ptr<TestServer> server;
  // The upkeep of a slow server may have finished the merge before the kill; then the state is not
  // aside any more.
  do {
    server.reset();
    dir = std::make_unique<TempDir>();
    ShardHostOptions options = Options(*dir);
    options.files = nullptr;
    server = std::make_unique<TestServer>(options, std::vector<TableSpec>{Countdown(false)}, 3);
    server->Start();
    TestClient client(server.get(), 7);
    client.Push(1, 1, {5, 400, 900}, Ones(3));
    Commit(server.get(), kLower, kUpper);
    ASSERT_TRUE(Tell(server.get()).ok());
    server->Kill();
  } while (Prepared(*dir, *server, kLower).empty());
  {
    KvOptions kv;
    kv.wal = false;
    auto tier = SpillTier::Open(dir->path() + "/spill", kv);
    ASSERT_TRUE(tier.ok()) << tier.status();
    const SpillShard aside(server->table(1), {0, kRows, 0, kDim}, Catalog::MergedName(kLower));
    ASSERT_TRUE((*tier)->WriteMeta(aside, "no meta").ok());
    ASSERT_TRUE((*tier)->store()->Flush().ok());
  }
  MarkRowsOpened(dir->path());
  server->Start();
  EXPECT_EQ(server->Pull(1, {900}), Minus(1, 1));
  const auto pull = server->MakePull(1, {5});
  server->Run(pull.get());
  EXPECT_EQ(pull->segments[0].result.code, SegmentCode::kCorrupt);
}

// A segment of a push names one lane: each has sequences of its own.
TEST_F(ShardMergeTest, RefusesRowsOfTwoLanesInOneSegment) {
  const TempDir dir;
  TestServer server(Options(dir), {Countdown(false)}, 2);
  server.Start();
  Commit(&server, kLower, kUpper);
  ASSERT_TRUE(Tell(&server).ok());
  auto push = server.MakePush(7, 1, 1, {5, 6}, Ones(2));
  ASSERT_EQ(push->segments.size(), 1u);
  push->ids[0][1] = 700;
  push->segments[0].seq = 1;
  push->segments[0].open = true;
  server.Run(push.get());
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kInvalidArgument);
  EXPECT_THAT(push->segments[0].result.detail, testing::HasSubstr("are in different lanes"));
}

// At each of its writes in turn the disk fails and the server is killed. (A kill that loses what
// was not flushed comes last: by then no write has failed.)
TEST_F(ShardMergeTest, HoldsEveryPushOnceWhereverTheServerIsKilled) {
  const std::vector<uint64_t> ids = {5, 400, 600, 900};
  bool failed = true;
  int steps = 0;
  for (; failed; ++steps) {
    const TempDir dir;
    TestServer server(Options(dir), {Countdown(false)}, 2);
    server.Start();
    TestClient client(&server, 7);
    client.Push(1, 1, ids, Ones(ids.size()));
    client.Push(1, 2, ids, Ones(ids.size()));
    Commit(&server, kLower, kUpper);
    files_.FailSyncs(1, /*after=*/steps);
    failed = !Tell(&server).ok();
    files_.FailSyncs(0);
    Kill(&server);
    server.Start();
    client.ResendLast();
    EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), 2)) << "step " << steps;
    client.Push(1, 3, ids, Ones(ids.size()));
    EXPECT_THAT(server.host()->Held(), ElementsAre(kLower));
    Kill(&server);
    server.Start();
    client.ResendLast();
    EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), 3)) << "step " << steps;
  }
  EXPECT_GE(steps, 3) << "the promises and the catalog are written";
}

// The same without a kill: the server is told again.
TEST_F(ShardMergeTest, GoesOnWhenTheDiskWorksAgain) {
  const std::vector<uint64_t> ids = {5, 700};
  bool failed = true;
  for (int step = 0; failed; ++step) {
    const TempDir dir;
    TestServer server(Options(dir), {Countdown(true)}, 2);
    server.Start();
    TestClient client(&server, 7);
    client.Push(1, 1, ids, Ones(ids.size()));
    Commit(&server, kLower, kUpper);
    files_.FailSyncs(1, /*after=*/step);
    failed = !Tell(&server).ok();
    files_.FailSyncs(0);
    ASSERT_TRUE(Tell(&server).ok());
    client.ResendLast();
    EXPECT_EQ(server.Pull(1, ids), Minus(ids.size(), 1)) << "step " << step;
  }
}

// Records from before the merge that come late, as from a coordinator that was replaced.
TEST_F(ShardMergeTest, LateRecordsOfThePartsChangeNothing) {
  const TempDir dir;
  TestServer server(Options(dir), {Countdown(false)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5, 700}, Ones(2));
  const std::vector<ShardRecord> before = server.records();
  Commit(&server, kLower, kUpper);
  ASSERT_TRUE(Tell(&server).ok());
  for (const bool restarted : {false, true}) {
    ASSERT_TRUE(server.host()->ApplyAssignment({}, before, {}).ok());
    ASSERT_TRUE(server.host()->ApplyAssignment({}, {before[1]}, {}).ok());
    EXPECT_THAT(server.host()->Held(), ElementsAre(kLower));
    EXPECT_THAT(server.host()->PartsWanted(), IsEmpty());
    if (restarted) break;
    Kill(&server);
    server.Open();
  }
  server.Assign();
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {5, 700}), Minus(2, 1));
}

// Against a dumb twin: a counter per row. Pushes, merges and cuts of merged shards, kills before
// and after they are durable.
TEST_F(ShardMergeTest, HoldsEveryPushOnceOverKills) {
  for (const bool hashed : {false, true}) {
    const TempDir dir;
    ShardHostOptions options = Options(dir);
    options.hot_bytes = 16384;
    options.log_segment_bytes = 64 << 10;
    Random random(seed_.value() + (hashed ? 1 : 0));
    TestServer server(options, {Countdown(hashed)}, 5);
    server.Start();
    TestClient client(&server, 7);
    std::map<uint64_t, float> twin;
    uint64_t step = 0;
    for (uint32_t upper = 1; upper < 5; ++upper) {
      for (int push = 0; push < 20; ++push) {
        std::map<uint64_t, float> ids;
        for (int i = 0; i < 16; ++i) ids[random.Uniform(kRows)] = 1;
        std::vector<uint64_t> list;
        for (const auto& [id, one] : ids) list.push_back(id);
        client.Push(1, ++step, list, Ones(list.size()));
        for (const uint64_t id : list) twin[id] += 1;
      }
      Commit(&server, kLower, {1, upper});
      const uint64_t dice = random.Uniform(4);
      if (dice != 0) {
        ASSERT_TRUE(Tell(&server).ok());
      }
      if (dice == 1) Clock::Real()->SleepNs(1'300'000'000);  // the upkeep ends the merge
      if (dice < 3) {
        Kill(&server);
        server.Start();
      }
      client.ResendLast();
    }
    EXPECT_EQ(server.records().size(), 1u);
    for (const auto& [id, pushed] : twin) {
      ASSERT_EQ(server.Pull(1, {id}), Minus(1, pushed)) << "id " << id;
    }
  }
}

}  // namespace shard_merge_test
}  // namespace hotbed
