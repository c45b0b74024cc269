// Push, pull, restart, kill: the shard host over a real log and real tiers.
#include "server/host/shard_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "common/tables/shard_memory.h"
#include "row_math/types.h"
#include "server/host/catalog_file.h"
#include "server/protocol/session_table.h"
#include "server/shard/shard.h"
#include "server/shard_log/identity_file.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace shard_host_test {

constexpr uint32_t kDim = 4;

class ShardHostTest : public testing::Test {
 protected:
  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.log_bytes_max = 64ull << 20;
    return options;
  }

  static std::vector<float> Ones(size_t rows) { return std::vector<float>(rows * kDim, 1.0f); }

  // SGD with rate 1 on rows that start at zero: each push of ones takes one off.
  static TableSpec Countdown(TableId id) {
    TableSpec table = TestTable(id, "countdown", 1000, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    return table;
  }

  TempDir dir_;
};

// Heap of the process; 0 where a sanitizer has replaced the allocator.
uint64_t HeapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

constexpr uint64_t kUnusedShardBytes = 5 << 10;

// A shard that nobody has used, as most are where there are very many, and one that was used.
TEST_F(ShardHostTest, AShardTakesLittleMemory) {
  const auto opened = [&](uint32_t shards, bool hashed, bool used) {
    TempDir dir;
    ShardHostOptions options = Options();
    options.data_dir = dir.path();
    TableSpec table = Countdown(1);
    table.rows = 1'000'000;
    table.hashed = hashed;
    TestServer server(options, {table}, shards);
    server.Start();
    std::vector<uint64_t> ids;
    for (uint64_t id = 0; id < 1'000'000; id += 500) ids.push_back(id);
    if (used) server.Pull(1, ids);
    return HeapBytes();
  };
  for (const bool hashed : {false, true}) {
    for (const bool used : {false, true}) {
      opened(64, hashed, used);  // what is allocated once
      const uint64_t few = opened(64, hashed, used), many = opened(64 + 512, hashed, used);
      EXPECT_LE(many, few + 512 * (used ? kShardBytes : kUnusedShardBytes))
          << (many - few) / 512 << " bytes each";
    }
  }
}

TEST_F(ShardHostTest, ShardsShareTheirTable) {
  TestServer server(Options(), {Countdown(1)}, 8);
  server.Start();
  const Shard& first = *server.host()->Find({1, 0});
  for (uint32_t shard = 1; shard < 8; ++shard) {
    EXPECT_EQ(&server.host()->Find({1, shard})->table(), &first.table());
  }
}

// Nobody looks at a shard that has nothing going on. One with a request that waits is looked at
// until that is answered.
TEST_F(ShardHostTest, OnlyShardsWithSomethingGoingOnAreWatched) {
  TestServer server(Options(), {Countdown(1)}, 64);
  server.Start();
  const auto watched = [&] {
    size_t count = 0;
    for (uint32_t shard = 0; shard < 64; ++shard) {
      if (server.host()->Find({1, shard})->watched()) ++count;
    }
    return count;
  };
  EXPECT_EQ(watched(), 0u);
  TestClient client(&server, 7);
  client.Push(1, 1, {3, 999, 500}, Ones(3));
  EXPECT_EQ(watched(), 0u);
  bool seen = false;
  while (!seen) {  // the push may be answered before anyone looks
    auto early = server.MakePush(7, 1, 1, {3}, Ones(1));
    early->segments[0].epoch += 1;  // the server has not heard of it yet
    early->segments[0].seq = 2 << 20;
    server.host()->Push(early.get());
    seen = watched() == 1;
    early->done.WaitForNotification();
    EXPECT_EQ(early->segments[0].result.code, SegmentCode::kWrongEpoch);
  }
  while (watched() != 0) std::this_thread::yield();
}

// A shard is opened by the first request for its rows, and a shard that knows of none writes none.
TEST_F(ShardHostTest, ShardsWithoutRowsKeepWhatTheyHave) {
  TestServer server(Options(), {Countdown(1)}, 8);
  server.Start();
  const ShardId used = server.ShardOf(1, 3);
  TestClient client(&server, 7);
  for (uint64_t life = 1; life <= 4; ++life) {
    client.Push(1, life, {3}, Ones(1));
    for (uint32_t shard = 0; shard < 8; ++shard) {
      const auto found = server.host()->Find({1, shard});
      const absl::StatusOr<Lsn> written = found->WriteBack();
      ASSERT_TRUE(written.ok()) << written.status();
      EXPECT_EQ(*written > 0, found->id() == used);
      EXPECT_EQ(found->Status().store.rows_resident, found->id() == used ? 1u : 0u);
    }
    if (life % 2 == 0) {
      server.Kill();
    } else {
      ASSERT_TRUE(server.Stop().ok());
    }
    server.Start();
    EXPECT_EQ(server.Pull(1, {3}), std::vector<float>(kDim, -static_cast<float>(life)));
    EXPECT_EQ(server.Pull(1, {999}), std::vector<float>(kDim, 0.0f));
  }
}

TEST_F(ShardHostTest, PullsSeePushesAndFlagsTellWhatExists) {
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  EXPECT_TRUE(server.host()->Ready());
  TestClient client(&server, 7);
  client.Push(1, 1, {3, 999, 500}, Ones(3));
  client.Push(1, 2, {3}, Ones(1));
  EXPECT_EQ(server.Pull(1, {3}), std::vector<float>(kDim, -2.0f));
  EXPECT_EQ(server.Pull(1, {999, 4}), (std::vector<float>{-1, -1, -1, -1, 0, 0, 0, 0}));
  auto pull = server.MakePull(1, {3, 4});
  server.Run(pull.get());
  EXPECT_EQ(pull->flags[0][0] & 1, 1);
  EXPECT_EQ(pull->flags[0][1] & 1, 0);
}

TEST_F(ShardHostTest, ARestartKeepsRowsAndSessions) {
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  TestClient client(&server, 7);
  for (uint64_t step = 1; step <= 10; ++step) client.Push(1, step, {1, 400, 800}, Ones(3));
  ASSERT_TRUE(server.Stop().ok());
  server.Start();
  EXPECT_EQ(server.Pull(1, {400}), std::vector<float>(kDim, -10.0f));
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {400}), std::vector<float>(kDim, -10.0f));
  client.Push(1, 11, {1, 400, 800}, Ones(3));
  EXPECT_EQ(server.Pull(1, {800}), std::vector<float>(kDim, -11.0f));
}

TEST_F(ShardHostTest, AKillLosesNothingAcknowledgedAndAppliesNothingTwice) {
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  TestClient client(&server, 7);
  uint64_t step = 0;
  for (int life = 0; life < 4; ++life) {
    for (int i = 0; i < 25; ++i) client.Push(1, ++step, {5, 405, 805}, Ones(3));
    server.Kill();
    server.Start();
    client.ResendLast();
  }
  EXPECT_EQ(server.Pull(1, {5, 805}),
            (std::vector<float>{-100, -100, -100, -100, -100, -100, -100, -100}));
}

TEST_F(ShardHostTest, ANewIncarnationOpensAtItsOldStepAndSkipsWhatIsDone) {
  TestServer server(Options(), {Countdown(1)}, 1);
  server.Start();
  TestClient client(&server, 7);
  for (uint64_t step = 1; step <= 5; ++step) client.Push(1, step, {5}, Ones(1));
  client.Restart();
  for (uint64_t step = 3; step <= 6; ++step) client.Push(1, step, {5}, Ones(1));
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, -6.0f));
}

TEST_F(ShardHostTest, ClassCheckpointComesBackAfterAShutdownAndNotAfterAKill) {
  TableSpec table = Countdown(1);
  table.durability = Durability::kCheckpoint;
  TestServer server(Options(), {table}, 2);
  server.Start();
  TestClient first(&server, 7);
  first.Push(1, 1, {5}, Ones(1));
  ASSERT_TRUE(server.Stop().ok());
  server.Start();
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, -1.0f));
  first.Push(1, 2, {5}, Ones(1));
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, -2.0f));
  server.Kill();
  server.Start();
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, -1.0f)) << "the last checkpoint";
}

// Whichever call returns first, everything is written back by then.
TEST_F(ShardHostTest, AConcurrentShutdownWaitsForTheFirst) {
  TestServer server(Options(), {Countdown(1)}, 2);
  server.Start();
  TestClient(&server, 7).Push(1, 1, {5}, Ones(1));
  std::atomic<int> waiting{2};
  std::array<bool, 2> clean = {};
  std::vector<std::thread> callers;
  for (bool& is_clean : clean) {
    callers.emplace_back([&] {
      --waiting;
      while (waiting > 0) {  // both at once
      }
      EXPECT_TRUE(server.host()->Shutdown().ok());
      const auto identity =
          IdentityFile::Load(Options().data_dir + "/IDENTITY", FileSystem::Real());
      is_clean = identity.ok() && identity->clean_shutdown;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(clean[0] && clean[1]);
}

TEST_F(ShardHostTest, ADroppedTableIsGoneAndItsBytesToo) {
  TestServer server(Options(), {Countdown(1), Countdown(2)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5}, Ones(1));
  client.Push(2, 1, {5}, Ones(1));
  auto before = server.MakePull(1, {5});
  ASSERT_TRUE(server.host()->ApplyAssignment({}, {}, {1}).ok());
  server.Run(before.get());
  EXPECT_EQ(before->segments[0].result.code, SegmentCode::kUnavailable);
  auto after = server.MakePull(1, {5});
  server.Run(after.get());
  EXPECT_EQ(after->segments[0].result.code, SegmentCode::kUnknownShard);
  EXPECT_EQ(server.Pull(2, {5}), std::vector<float>(kDim, -1.0f));
  EXPECT_EQ(server.host()->Status().shards.size(), 2u);
}

// Heartbeats read what the server holds while the catalog changes: the sanitizers look on.
TEST_F(ShardHostTest, TellsWhatItHoldsWhileTablesAreDropped) {
  constexpr TableId kTables = 20;
  std::vector<TableSpec> tables;
  for (TableId id = 1; id <= kTables; ++id) tables.push_back(Countdown(id));
  TestServer server(Options(), tables, 8);
  server.Start();
  std::atomic<bool> dropped{false};
  std::thread reader([&] {
    while (!dropped) EXPECT_LE(server.host()->Held().size(), size_t{kTables * 8});
  });
  for (TableId id = 1; id <= kTables; ++id) {
    EXPECT_TRUE(server.host()->ApplyAssignment({}, {}, {id}).ok());
  }
  dropped = true;
  reader.join();
  EXPECT_TRUE(server.host()->Status().shards.empty());
}

TEST_F(ShardHostTest, ATableDroppedWhileTheServerWasDownLeavesNothingBehind) {
  const std::string catalog = dir_.path() + "/CATALOG";
  TestServer server(Options(), {Countdown(1), Countdown(2)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5}, Ones(1));
  client.Push(2, 1, {5}, Ones(1));
  ASSERT_TRUE(server.Stop().ok());
  server.Open();
  EXPECT_EQ(server.host()->Status().shards.size(), 4u) << "as the directory knows them";
  ASSERT_TRUE(server.host()->ApplyAssignment({}, {}, {1}).ok());
  EXPECT_EQ(server.host()->Status().shards.size(), 2u);
  const auto forgotten = [&] {
    KeptFile file(catalog, FileSystem::Real(), {});
    return !Catalog::Load(&file)->tables.contains(1);
  };
  for (int i = 0; i < 100 && !forgotten(); ++i) Clock::Real()->SleepNs(20'000'000);
  EXPECT_TRUE(forgotten());
  server.Kill();
  server.Open();
  EXPECT_EQ(server.host()->Status().shards.size(), 2u) << "its log records bring nothing back";
  server.Assign();  // table 1 again, as a coordinator never does: its old rows must be gone
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, 0.0f));
  EXPECT_EQ(server.Pull(2, {5}), std::vector<float>(kDim, -1.0f));
}

TEST_F(ShardHostTest, ManyClientsOfOnePushEachFindRoom) {
  ShardHostOptions options = Options();
  options.sessions_max = 3;
  options.session_idle_ms = 0;  // every idle session may be dropped
  TestServer server(options, {Countdown(1)}, 1);
  server.Start();
  constexpr int kClients = 20;
  for (SessionId session = 1; session <= kClients; ++session) {
    TestClient client(&server, session, /*incarnation=*/session);
    client.Push(1, 1, {5}, Ones(1));
    client.ResendLast();
    EXPECT_LE(server.host()->Status().shards[0].sessions, 3u);
  }
  const uint64_t sessions = server.host()->Status().shards[0].sessions;
  server.Kill();
  server.Start();
  EXPECT_EQ(server.host()->Status().shards[0].sessions, sessions) << "forgetting is in the log";
  auto again = server.MakePush(1, 1, 1, {5}, Ones(1));
  again->segments[0].seq = 1 << 20 | 1;
  again->segments[0].open = true;
  server.Run(again.get());
  EXPECT_EQ(again->segments[0].result.code, SegmentCode::kFenced) << "it was applied before";
  EXPECT_THAT(again->segments[0].result.detail, testing::HasSubstr("forgotten"));
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, -kClients));
}

// Two shards share one limit, over restarts too.
TEST_F(ShardHostTest, TheSessionsOfAllShardsAreCountedAndLimited) {
  ShardHostOptions options = Options();
  options.session_bytes_max = 40 * SessionTable::kBytesPerSession;
  TestServer server(options, {Countdown(1)}, 2);
  server.Start();
  const auto push = [&](SessionId session) {
    auto work = server.MakePush(session, 1, 1, {5, 995}, Ones(2));
    for (PushSegment& segment : work->segments) {
      segment.seq = 1 << 20 | 1;
      segment.open = true;
    }
    server.Run(work.get());
    EXPECT_EQ(work->segments.size(), 2u);
    return work;
  };
  SessionId refused = 0;
  for (SessionId session = 1; session <= 100 && refused == 0; ++session) {
    auto work = push(session);
    const SegmentResult& result = work->segments.back().result;
    if (result.code == SegmentCode::kOk) continue;
    EXPECT_EQ(result.code, SegmentCode::kResourceExhausted);
    EXPECT_THAT(result.detail, testing::HasSubstr("2560 bytes (--session-bytes-max)"));
    refused = session;
  }
  EXPECT_GE(refused, 20u);
  const uint64_t bytes = server.host()->Status().numbers["session_bytes"];
  EXPECT_GE(bytes, options.session_bytes_max);
  EXPECT_LE(bytes, 2 * options.session_bytes_max);
  auto known = server.MakePush(1, 1, 1, {5, 995}, Ones(2));
  for (PushSegment& segment : known->segments) {
    segment.seq = 2 << 20 | 1;
    segment.prev_seq = 1 << 20 | 1;
  }
  server.Run(known.get());
  EXPECT_EQ(known->segments[0].result.code, SegmentCode::kOk) << "known sessions go on";
  server.Kill();
  server.Start();
  EXPECT_NEAR(server.host()->Status().numbers["session_bytes"], bytes,
              0.25 * static_cast<double>(bytes));
}

TEST_F(ShardHostTest, TheDirectoryIsHeldByOneProcessAndOneIdentity) {
  TestServer server(Options(), {Countdown(1)}, 1);
  server.Start();
  const auto second = ShardHost::Open(Options(), Clock::Real());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  const absl::Status other = server.host()->SetIdentity({2, "elsewhere"});
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), testing::HasSubstr("elsewhere"));
}

TEST_F(ShardHostTest, TheLogStaysUnderItsLimit) {
  ShardHostOptions options = Options();
  options.log_bytes_max = 4ull << 20;
  TestServer server(options, {TestTable(1, "wide", 1000, 256, OptimizerKind::kSgd)}, 4);
  server.Start();
  TestClient client(&server, 7);
  std::vector<uint64_t> ids(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i * 5;
  const std::vector<float> gradients(ids.size() * 256, 0.5f);
  uint64_t pushed = 0;
  uint64_t most = 0;
  for (uint64_t step = 1; step <= 150; ++step) {
    client.Push(1, step, ids, gradients);
    pushed += gradients.size() * 4;
    most = std::max(most, server.host()->Status().numbers["log_bytes"]);
    if (step % 10 == 0) Clock::Real()->SleepNs(60'000'000);
  }
  EXPECT_GT(pushed, 25u << 20);
  EXPECT_LT(most, 8u << 20);
  server.Kill();
  server.Start();
  client.ResendLast();
}

// However much was pushed to few rows, and however long the log may be.
TEST_F(ShardHostTest, TheLogIsShortComparedWithItsRows) {
  ShardHostOptions options = Options();
  options.log_bytes_max = 4ull << 30;
  TestServer server(options, {TestTable(1, "wide", 1000, 256, OptimizerKind::kSgd)}, 4);
  server.Start();
  TestClient client(&server, 7);
  std::vector<uint64_t> ids(1000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  const std::vector<float> gradients(ids.size() * 256, 0.5f);
  for (uint64_t step = 1; step <= 150; ++step) client.Push(1, step, ids, gradients);  // 150 MB
  const int64_t until_ns = Clock::Real()->NowNs() + 30'000'000'000;
  uint64_t left = UINT64_MAX;
  while (left > (84u << 20) && Clock::Real()->NowNs() < until_ns) {
    Clock::Real()->SleepNs(50'000'000);
    left = server.host()->Status().numbers["log_bytes"];
  }
  EXPECT_LE(left, 84u << 20) << "for rows of 1 MB";
  server.Kill();
  server.Start();
  ASSERT_TRUE(server.Stop().ok());  // everything is written back: the newest segment stays
  server.Start();
  EXPECT_LE(server.host()->Status().numbers["log_bytes"], 20u << 20);
  client.ResendLast();
}

}  // namespace shard_host_test
}  // namespace hotbed
