// The local engine through the public client: rows, restarts, kill -9, several clients, memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "hotbed/client.h"
#include "hotbed/local.h"
#include "local/memory_directory.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace local_engine_test {

constexpr uint32_t kDim = 8;
constexpr uint64_t kRows = 1000;
constexpr char kChild[] = "HOTBED_LOCAL_TEST_DIRECTORY";

class LocalEngineTest : public ::testing::Test {
 protected:
  // In memory where there is some: a busy disk takes seconds for each file that is synced.
  void SetUp() override {
    const std::string folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ::testing::TempDir();
    std::string path = absl::StrCat(folder, "/hotbed-local-XXXXXX");
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

std::unique_ptr<Client> Open(const std::string& directory, const std::string& session = "",
                             int threads = 1) {
  ClientOptions options;
  options.session_name = session;
  options.threads = threads;
  options.deadline = absl::Seconds(20);
  auto client = ConnectLocal(directory, {.host_bytes = 128 << 20}, options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

TableOptions Items(Durability durability = Durability::kLog) {
  TableOptions table;
  table.name = "items";
  table.rows = kRows;
  table.dim = kDim;
  table.optimizer.kind = OptimizerKind::kSgd;
  table.optimizer.learning_rate = 1.0f;
  table.initializer.kind = InitializerKind::kZero;
  table.durability = durability;
  return table;
}

std::vector<float> Pull(Client* client, const Table* table, const std::vector<uint64_t>& ids) {
  std::vector<float> rows(ids.size() * table->dim());
  const PullFeature in{table, ids, rows.data()};
  const absl::Status pulled = client->Pull({&in, 1}).Wait();
  EXPECT_TRUE(pulled.ok()) << pulled;
  return rows;
}

Future<PushResult> Push(Client* client, const Table* table, uint64_t step,
                        const std::vector<uint64_t>& ids, const std::vector<float>& gradients) {
  const PushFeature out{table, ids, gradients.data()};
  return client->Push(step, {&out, 1});
}

// The rows after pushes, kept in plain arrays.
struct Twin {
  std::vector<float> rows = std::vector<float>(kRows * kDim);

  void Apply(const std::vector<uint64_t>& ids, const std::vector<float>& gradients) {
    std::vector<float> sums(kRows * kDim);
    std::vector<uint64_t> touched;
    for (size_t i = 0; i < ids.size(); ++i) {
      touched.push_back(ids[i]);
      for (uint32_t d = 0; d < kDim; ++d) sums[ids[i] * kDim + d] += gradients[i * kDim + d];
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const uint64_t id : touched) {
      for (uint32_t d = 0; d < kDim; ++d) rows[id * kDim + d] -= sums[id * kDim + d];
    }
  }
};

std::vector<uint64_t> AllIds() {
  std::vector<uint64_t> ids(kRows);
  for (uint64_t id = 0; id < kRows; ++id) ids[id] = id;
  return ids;
}

TEST_F(LocalEngineTest, RandomPushesGiveTheRowsOfATwin) {
  const TestSeed seed(18);
  Random random(seed.value());
  for (const int threads : {1, 3}) {
    const auto client = Open("", "trainer", threads);
    const auto table = client->CreateTable(Items());
    ASSERT_TRUE(table.ok()) << table.status();
    Twin twin;
    std::vector<std::vector<uint64_t>> ids(40);
    std::vector<std::vector<float>> gradients(40);
    std::vector<Future<PushResult>> pushes;
    for (uint64_t step = 1; step <= ids.size(); ++step) {
      for (size_t i = 0; i < 200; ++i) {
        ids[step - 1].push_back(random.Next() % kRows);
        for (uint32_t d = 0; d < kDim; ++d) {
          gradients[step - 1].push_back(static_cast<float>(random.Next() % 1000) / 997);
        }
      }
      pushes.push_back(Push(client.get(), *table, step, ids[step - 1], gradients[step - 1]));
      twin.Apply(ids[step - 1], gradients[step - 1]);
    }
    for (const auto& push : pushes) ASSERT_TRUE(push.Wait().status.ok()) << push.Wait().status;
    EXPECT_EQ(Pull(client.get(), *table, AllIds()), twin.rows) << threads << " threads";
  }
}

TEST_F(LocalEngineTest, ConnectTakesLocalAndARestartFindsEverything) {
  std::vector<float> before;
  const std::vector<uint64_t> ids = {3, 999, 3, 0};
  const std::vector<float> ones(ids.size() * kDim, 1.0f);
  for (const Durability durability : {Durability::kLog, Durability::kCheckpoint}) {
    const std::string directory =
        absl::StrCat(directory_, "/", durability == Durability::kLog ? "log" : "checkpoint");
    for (uint64_t life = 1; life <= 3; ++life) {
      auto client = Client::Connect(absl::StrCat("local:", directory), {.session_name = "job/0"});
      ASSERT_TRUE(client.ok()) << client.status();
      const auto table = (*client)->CreateTable(Items(durability), /*if_not_exists=*/true);
      ASSERT_TRUE(table.ok()) << table.status();
      if (life > 1) {
        EXPECT_EQ(Pull(client->get(), *table, ids), before);
      }
      // The same step again is told to be applied, and changes nothing.
      for (uint64_t step : {life - 1, life}) {
        if (step == 0) continue;
        const PushResult pushed = Push(client->get(), *table, step, ids, ones).Wait();
        ASSERT_TRUE(pushed.status.ok()) << pushed.status;
      }
      before = Pull(client->get(), *table, ids);
      EXPECT_EQ(before[0], -2.0f * life);
      EXPECT_EQ(before[kDim], -1.0f * life);
    }
  }
}

TEST_F(LocalEngineTest, ClientsOfOneDirectoryShareTheEngine) {
  const auto first = Open(directory_, "trainer/0");
  const auto second =
      Open(directory_ + "/../" + directory_.substr(directory_.rfind('/') + 1), "trainer/1");
  const auto table = first->CreateTable(Items());
  ASSERT_TRUE(table.ok()) << table.status();
  const auto same = second->OpenTable("items");
  ASSERT_TRUE(same.ok()) << same.status();
  ASSERT_TRUE(Push(first.get(), *table, 1, {5}, std::vector<float>(kDim, 2.0f)).Wait().status.ok());
  ASSERT_TRUE(Push(second.get(), *same, 1, {5}, std::vector<float>(kDim, 3.0f)).Wait().status.ok());
  EXPECT_EQ(Pull(first.get(), *table, {5}), std::vector<float>(kDim, -5.0f));
  ASSERT_TRUE(first->DropTable("items").ok());
  // The other client hears of it a moment later.
  absl::Status found;
  for (int i = 0; i < 2000 && found.ok(); ++i) {
    found = second->OpenTable("items").status();
    if (found.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(absl::IsNotFound(found)) << found;
  // The name is free again, and the new table knows nothing of the old one.
  const auto again = second->CreateTable(Items());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Pull(second.get(), *again, {5}), std::vector<float>(kDim, 0.0f));
}

TEST_F(LocalEngineTest, TrainersOfASynchronousTableTakeTheirStepsTogether) {
  TableOptions options = Items();
  options.consistency = Consistency::kSync;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<const Table*> tables;
  uint64_t step = 0;
  for (int rank = 0; rank < 2; ++rank) {
    auto client = ConnectLocal(directory_, {.host_bytes = 128 << 20},
                               {.session_name = absl::StrCat("rank/", rank),
                                .deadline = absl::Seconds(30),
                                .trainers = 2,
                                .trainer_group = "job"});
    ASSERT_TRUE(client.ok()) << client.status();
    const auto table = (*client)->CreateTable(options, /*if_not_exists=*/true);
    ASSERT_TRUE(table.ok()) << table.status();
    const auto joined = (*client)->JoinTrainers();
    ASSERT_TRUE(joined.ok()) << joined.status();
    step = *joined;
    clients.push_back(*std::move(client));
    tables.push_back(*table);
  }
  std::vector<std::thread> trainers;
  std::vector<float> rows[2];
  for (int rank = 0; rank < 2; ++rank) {
    trainers.emplace_back([&, rank] {
      Client* const client = clients[rank].get();
      const absl::Status begun = client->BeginStep(step);
      ASSERT_TRUE(begun.ok()) << begun;
      const auto pushed =
          Push(client, tables[rank], step, {7}, std::vector<float>(kDim, 1.0f + rank));
      ASSERT_TRUE(pushed.Wait().status.ok()) << pushed.Wait().status;
      const absl::Status ended = client->EndStep(step);
      ASSERT_TRUE(ended.ok()) << ended;
      rows[rank] = Pull(client, tables[rank], {7});
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  EXPECT_EQ(rows[0], std::vector<float>(kDim, -3.0f));
  EXPECT_EQ(rows[1], rows[0]);
}

TEST_F(LocalEngineTest, ErrorsNameTheValueAndTheLimit) {
  const auto small = ConnectLocal(directory_, {.host_bytes = 1000});
  EXPECT_TRUE(absl::IsInvalidArgument(small.status()));
  EXPECT_TRUE(absl::StrContains(small.status().message(), "host_bytes is 1000")) << small.status();
  const auto client = Open("");
  TableOptions replicated = Items(Durability::kReplicated);
  replicated.replicas = 2;
  const auto refused = client->CreateTable(replicated);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "items")) << refused.status();
  const auto table = client->CreateTable(Items());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(absl::IsAlreadyExists(client->CreateTable(Items()).status()));
  std::vector<float> row(kDim);
  const std::vector<uint64_t> outside = {kRows};
  const PullFeature in{*table, outside, row.data()};
  EXPECT_TRUE(absl::IsOutOfRange(client->Pull({&in, 1}).Wait()));
}

TEST_F(LocalEngineTest, MemoryIsGivenBack) {
  std::string path;
  std::filesystem::path left;
  {
    const auto memory = MemoryDirectory::Make();
    ASSERT_TRUE(memory.ok()) << memory.status();
    path = (*memory)->path();
    std::filesystem::create_directory(path + "/server");
    EXPECT_TRUE(std::filesystem::is_directory(path));
    // A killed process left this one behind an hour ago.
    left = std::filesystem::path(path).parent_path() / "hotbed-memory-killed";
    std::filesystem::create_directories(left / "server");
    std::filesystem::last_write_time(
        left, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    ASSERT_TRUE(MemoryDirectory::Make().ok());
    EXPECT_FALSE(std::filesystem::exists(left));
    EXPECT_TRUE(std::filesystem::is_directory(path)) << "it is in use";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

// --- a process of its own, which the test kills

// Pushes ones to row 1 for ever, and prints each acknowledged step.
void PushForEver(const std::string& directory) {
  const auto client = Open(directory, "victim");
  const auto table = client->CreateTable(Items(), /*if_not_exists=*/true);
  if (!table.ok()) {
    std::printf("%s\n", table.status().ToString().c_str());
    return;
  }
  for (uint64_t step = 1;; ++step) {
    const auto pushed = Push(client.get(), *table, step, {1}, std::vector<float>(kDim, 1.0f));
    if (!pushed.Wait().status.ok()) return;
    std::printf("%llu\n", static_cast<unsigned long long>(step));
    std::fflush(stdout);
  }
}

class Victim {
 public:
  explicit Victim(const std::string& directory) {
    int pipe_ends[2];
    EXPECT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
    const std::string setting = absl::StrCat(kChild, "=", directory);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(pipe_ends[1], STDOUT_FILENO);
      char* const arguments[] = {const_cast<char*>("local_test"),
                                 const_cast<char*>("--gtest_filter=Child.Pushes"), nullptr};
      char* const environment[] = {const_cast<char*>(setting.c_str()), nullptr};
      execve("/proc/self/exe", arguments, environment);
      _exit(127);
    }
    close(pipe_ends[1]);
    out_ = fdopen(pipe_ends[0], "r");
  }
  // The last step that it printed, after at least `steps`; then it is killed.
  uint64_t KillAfter(uint64_t steps) {
    uint64_t last = 0;
    char line[256];
    bool killed = false;
    while (fgets(line, sizeof line, out_) != nullptr) {
      uint64_t step = 0;
      if (absl::SimpleAtoi(line, &step)) last = step;
      if (!killed && last >= steps) {
        kill(pid_, SIGKILL);
        killed = true;
      }
    }
    fclose(out_);
    waitpid(pid_, nullptr, 0);
    return last;
  }

 private:
  pid_t pid_ = 0;
  FILE* out_ = nullptr;
};

TEST(Child, Pushes) {
  const char* const directory = getenv(kChild);
  if (directory == nullptr) GTEST_SKIP() << "for the tests that kill it";
  PushForEver(directory);
}

TEST_F(LocalEngineTest, KillingTheProcessLosesNothingAcknowledged) {
  float applied = 0;
  for (int life = 0; life < 2; ++life) {
    const uint64_t acknowledged = Victim(directory_).KillAfter(30);
    ASSERT_GE(acknowledged, 30u);
    const auto client = Open(directory_, "reader");
    const auto table = client->OpenTable("items");
    ASSERT_TRUE(table.ok()) << table.status();
    const float row = -Pull(client.get(), *table, {1})[0];
    EXPECT_GE(row, static_cast<float>(acknowledged));
    EXPECT_GE(row, applied);  // the second life pushes the steps of the first again: not applied
    applied = row;
  }
}

TEST_F(LocalEngineTest, ADirectoryBelongsToOneProcess) {
  Victim victim(directory_);
  std::string why;
  // The other process opens the directory at some time.
  for (int i = 0; i < 1000 && why.empty(); ++i) {
    if (std::filesystem::exists(directory_ + "/server/CATALOG")) {
      const auto client = ConnectLocal(directory_, {.host_bytes = 128 << 20});
      ASSERT_FALSE(client.ok());
      why = client.status().ToString();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  EXPECT_TRUE(absl::StrContains(why, "ALREADY_EXISTS")) << why;
  victim.KillAfter(1);
}

}  // namespace local_engine_test
}  // namespace hotbed
