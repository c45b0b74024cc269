// Requests for one more server to a running local cluster, with stand-ins for the daemons.
#include "cli/cluster/add_server_request.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace add_server_request_test {

using ::testing::HasSubstr;

class AddServerRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/add_server_", getpid(), "_",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(root_ + "/bin");
    for (const char* name : {"hotbed-coordinator", "hotbed-server"}) {
      const std::string path = absl::StrCat(root_, "/bin/", name);
      std::ofstream(path) << "#!/bin/sh\nexec sleep 1000\n";
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    options_.data_dir = root_ + "/data";
    options_.program_dir = root_ + "/bin";
    options_.port = 0;
    options_.servers = 1;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  absl::StatusOr<AddedServer> Ask(absl::Duration timeout = absl::Seconds(20)) {
    return AskForServer(
        options_.data_dir, timeout, [this] { return cancelled_.load(); }, Clock::Real());
  }

  std::string root_;
  LocalClusterOptions options_;
  std::atomic<bool> cancelled_{false};
};

TEST_F(AddServerRequestTest, IsAnsweredByWhoRunsTheCluster) {
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::atomic<bool> done{false};
  absl::StatusOr<AddedServer> added = absl::UnknownError("not asked");
  std::thread asker([&] {
    added = Ask();
    done = true;
  });
  while (!done) {  // this thread must spawn the child
    ASSERT_TRUE(AnswerServerRequest(options_.data_dir, cluster->get()).ok());
    usleep(1000);
  }
  asker.join();
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->name, "s1");
  EXPECT_EQ(added->coordinator, (*cluster)->coordinator_address());
  ASSERT_EQ((*cluster)->processes().size(), 3u);
  EXPECT_EQ(added->address, (*cluster)->processes()[2].address);
  EXPECT_TRUE((*cluster)->processes()[2].child->Running());
  EXPECT_FALSE(std::filesystem::exists(options_.data_dir + "/add-server.request"));
  EXPECT_FALSE(std::filesystem::exists(options_.data_dir + "/add-server.reply"));
  cluster->reset();
  options_.servers = 0;
  auto again = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->processes().size(), 3u) << "it belongs to the cluster";
}

TEST_F(AddServerRequestTest, RefusesWhereNoClusterRuns) {
  const auto nowhere = Ask();
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr(options_.data_dir));
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr("--servers N"));
  ASSERT_TRUE(LocalCluster::Start(options_, Clock::Real()).ok());  // and stops it again
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AddServerRequestTest, EndsWhereNobodyAnswers) {
  auto cluster = LocalCluster::Start(options_, Clock::Real());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(Ask(absl::Milliseconds(200)).status().code(), absl::StatusCode::kDeadlineExceeded);
  cancelled_ = true;
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(AnswerServerRequest(options_.data_dir, cluster->get()).ok());
  EXPECT_EQ((*cluster)->processes().size(), 2u) << "nobody waits for it any more";
  std::ofstream(options_.data_dir + "/add-server.request") << "{}";
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kAlreadyExists);
  ForgetServerRequests(options_.data_dir);
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace add_server_request_test
}  // namespace hotbed
