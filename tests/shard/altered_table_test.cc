// A table's options change while it is pushed to: from the step on, on every shard, and the same
// after a restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "server/host/catalog_file.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace altered_table_test {

constexpr uint32_t kDim = 4;

TableChange Rate(uint64_t at_step, float rate) {
  return {.at_step = at_step, .has_learning_rate = true, .learning_rate = rate};
}

class AlteredTableTest : public testing::Test {
 protected:
  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    return options;
  }

  // SGD with rate 1 on rows that start at zero: a push of ones takes the rate off.
  static TableSpec Countdown(TableId id) {
    TableSpec table = TestTable(id, "countdown", 1000, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    return table;
  }

  static std::vector<float> Ones(size_t rows) { return std::vector<float>(rows * kDim, 1.0f); }
  float Value(TestServer* server, uint64_t id) { return server->Pull(1, {id})[0]; }
  Catalog Stored() {
    KeptFile file(dir_.path() + "/CATALOG", FileSystem::Real(), {});
    return *Catalog::Load(&file);
  }

  TempDir dir_;
};

TEST_F(AlteredTableTest, PushesGoByTheOptionsOfTheirStep) {
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  TestClient client(&server, 7);
  const std::vector<uint64_t> ids = {3, 999};  // of different shards
  client.Push(1, 1, ids, Ones(2));
  server.Alter(1, Rate(5, 0.5f));
  client.Push(1, 4, ids, Ones(2));
  EXPECT_EQ(Value(&server, 3), -2.0f) << "step 4 is before the change";
  client.Push(1, 5, ids, Ones(2));
  EXPECT_EQ(Value(&server, 3), -2.5f);
  EXPECT_EQ(Value(&server, 999), -2.5f);
  server.Alter(1, {.at_step = 8,
                   .has_schedule = true,
                   .schedule = {.kind = ScheduleKind::kStep, .step_size = 8, .gamma = 0.5f}});
  client.Push(1, 7, ids, Ones(2));
  EXPECT_EQ(Value(&server, 3), -3.0f);
  client.Push(1, 8, ids, Ones(2));
  EXPECT_EQ(Value(&server, 3), -3.25f) << "half of the changed rate, by the schedule";
}

TEST_F(AlteredTableTest, TheChangeIsOnDiskBeforeAnyoneTellsIt) {
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  server.Alter(1, Rate(5, 0.5f));
  EXPECT_EQ(Stored().tables.at(1).changes, std::vector<TableChange>{Rate(5, 0.5f)});
  server.Kill();
  server.Open();
  EXPECT_EQ(Stored().tables.at(1).changes, std::vector<TableChange>{Rate(5, 0.5f)});
  server.Assign();
  TestClient client(&server, 7);
  client.Push(1, 5, {3}, Ones(1));
  EXPECT_EQ(Value(&server, 3), -0.5f);
}

// A push of a later step that came before the change was known keeps the options that it was
// resolved with: also when it is applied again from the log, by a server that knows the change.
TEST_F(AlteredTableTest, AReplayAppliesWhatWasApplied) {
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 6, {3}, Ones(1));
  server.Alter(1, Rate(5, 0.5f));
  client.Push(1, 7, {3}, Ones(1));
  EXPECT_EQ(Value(&server, 3), -1.5f);
  server.Kill();
  server.Start();
  EXPECT_EQ(Value(&server, 3), -1.5f) << "step 6 was resolved with rate 1";
  client.ResendLast();
  EXPECT_EQ(Value(&server, 3), -1.5f);
  client.Push(1, 8, {3}, Ones(1));
  EXPECT_EQ(Value(&server, 3), -2.0f);
}

TEST_F(AlteredTableTest, AServerThatWasAwayLearnsTheChangeWithItsAssignment) {
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  server.Kill();
  server.Alter(1, Rate(5, 0.5f), /*tell=*/false);
  server.Start();
  TestClient client(&server, 7);
  client.Push(1, 5, {3}, Ones(1));
  EXPECT_EQ(Value(&server, 3), -0.5f);
  EXPECT_EQ(Stored().tables.at(1).changes.size(), 1u);
}

TEST_F(AlteredTableTest, ChangesOfATableThatIsNotHeldAreNotKept) {
  TestServer server(Options(), {Countdown(1)}, 1);
  server.Start();
  TableSpec other = Countdown(2);
  ASSERT_TRUE(AddTableChange(Rate(5, 0.5f), &other).ok());
  ASSERT_TRUE(server.host()->ApplyAssignment({other}, {}, {}).ok());
  EXPECT_FALSE(Stored().tables.contains(2));
}

// Changes of steps far ahead, while others push: nobody sees them before their step, and a replay
// gives the same bits.
TEST_F(AlteredTableTest, ChangesUnderLoad) {
  constexpr int kClients = 3;
  constexpr uint64_t kSteps = 300;
  TestServer server(Options(), {Countdown(1)}, 4);
  server.Start();
  std::vector<std::thread> threads;
  for (int c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      TestClient client(&server, 100 + c);
      for (uint64_t s = 1; s <= kSteps; ++s) {
        client.Push(1, s, {uint64_t(c), uint64_t(500 + c)}, Ones(2));
      }
    });
  }
  for (int change = 1; change <= 20; ++change) {
    server.Alter(1, Rate(kSteps * 10 + change, 7.0f));
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  for (int c = 0; c < kClients; ++c) {
    EXPECT_EQ(Value(&server, c), -float{kSteps});
    EXPECT_EQ(Value(&server, 500 + c), -float{kSteps});
  }
  server.Kill();
  server.Start();
  for (int c = 0; c < kClients; ++c) EXPECT_EQ(Value(&server, c), -float{kSteps});
  TestClient late(&server, 200);
  late.Push(1, kSteps * 10 + 20, {0}, Ones(1));
  EXPECT_EQ(Value(&server, 0), -float{kSteps} - 7.0f);
}

}  // namespace altered_table_test
}  // namespace hotbed
