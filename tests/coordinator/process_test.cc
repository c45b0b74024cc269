// hotbed-coordinator as a real process: killed with SIGKILL while it works, stopped, and refused.
#include "tests/coordinator/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/coordinator/control_client.h"

namespace hotbed {
namespace process_test {

using ::testing::HasSubstr;

class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() {
    dir_ = absl::StrCat(::testing::TempDir(), "/coordinator_process_test_", getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  ~ProcessTest() override {
    process_.reset();  // it writes files there until it has ended
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  std::vector<std::string> Args(const std::string& listen = "127.0.0.1:0") const {
    return {HOTBED_COORDINATOR_BINARY, "--data-dir", dir_ + "/data", "--listen", listen,
            "--admin-listen",          "127.0.0.1:0"};
  }
  // Starts and gives the address that it serves.
  std::string Start(const std::string& listen = "127.0.0.1:0") {
    process_ = std::make_unique<Process>(Args(listen));
    const std::string line = process_->AwaitLine("hotbed-coordinator serving: ");
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    EXPECT_EQ(words.size(), 7u) << line;
    return words.size() == 7 ? words[2] : "";
  }
  // Runs to its end; the output, with the exit status in `*exit`.
  static std::string Run(std::vector<std::string> args, int* exit) {
    Process process(std::move(args));
    std::string out = process.ReadAll();
    *exit = process.Wait();
    return out;
  }

  std::string dir_;
  std::unique_ptr<Process> process_;
};

TEST_F(ProcessTest, NothingAcknowledgedIsLostOverSigkill) {
  const TestSeed seed(20260105);
  Random random(seed.value());
  const std::string address = Start();
  std::map<std::string, TableId> tables;
  SessionId session = 0;
  Incarnation incarnation = 0;
  std::string cluster;
  for (int round = 0; round < 4; ++round) {
    std::atomic<bool> killed{false};
    std::thread killer([&, delay = 20 + random.Uniform(200)] {
      absl::SleepFor(absl::Milliseconds(delay));
      process_->Signal(SIGKILL);
      killed = true;
    });
    ControlClient client(address);
    FakeServer server(absl::StrCat("s", round), &client);
    (void)server.Register();
    for (int i = 0; !killed; ++i) {
      const std::string name = absl::StrCat("t", round, ".", i);
      auto table = client.CreateTable(name, 100000, 1 + random.Uniform(200));
      if (table.ok()) tables[name] = table->spec().id();
      auto opened = client.OpenSession("job");
      if (!opened.ok()) continue;
      EXPECT_TRUE(session == 0 || session == opened->session());
      EXPECT_GT(opened->incarnation(), incarnation);
      session = opened->session();
      incarnation = opened->incarnation();
    }
    killer.join();
    process_->Wait();
    ASSERT_EQ(Start(address), address);

    ControlClient after(address);
    auto map = after.Map();
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_TRUE(cluster.empty() || cluster == map->cluster_id());
    cluster = map->cluster_id();
    std::map<std::string, TableId> found;
    std::map<TableId, uint64_t> rows;
    for (const v1::TableSpec& t : map->tables()) found[t.name()] = t.id();
    for (const v1::ShardRecord& r : map->shards()) {
      rows[ShardId::FromPacked(r.shard()).table] += r.range_limit() - r.range_first();
    }
    for (const auto& [name, id] : tables) EXPECT_EQ(found[name], id) << "lost " << name;
    for (const auto& [name, id] : found) EXPECT_EQ(rows[id], 100000u) << "not tiled: " << name;
  }
  EXPECT_GT(tables.size(), 0u);
}

TEST_F(ProcessTest, SigtermIsACleanExit) {
  Start();
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
}

TEST_F(ProcessTest, ADirectoryInUseIsRefused) {
  Start();
  int exit = 0;
  EXPECT_THAT(Run(Args(), &exit), HasSubstr("is locked by process"));
  EXPECT_EQ(exit, 1);
}

TEST_F(ProcessTest, APortInUseIsRefused) {
  const std::string address = Start();
  int exit = 0;
  std::vector<std::string> args = Args(address);
  args[2] = dir_ + "/other";
  EXPECT_THAT(Run(args, &exit), HasSubstr("cannot listen on " + address));
  EXPECT_EQ(exit, 1);
}

TEST_F(ProcessTest, ADirectoryOfAnotherVersionOrKindIsRefused) {
  int exit = 0;
  std::filesystem::create_directories(dir_ + "/data");
  std::ofstream(dir_ + "/data/VERSION") << "hotbed-coordinator 99\n";
  EXPECT_THAT(Run(Args(), &exit), HasSubstr("version \"hotbed-coordinator 99\""));
  EXPECT_EQ(exit, 1);
  std::filesystem::remove(dir_ + "/data/VERSION");
  std::ofstream(dir_ + "/data/holiday.jpg") << "x";
  EXPECT_THAT(Run(Args(), &exit), HasSubstr("holds \"holiday.jpg\""));
  EXPECT_EQ(exit, 1);
}

TEST_F(ProcessTest, ADirectoryThatCannotBeMadeIsNamed) {
  int exit = 0;
  std::vector<std::string> args = Args();
  std::ofstream(dir_ + "/file") << "x";
  args[2] = dir_ + "/file/data";
  EXPECT_THAT(Run(args, &exit), HasSubstr(dir_ + "/file"));
  EXPECT_EQ(exit, 1);
}

TEST_F(ProcessTest, FlagsAreChecked) {
  int exit = 0;
  EXPECT_THAT(Run({HOTBED_COORDINATOR_BINARY, "--lisen=127.0.0.1:0"}, &exit), HasSubstr("listen"));
  EXPECT_EQ(exit, 2);
  std::vector<std::string> args = Args();
  args.push_back("--heartbeat-interval-ms=2000");
  EXPECT_THAT(Run(args, &exit), HasSubstr("at most half of --lease-ttl-ms"));
  EXPECT_NE(exit, 0);
}

}  // namespace process_test
}  // namespace hotbed
