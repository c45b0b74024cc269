// Several clients push concurrently, others read, and the server is killed repeatedly. Integer
// gradients under SGD with rate 1 make every lost or doubled push show in the sums, exactly.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace conserved_sum_test {

constexpr uint32_t kDim = 8;
constexpr uint64_t kRows = 2000;
constexpr int kClients = 3;

TableSpec SumTable(Durability durability) {
  TableSpec table = TestTable(1, "sums", kRows, kDim, OptimizerKind::kSgd);
  table.optimizer.learning_rate = 1.0f;
  table.initializer = {InitializerKind::kZero, 0, 0};
  table.durability = durability;
  return table;
}

// What all clients together have pushed to each row.
using Expected = std::vector<std::atomic<int>>;

void PushRandomly(TestClient* client, Random* random, uint64_t* step, int pushes,
                  Expected* expected) {
  for (int i = 0; i < pushes; ++i) {
    std::vector<uint64_t> ids;
    for (uint64_t row = random->Uniform(40); row < kRows; row += 1 + random->Uniform(80)) {
      ids.push_back(row);
    }
    std::vector<float> gradients;
    for (const uint64_t id : ids) {
      const int value = static_cast<int>(random->Uniform(7)) - 3;
      (*expected)[id].fetch_add(value);
      gradients.insert(gradients.end(), kDim, static_cast<float>(value));
    }
    client->Push(1, ++*step, ids, gradients);
  }
}

void ExpectExact(TestServer* server, const Expected& expected) {
  std::vector<uint64_t> ids(kRows);
  for (uint64_t i = 0; i < kRows; ++i) ids[i] = i;
  const std::vector<float> rows = server->Pull(1, ids);
  for (uint64_t i = 0; i < kRows; ++i) {
    for (uint32_t c = 0; c < kDim; ++c) {
      ASSERT_EQ(rows[i * kDim + c], static_cast<float>(-expected[i].load()))
          << "row " << i << ", column " << c;
    }
  }
}

struct Case {
  const char* name;
  uint64_t hot_bytes;
  int rounds;
};

class ConservedSumTest : public testing::TestWithParam<Case> {};

TEST_P(ConservedSumTest, OverConcurrentClientsAndKills) {
  const TestSeed seed(77);
  const TempDir dir;
  ShardHostOptions options;
  options.data_dir = dir.path();
  options.host_bytes = 64ull << 20;
  options.hot_bytes = GetParam().hot_bytes;
  options.log_bytes_max = 8ull << 20;
  TestServer server(options, {SumTable(Durability::kLog)}, 3);
  server.Start();
  Expected expected(kRows);
  std::vector<std::unique_ptr<TestClient>> clients;
  std::vector<Random> randoms;
  std::vector<uint64_t> steps(kClients, 0);
  for (int c = 0; c < kClients; ++c) {
    clients.push_back(std::make_unique<TestClient>(&server, 10 + c));
    randoms.emplace_back(seed.value() * 31 + c);
  }
  for (int round = 0; round < GetParam().rounds; ++round) {
    std::atomic<bool> stop{false};
    std::thread reader([&] {
      Random random(seed.value() + round);
      while (!stop.load()) {
        const uint64_t id = random.Uniform(kRows);
        const std::vector<float> row = server.Pull(1, {id});
        // No torn rows: all columns of a row are pushed alike.
        for (uint32_t c = 1; c < kDim; ++c) ASSERT_EQ(row[c], row[0]) << "row " << id;
      }
    });
    std::vector<std::thread> threads;
    for (int c = 0; c < kClients; ++c) {
      threads.emplace_back(
          [&, c] { PushRandomly(clients[c].get(), &randoms[c], &steps[c], 30, &expected); });
    }
    for (std::thread& thread : threads) thread.join();
    stop.store(true);
    reader.join();
    ExpectExact(&server, expected);
    server.Kill();
    server.Start();
    for (auto& client : clients) client->ResendLast();
    ExpectExact(&server, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Budgets, ConservedSumTest,
                         testing::Values(Case{"AllResident", 16ull << 20, 4},
                                         Case{"ASliverResident", 32ull << 10, 4}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// The real thing: the process that holds the shards ends without running a destructor.
TEST(ProcessKillTest, NothingAcknowledgedIsLost) {
  const TempDir dir;
  ShardHostOptions options;
  options.data_dir = dir.path();
  options.host_bytes = 64ull << 20;
  options.hot_bytes = 32ull << 10;
  constexpr int kPushes = 40;
  const std::vector<uint64_t> ids = {1, 700, 1400, 1999};
  const std::vector<float> ones(ids.size() * kDim, 1.0f);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto* server = new TestServer(options, {SumTable(Durability::kLog)}, 3);
    server->Start();
    TestClient client(server, 7);
    for (uint64_t step = 1; step <= kPushes; ++step) client.Push(1, step, ids, ones);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child says " << status;
  TestServer server(options, {SumTable(Durability::kLog)}, 3);
  server.Start();
  for (const float value : server.Pull(1, ids)) EXPECT_EQ(value, -static_cast<float>(kPushes));
}

}  // namespace conserved_sum_test
}  // namespace hotbed
