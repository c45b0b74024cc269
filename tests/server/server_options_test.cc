// How the flags of a server reach its parts.
#include "server/server_options.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/host/host_budget.h"
#include "server/machine_memory.h"

namespace hotbed {
namespace server_options_test {

// The data port counts the records that shards keep. With a smaller limit than theirs, streams of
// other servers would end for ever once shards have kept that much.
TEST(ServerOptionsTest, TheDataPortHasRoomForWhatShardsKeepForReplicas) {
  ServerOptions options;
  options.host.host_bytes = 1ull << 30;
  options.host.replica_tail_bytes = 0;  // by the budget
  EXPECT_EQ(DataOptionsOf(options).peer_limits.replica_tail_bytes_max,
            CarveHostBytes(options.host.host_bytes).replica_tail_bytes);
  EXPECT_GT(DataOptionsOf(options).peer_limits.replica_tail_bytes_max, 0u);
  options.host.replica_tail_bytes = 5ull << 20;
  EXPECT_EQ(DataOptionsOf(options).peer_limits.replica_tail_bytes_max, 5ull << 20);
  EXPECT_EQ(HostOptionsOf(options).replica_tail_bytes, 5ull << 20);
}

ServerOptions Good() {
  ServerOptions options;
  options.name = "s1";
  options.coordinator = "127.0.0.1:1";
  options.host.data_dir = "/data";
  return options;
}

TEST(ServerOptionsTest, WhatNobodyCanConnectToIsNotAdvertised) {
  for (const bool admin : {false, true}) {
    ServerOptions options = Good();
    std::string& advertised = admin ? options.advertise_admin : options.advertise;
    for (const char* good : {"", "s1.example:7500", "10.0.0.7:7500", "[fd00::7]:7500"}) {
      advertised = good;
      EXPECT_TRUE(CheckServerOptions(options).ok()) << CheckServerOptions(options);
    }
    for (const char* bad : {"0.0.0.0:7500", "[::]:7500"}) {
      advertised = bad;
      const absl::Status refused = CheckServerOptions(options);
      EXPECT_TRUE(absl::IsInvalidArgument(refused));
      EXPECT_NE(
          std::string(refused.message()).find(admin ? "--advertise-admin is" : "--advertise is"),
          std::string::npos)
          << refused;
    }
  }
}

TEST(ServerOptionsTest, PartsAboveTheWholeAreRefused) {
  ServerOptions options = Good();
  EXPECT_TRUE(CheckServerOptions(options).ok()) << CheckServerOptions(options);
  EXPECT_EQ(HostOptionsOf(options).hot_bytes, 0u) << "by the budget";
  const HostBudget shares = CarveHostBytes(options.host.host_bytes);
  options.host.staged_bytes_max = shares.staged_bytes + (100 << 20);
  ASSERT_TRUE(CheckServerOptions(options).ok()) << CheckServerOptions(options);
  EXPECT_EQ(HostOptionsOf(options).hot_bytes, shares.hot_bytes - (100 << 20))
      << "what one part gets another one gives";
  options.host.replica_tail_bytes = 600 << 20;
  const absl::Status refused = CheckServerOptions(options);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_NE(std::string(refused.message()).find("--staged-bytes-max (132 MiB), --replica-tail"),
            std::string::npos)
      << refused;
  options = Good();
  for (uint64_t* const part :
       {&options.pull_bytes_in_flight_max, &options.push_bytes_in_flight_max,
        &options.host.staged_bytes_max, &options.host.session_bytes_max,
        &options.host.replica_tail_bytes, &options.transfer_bytes_max, &options.export_bytes_max}) {
    *part = options.host.host_bytes;
    EXPECT_FALSE(CheckServerOptions(options).ok());
    *part = 0;
  }
  options.export_bytes_max = 1 << 20;
  EXPECT_EQ(CheckServerOptions(options).message(),
            "--export-bytes-max is 1 MiB; allowed: 0, or 6 MiB and more");
}

TEST(ServerOptionsTest, HttpIsForServingServersAndForLoopbackUnlessInsistedOn) {
  ServerOptions options = Good();
  options.http_listen = "127.0.0.1:0";
  EXPECT_NE(std::string(CheckServerOptions(options).message()).find("--role=serving"),
            std::string::npos);
  options.role = "serving";
  EXPECT_TRUE(CheckServerOptions(options).ok());
  EXPECT_EQ(ServingOptionsOf(options).http_listen, "127.0.0.1:0");
  options.http_listen = "0.0.0.0:0";
  EXPECT_NE(
      std::string(CheckServerOptions(options).message()).find("--http-secure=off-beyond-loopback"),
      std::string::npos);
  options.http_secure = "off-beyond-loopback";
  EXPECT_TRUE(CheckServerOptions(options).ok());
  EXPECT_FALSE(ServingOptionsOf(options).http_tls);
  options.http_secure = "on";
  EXPECT_NE(std::string(CheckServerOptions(options).message()).find("--tls-cert"),
            std::string::npos);
  options.security.files = {"s.crt", "s.key", "ca.crt"};
  EXPECT_TRUE(CheckServerOptions(options).ok());
  EXPECT_TRUE(ServingOptionsOf(options).http_tls);
}

TEST(ServerOptionsTest, NamesArePrintable) {
  ServerOptions options = Good();
  options.name = "s1\nhotbed-server s2 serving";
  const absl::Status refused = CheckServerOptions(options);
  EXPECT_NE(std::string(refused.message()).find("--name is \"s1\\nhotbed-server s2 serving\""),
            std::string::npos)
      << refused;
  options = Good();
  options.failure_domain = std::string(201, 'r');
  EXPECT_FALSE(CheckServerOptions(options).ok());
}

TEST(ServerOptionsTest, TheMachinesMemoryIsThatOfItsControlGroup) {
  const std::string root = testing::TempDir() + "/machine_memory";
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  EXPECT_EQ(MachineMemoryBytes(root), 0u);
  put("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
  EXPECT_EQ(MachineMemoryBytes(root), 16u << 20);
  put("/proc/self/cgroup", "0::/pod/server\n");
  put("/sys/fs/cgroup/pod/server/memory.max", "max\n");
  EXPECT_EQ(MachineMemoryBytes(root), 16u << 20);
  put("/sys/fs/cgroup/pod/server/memory.max", "8388608\n");
  EXPECT_EQ(MachineMemoryBytes(root), 8u << 20);
  put("/proc/self/cgroup", "5:memory:/a\n");
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4194304\n");
  EXPECT_EQ(MachineMemoryBytes(root), 4u << 20);
  std::filesystem::remove_all(root);
}

}  // namespace server_options_test
}  // namespace hotbed
