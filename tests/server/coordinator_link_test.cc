#include "server/cluster/coordinator_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/server/coordinator_link_fixture.h"

namespace hotbed {
namespace coordinator_link_test {

class CoordinatorLinkTest : public ::testing::Test, protected LinkFixture {
 protected:
  void SetUp() override { StartCoordinator(0); }
};

TEST_F(CoordinatorLinkTest, RegistersHeartbeatsAndAppliesTheMapOnce) {
  StartLink("s1");
  ASSERT_TRUE(link_->WaitRegistered().ok());
  EXPECT_EQ(host_.incarnation(), 101u);
  EXPECT_EQ(coordinator_.message_bytes_max(), 70000u);
  ASSERT_TRUE(WaitFor([&] { return coordinator_.heartbeats() >= 5; }));
  EXPECT_EQ(host_.assignments(), 1u);
  EXPECT_EQ(link_->status().plan_revision, 40u);
  EXPECT_EQ(link_->status().cluster_id, "cluster-a");
  EXPECT_FALSE(coordinator_.draining());
  EXPECT_TRUE(link_->status().attending);
  EXPECT_EQ(coordinator_.failure_domain(), "rack-1");
  link_->Stop();
  EXPECT_TRUE(coordinator_.draining());
}

TEST_F(CoordinatorLinkTest, ActivatesWhatTheHostSays) {
  StartLink("s1");
  ASSERT_TRUE(link_->WaitRegistered().ok());
  host_.set_waiting({{{1, 2}, 5}, {{1, 3}, 6}});
  host_.Notify();
  ASSERT_TRUE(WaitFor([&] { return host_.ShardsToActivate().empty(); }));
  EXPECT_EQ(coordinator_.activated(), 2);
  ASSERT_TRUE(host_.RecordOf({1, 3}).has_value());
  EXPECT_TRUE(host_.RecordOf({1, 3})->active);
}

TEST_F(CoordinatorLinkTest, ALostLeaseMeansANewIncarnation) {
  StartLink("s1");
  ASSERT_TRUE(link_->WaitRegistered().ok());
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 1; }));
  coordinator_.LoseLease();
  ASSERT_TRUE(WaitFor([&] { return coordinator_.registrations() == 2; }));
  ASSERT_TRUE(WaitFor([&] { return host_.incarnation() == 102; }));
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 2; }));  // the map comes again
}

TEST_F(CoordinatorLinkTest, AWholeMapDropsTheTablesThatItLacks) {
  host_.AddShard({1, 2}, 4, 5);
  host_.AddShard({8, 0}, 4, 5);
  host_.AddShard({8, 1}, 4, 5);
  host_.AddShard({9, 0}, 4, 5);
  coordinator_.SetMap("cluster-a", 40, 9);
  StartLink("s1");
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 1; }));
  EXPECT_THAT(host_.tables_dropped(), testing::ElementsAre(9, 8));
}

TEST_F(CoordinatorLinkTest, NothingIsDroppedForItsAbsenceWhereSomethingElseExplainsIt) {
  host_.AddShard({8, 0}, 4, 5);
  StartLink("s1");  // a map without a dropped table
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 1; }));
  EXPECT_THAT(host_.tables_dropped(), testing::IsEmpty());
  coordinator_.SetMap("cluster-b", 41, 9);  // a map of another cluster
  coordinator_.LoseLease();
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 2; }));
  EXPECT_THAT(host_.tables_dropped(), testing::ElementsAre(9));
  coordinator_.SetMap("cluster-a", 39, 9);  // a map from the past
  coordinator_.LoseLease();
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 3; }));
  EXPECT_THAT(host_.tables_dropped(), testing::ElementsAre(9));
}

TEST_F(CoordinatorLinkTest, ADeltaDropsOnlyWhatItNames) {
  host_.AddShard({8, 0}, 4, 5);
  StartLink("s1");
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() == 1; }));
  coordinator_.SetMap("cluster-a", 41, 9);
  // Heartbeats that were on their way bring it once more.
  ASSERT_TRUE(WaitFor([&] { return host_.assignments() >= 2; }));
  EXPECT_THAT(host_.tables_dropped(), testing::ElementsAre(9));
}

TEST_F(CoordinatorLinkTest, OutlivesTheCoordinator) {
  StartLink("s1");
  ASSERT_TRUE(link_->WaitRegistered().ok());
  StopCoordinator();
  ASSERT_TRUE(WaitFor([&] { return !link_->status().error.empty(); }));
  const int before = coordinator_.heartbeats();
  StartCoordinator(port_);
  ASSERT_TRUE(WaitFor([&] { return coordinator_.heartbeats() > before; }));
  EXPECT_TRUE(WaitFor([&] { return link_->status().error.empty(); }));
  EXPECT_EQ(coordinator_.registrations(), 1);  // the lease still held
}

TEST_F(CoordinatorLinkTest, WaitsForACoordinatorThatIsNotThereYet) {
  StopCoordinator();
  StartLink("s1");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(link_->status().registrations, 0u);
  StartCoordinator(port_);
  EXPECT_TRUE(link_->WaitRegistered().ok());
}

TEST_F(CoordinatorLinkTest, ARefusalIsFinal) {
  StartLink("taken");
  const absl::Status status = link_->WaitRegistered();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_NE(std::string(status.message()).find("server 3"), std::string::npos);
}

TEST_F(CoordinatorLinkTest, StopEndsTheWait) {
  StopCoordinator();
  StartLink("s1");
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    link_->Stop();
  });
  EXPECT_TRUE(absl::IsCancelled(link_->WaitRegistered()));
  stopper.join();
}

// The coordinator may have very many shards to move to the new incarnation.
TEST_F(CoordinatorLinkTest, ASlowRegistrationGetsMoreTimeAtEachTry) {
  coordinator_.SetRegisteringTakes(absl::Milliseconds(500));
  StartLink("s0", /*rpc_timeout_ms=*/50);
  EXPECT_TRUE(WaitFor([&] { return link_->status().registrations == 1; }));
  EXPECT_GT(coordinator_.registrations(), 1) << "the first tries were too short";
  EXPECT_LE(coordinator_.registrations(), 6);
}

TEST_F(CoordinatorLinkTest, AStopDoesNotWaitForACallThatHangs) {
  coordinator_.SetRegisteringTakes(absl::Seconds(30));
  StartLink("s0", /*rpc_timeout_ms=*/30'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int64_t begin_ns = Clock::Real()->NowNs();
  link_->Stop();
  EXPECT_LT(Clock::Real()->NowNs() - begin_ns, 10'000'000'000);
  coordinator_.Release();
}

}  // namespace coordinator_link_test
}  // namespace hotbed
