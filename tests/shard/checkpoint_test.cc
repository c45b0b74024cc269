// Class checkpoint: what is kept, when, and what comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/common/fault_file_system.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace checkpoint_test {

constexpr uint32_t kDim = 4;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : seed_(11), files_(seed_.value()) {}

  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.files = &files_;
    options.checkpoint_interval_ms = 0;
    return options;
  }
  static TableSpec Countdown(TableId id, Durability durability) {
    TableSpec table = TestTable(id, "countdown", 1000, kDim, OptimizerKind::kSgd);
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

  TestSeed seed_;
  TempDir dir_;
  FaultFileSystem files_;
};

TEST_F(CheckpointTest, IsKeptWhileItRuns) {
  ShardHostOptions options = Options();
  options.checkpoint_interval_ms = 50;
  TestServer server(options, {Countdown(1, Durability::kCheckpoint)}, 2);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5, 700}, Ones(2));
  for (int i = 0; i < 1000 && server.host()->Status().numbers["checkpoints"] == 0; ++i) {
    Clock::Real()->SleepNs(10'000'000);
  }
  EXPECT_GE(server.host()->Status().numbers["checkpoints"], 1u);
  const uint64_t kept = server.host()->Status().numbers["checkpoints"];
  Clock::Real()->SleepNs(300'000'000);
  EXPECT_LE(server.host()->Status().numbers["checkpoints"], kept + 1)
      << "nothing has changed since";
  Kill(&server);
  server.Start();
  EXPECT_EQ(server.Pull(1, {5, 700}), std::vector<float>(2 * kDim, -1.0f));
  client.ResendLast();
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, -1.0f)) << "sessions come with it";
}

// Each push takes one off row k and one off row 999 - k: whatever comes back must not have half of
// one, though most rows are in the spill tier and change while it is made.
TEST_F(CheckpointTest, HoldsWholePushes) {
  ShardHostOptions options = Options();
  options.checkpoint_interval_ms = 20;
  options.hot_bytes = 4096;
  TestServer server(options, {Countdown(1, Durability::kCheckpoint)}, 1);
  server.Start();
  TestClient client(&server, 7);
  uint64_t step = 0;
  for (int life = 0; life < 3; ++life) {
    const int64_t end_ns = Clock::Real()->NowNs() + 400'000'000;
    do {
      const uint64_t k = ++step % 100;
      client.Push(1, step, {k, 999 - k}, Ones(2));
    } while (Clock::Real()->NowNs() < end_ns ||
             server.host()->Status().numbers["checkpoints"] == 0);
    Kill(&server);
    server.Start();
    client.Restart();
    float sum = 0;
    for (uint64_t k = 0; k < 100; ++k) {
      const std::vector<float> pair = server.Pull(1, {k, 999 - k});
      ASSERT_EQ(pair[0], pair[kDim]) << "row " << k;
      sum -= pair[0];
    }
    EXPECT_GT(sum, 0.0f);
    EXPECT_LE(sum, static_cast<float>(step));
  }
}

TEST_F(CheckpointTest, AStopThatFailsLaterHasKeptItAlready) {
  TestServer server(Options(),
                    {Countdown(1, Durability::kLog), Countdown(2, Durability::kCheckpoint)}, 1);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 1, {5}, Ones(1));
  client.Push(2, 1, {5}, Ones(1));
  files_.FailSyncs(1 << 30);
  EXPECT_FALSE(server.Stop().ok());
  files_.FailSyncs(0);
  files_.Kill();
  server.Start();
  EXPECT_EQ(server.Pull(2, {5}), std::vector<float>(kDim, -1.0f));
  EXPECT_EQ(server.Pull(1, {5}), std::vector<float>(kDim, -1.0f)) << "from its log";
}

}  // namespace checkpoint_test
}  // namespace hotbed
