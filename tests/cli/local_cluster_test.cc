// LocalCluster with stand-ins for the daemons: shell scripts that write their arguments. The real
// daemons run in tests/e2e.
#include "cli/cluster/local_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace local_cluster_test {

using ::testing::HasSubstr;

class LocalClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/local_cluster_", getpid(), "_",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/bin");
    Program("hotbed-coordinator", "exec sleep 1000");
    Program("hotbed-server", "exec sleep 1000");
    options_.data_dir = root_ + "/data";
    options_.program_dir = root_ + "/bin";
    options_.port = 0;
    options_.servers = 2;
    options_.say = [this](const std::string& text) { absl::StrAppend(&said_, text, "\n"); };
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Program(const std::string& name, const std::string& script) {
    const std::string path = absl::StrCat(root_, "/bin/", name);
    std::ofstream(path) << "#!/bin/sh\necho \"$0\" \"$@\"\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  std::string root_;
  std::string said_;
  LocalClusterOptions options_;
};

TEST_F(LocalClusterTest, ComesBackAtTheSamePorts) {
  std::vector<std::string> addresses;
  {
    auto cluster = LocalCluster::Start(options_, Clock::Real());
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    ASSERT_EQ((*cluster)->processes().size(), 3u);
    for (const auto& process : (*cluster)->processes()) {
      addresses.push_back(process.address);
      addresses.push_back(process.admin_address);
    }
  }
  std::vector<std::string> distinct = addresses;
  std::sort(distinct.begin(), distinct.end());
  EXPECT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());
  options_.servers = 0;  // as stored
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::vector<std::string> again;
  for (const auto& process : (*cluster)->processes()) {
    again.push_back(process.address);
    again.push_back(process.admin_address);
  }
  EXPECT_EQ(again, addresses);
}

TEST_F(LocalClusterTest, RestartsWhatIsMeant) {
  options_.server_flags = {"--log-bytes-max=16MiB"};
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto pids = [&] {
    std::vector<pid_t> out;
    for (const auto& process : (*cluster)->processes()) out.push_back(process.child->pid());
    return out;
  };
  const std::vector<pid_t> before = pids();
  EXPECT_EQ((*cluster)->processes()[0].argv.back().find("log-bytes"), std::string::npos);
  EXPECT_EQ((*cluster)->processes()[1].argv.back(), "--log-bytes-max=16MiB");
  for (int i = 0; i < 4; ++i) ASSERT_TRUE((*cluster)->Restart("s1", SIGKILL).ok());
  const std::vector<pid_t> after = pids();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_NE(after[2], before[2]);
  EXPECT_EQ((*cluster)->processes()[2].quick_deaths, 0);
  ASSERT_TRUE((*cluster)->Restart("all", SIGTERM).ok());
  EXPECT_EQ(pids()[0], before[0]);
  EXPECT_NE(pids()[1], before[1]);
  const absl::Status unknown = (*cluster)->Restart("s9", SIGKILL);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("s9"));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("coordinator, s0, s1"));
}

TEST_F(LocalClusterTest, GrowsButDoesNotShrink) {
  ASSERT_TRUE(LocalCluster::Start(options_, Clock::Real()).ok());
  options_.servers = 3;
  ASSERT_TRUE(LocalCluster::Start(options_, Clock::Real()).ok());
  options_.servers = 2;
  const auto shrunk = LocalCluster::Start(options_, Clock::Real());
  EXPECT_EQ(shrunk.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(shrunk.status().message()),
              HasSubstr("holds 3 servers, --servers says 2"));
}

class EtcdClusterTest : public LocalClusterTest {
 protected:
  void SetUp() override {
    LocalClusterTest::SetUp();
    path_ = getenv("PATH");
    options_.coordinators = 3;
    options_.etcd = 2;
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    LocalClusterTest::TearDown();
  }
  void InstallEtcd() {
    Program("etcd", "exec sleep 1000");
    setenv("PATH", absl::StrCat(root_, "/bin:", path_).c_str(), 1);
  }

  std::string path_;
};

TEST_F(EtcdClusterTest, EveryoneKnowsEveryone) {
  InstallEtcd();
  {
    auto cluster = LocalCluster::Start(options_, Clock::Real());
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const auto& processes = (*cluster)->processes();
    std::vector<std::string> names;
    for (const auto& process : processes) names.push_back(process.name);
    EXPECT_THAT(names, ::testing::ElementsAre("c0", "c1", "c2", "e0", "e1", "s0", "s1"));
    const std::string coordinators =
        absl::StrCat(processes[0].address, ",", processes[1].address, ",", processes[2].address);
    EXPECT_EQ((*cluster)->coordinator_address(), coordinators);
    EXPECT_THAT(processes[1].argv,
                ::testing::Contains(absl::StrCat("--metadata=etcd://", processes[3].address, ",",
                                                 processes[4].address)));
    EXPECT_THAT(processes[4].argv, ::testing::Contains(absl::StrCat(
                                       "--initial-cluster=e0=http://", processes[3].admin_address,
                                       ",e1=http://", processes[4].admin_address)));
    EXPECT_THAT(processes[6].argv,
                ::testing::Contains(absl::StrCat("--coordinator=", coordinators)));
    EXPECT_EQ(*(*cluster)->AddServer(), "s2");
    const absl::Status unknown = (*cluster)->Restart("all2", SIGKILL);
    EXPECT_THAT(std::string(unknown.message()), HasSubstr("c2, e0, e1, s0, s1, s2"));
    EXPECT_TRUE((*cluster)->Restart("e1", SIGKILL).ok());
  }
  options_.coordinators = options_.etcd = -1;  // as stored
  options_.servers = 0;
  {
    auto again = LocalCluster::Start(options_, Clock::Real());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ((*again)->processes().size(), 8u);
  }
  options_.coordinators = 1;
  const auto other = LocalCluster::Start(options_, Clock::Real());
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("--coordinators 3 --etcd 2"));
}

TEST_F(EtcdClusterTest, RefusalsNameWhatIsMissing) {
  setenv("PATH", absl::StrCat(root_, "/bin").c_str(), 1);
  const auto without = LocalCluster::Start(options_, Clock::Real());
  EXPECT_EQ(without.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("the package etcd-server"));
  options_.etcd = -1;
  const auto alone = LocalCluster::Start(options_, Clock::Real());
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(alone.status().message()), HasSubstr("--coordinators 3 needs --etcd"));
}

TEST_F(LocalClusterTest, EachServerIsAFailureDomainUnlessToldOtherwise) {
  using ::testing::Contains;
  {
    auto cluster = LocalCluster::Start(options_, Clock::Real());
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_THAT((*cluster)->processes()[1].argv, Contains("--failure-domain=s0"));
    EXPECT_THAT((*cluster)->processes()[2].argv, Contains("--failure-domain=s1"));
  }
  options_.servers = 3;
  options_.serving = 2;
  options_.failure_domains = 2;
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT((*cluster)->processes()[1].argv, Contains("--failure-domain=d0"));
  EXPECT_THAT((*cluster)->processes()[2].argv, Contains("--failure-domain=d1"));
  EXPECT_THAT((*cluster)->processes()[3].argv, Contains("--failure-domain=d0"));
  EXPECT_THAT((*cluster)->processes()[5].argv, Contains("--failure-domain=d1"));
}

TEST_F(LocalClusterTest, AServerIsAddedWhileItRuns) {
  {
    auto cluster = LocalCluster::Start(options_, Clock::Real());
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const pid_t before = (*cluster)->processes()[1].child->pid();
    const auto added = (*cluster)->AddServer();
    ASSERT_TRUE(added.ok()) << added.status();
    EXPECT_EQ(*added, "s2");
    EXPECT_TRUE((*cluster)->processes()[3].child->Running());
    EXPECT_EQ((*cluster)->processes()[1].child->pid(), before);
  }
  options_.servers = 0;
  auto again = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->processes().size(), 4u);
  for (int i = 3; i < kLocalServersMax; ++i) ASSERT_TRUE((*again)->AddServer().ok());
  const auto more = (*again)->AddServer();
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("64"));
}

TEST_F(LocalClusterTest, WhatIsKilledForGoodStaysDead) {
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const pid_t victim = (*cluster)->processes()[2].child->pid();
  ASSERT_TRUE((*cluster)->KillForGood("s1").ok());
  EXPECT_EQ(kill(victim, 0), -1);
  for (int i = 0; i < 50; ++i) {  // past the first backoff
    (*cluster)->Tick();
    usleep(10000);
  }
  EXPECT_EQ((*cluster)->processes()[2].child, nullptr);
  EXPECT_EQ((*cluster)->processes()[2].restarts, 0);
  EXPECT_EQ((*cluster)->KillForGood("s7").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE((*cluster)->Restart("s1", SIGKILL).ok()) << "unless it is asked for";
  EXPECT_TRUE((*cluster)->processes()[2].child->Running());
}

TEST_F(LocalClusterTest, ADirectoryInUseIsRefused) {
  const auto first = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = LocalCluster::Start(options_, Clock::Real());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(options_.data_dir));
}

TEST_F(LocalClusterTest, ADirectoryOfAnotherFormatIsRefused) {
  std::filesystem::create_directories(options_.data_dir);
  std::ofstream(options_.data_dir + "/cluster.json") << "{\"format\": 99}";
  const auto cluster = LocalCluster::Start(options_, Clock::Real());
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cluster.status().message()), HasSubstr("format 99"));
  std::ofstream(options_.data_dir + "/cluster.json") << "not json";
  EXPECT_EQ(LocalCluster::Start(options_, Clock::Real()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(LocalClusterTest, APortInUseIsNamed) {
  {
    const auto cluster = LocalCluster::Start(options_, Clock::Real());
    ASSERT_TRUE(cluster.ok()) << cluster.status();
  }
  std::ifstream in(options_.data_dir + "/cluster.json");
  nlohmann::json stored = nlohmann::json::parse(in);
  LocalClusterOptions other = options_;
  other.data_dir = root_ + "/other";
  std::filesystem::create_directories(other.data_dir);
  // Another directory with the same ports; a listening stand-in holds the port of the first server.
  const int port = stored["ports"][2];
  Program(
      "hotbed-coordinator",
      absl::StrCat("exec python3 -c 'import socket,time\ns=socket.socket()\ns.bind((\"127.0.0.1\",",
                   port, "))\ns.listen()\nprint(\"listening\",flush=True)\ntime.sleep(1000)'"));
  if (std::system("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "python3 is missing";
  LocalClusterOptions holder = options_;
  holder.data_dir = root_ + "/holder";
  const auto held = LocalCluster::Start(holder, Clock::Real());
  ASSERT_TRUE(held.ok()) << held.status();
  for (int i = 0; i < 500 && LastLines((*held)->processes()[0].log_path, 1) != "listening"; ++i)
    usleep(20000);
  std::ofstream(other.data_dir + "/cluster.json") << stored.dump();
  const auto refused = LocalCluster::Start(other, Clock::Real());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", port, " (s0)")));
}

TEST_F(LocalClusterTest, AServerThatRefusesItsFlagsEndsTheWaitWithItsWords) {
  Program("hotbed-server", "echo 'data directory is of another cluster' >&2; exit 2");
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const absl::Status ready = (*cluster)->WaitReady(absl::Seconds(30));
  EXPECT_EQ(ready.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ready.message()), HasSubstr("refused to start (exit code 2)"));
  EXPECT_THAT(std::string(ready.message()), HasSubstr("data directory is of another cluster"));
}

TEST_F(LocalClusterTest, WhatDiesIsStartedAgain) {
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const pid_t before = (*cluster)->processes()[1].child->pid();
  (*cluster)->processes()[1].child->Signal(SIGKILL);
  for (int i = 0; i < 500 && (*cluster)->processes()[1].restarts == 0; ++i) {
    (*cluster)->Tick();
    usleep(10000);
  }
  ASSERT_EQ((*cluster)->processes()[1].restarts, 1);
  EXPECT_NE((*cluster)->processes()[1].child->pid(), before);
  EXPECT_THAT(said_, HasSubstr("s0 ended: killed by signal 9"));
  EXPECT_THAT(said_, HasSubstr("s0 started again"));
  EXPECT_EQ((*cluster)->processes()[2].restarts, 0);
}

TEST_F(LocalClusterTest, WhatDoesNotStopIsKilledAndNamed) {
  Program("hotbed-server", "trap '' TERM; echo trapped; while true; do sleep 0.05; done");
  options_.servers = 1;
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  for (int i = 0; i < 500 && LastLines((*cluster)->processes()[1].log_path, 1) != "trapped"; ++i)
    usleep(20000);
  const absl::Status stopped = (*cluster)->Stop(absl::Milliseconds(300));
  EXPECT_EQ(stopped.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(stopped.message()), HasSubstr("s0"));
}

TEST_F(LocalClusterTest, WaitsLongerThanAServerMayTakeToStop) {
  static_assert(kLocalStopMax > kLocalDrainMax);
  // Stops slowly: its time to stop must not be shared with the coordinator's.
  Program("hotbed-server",
          "trap 'sleep 2; exit 0' TERM; echo trapped; while true; do sleep 0.05; done");
  Program("hotbed-coordinator",
          "trap 'sleep 2; exit 0' TERM; echo trapped; while true; do sleep 0.05; done");
  options_.servers = 1;
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT((*cluster)->processes()[1].argv, ::testing::Contains("--drain-ms-max=30000"));
  for (const auto& process : (*cluster)->processes()) {
    for (int i = 0; i < 500 && LastLines(process.log_path, 1) != "trapped"; ++i) usleep(20000);
  }
  EXPECT_TRUE((*cluster)->Stop(absl::Milliseconds(3500)).ok());
}

TEST_F(LocalClusterTest, ADirectoryThatCannotBeWrittenIsNamed) {
  options_.data_dir = "/proc/hotbed";
  const auto cluster = LocalCluster::Start(options_, Clock::Real());
  EXPECT_FALSE(cluster.ok());
  EXPECT_THAT(std::string(cluster.status().message()), HasSubstr("/proc/hotbed"));
}

}  // namespace local_cluster_test
}  // namespace hotbed
