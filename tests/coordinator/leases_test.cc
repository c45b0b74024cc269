#include "planner/coordinator/state/leases.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace leases_test {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kTtl = 3000 * kMs;

class LeasesTest : public ::testing::Test {
 protected:
  // Servers 1..n, live, of incarnation 1.
  void Live(int n) {
    for (int id = 1; id <= n; ++id) Put(id, 1, true);
    leases_.Sync(now_, state_);
  }
  void Put(ServerId id, Incarnation incarnation, bool live) {
    v1::ServerInfo info;
    info.set_server(id);
    info.set_incarnation(incarnation);
    info.set_live(live);
    state_.Apply({{Op::Kind::kPut, keys::Server(id), info.SerializeAsString()}}, ++revision_);
  }
  bool Beat(ServerId id, Incarnation incarnation = 1) {
    v1::HeartbeatRequest request;
    request.set_server(id);
    request.set_incarnation(incarnation);
    return leases_.OnHeartbeat(now_, request);
  }
  void Pass(int64_t ms) {
    now_ += ms * kMs;
    leases_.Tick(now_);
  }
  std::vector<ServerId> Ended() {
    std::vector<ServerId> ids;
    for (const Leases::Ended& ended : leases_.TakeEnded()) ids.push_back(ended.server);
    return ids;
  }

  int64_t now_ = 1;
  uint64_t revision_ = 1;
  ClusterState state_;
  Leases leases_{{kTtl, 10000 * kMs}};
};

TEST_F(LeasesTest, HeartbeatsHoldALease) {
  Live(1);
  Pass(2999);
  EXPECT_TRUE(Beat(1));
  EXPECT_FALSE(Beat(1, 2)) << "another process";
  EXPECT_FALSE(Beat(2)) << "another server";
  Pass(2999);
  EXPECT_TRUE(leases_.Held(1));
  Pass(1);
  EXPECT_FALSE(leases_.Held(1));
  EXPECT_EQ(Ended(), (std::vector<ServerId>{1}));
  EXPECT_TRUE(Ended().empty()) << "told once";
  leases_.ForgetTold();
  EXPECT_EQ(Ended().size(), 1u) << "the store did not hear of it";
  EXPECT_FALSE(Beat(1)) << "it does not come alive again";
  EXPECT_TRUE(leases_.Awaited(now_, 1));
  Pass(10000);
  EXPECT_FALSE(leases_.Awaited(now_, 1));
  Put(1, 2, true);
  leases_.Sync(now_, state_);
  EXPECT_EQ(leases_.LiveIncarnation(1), 2u);
}

TEST_F(LeasesTest, ABrokenStreamEndsALeaseOnlyWithARefusal) {
  Live(3);
  for (const ProbeAnswer answer : {ProbeAnswer::kAnswers, ProbeAnswer::kSilent}) {
    leases_.OnStreamBroken(1, 1);
    leases_.OnStreamBroken(1, 1);
    ASSERT_EQ(leases_.TakeProbes().size(), 1u) << "one at a time";
    leases_.OnProbed(now_, 1, 1, answer);
    EXPECT_TRUE(leases_.Held(1));
  }
  leases_.OnStreamBroken(1, 2);
  EXPECT_TRUE(leases_.TakeProbes().empty()) << "of a process that is not there";
  leases_.OnProbed(now_, 1, 1, ProbeAnswer::kRefused);
  EXPECT_TRUE(leases_.Held(1)) << "nobody asked";
  leases_.OnStreamBroken(1, 1);
  leases_.OnProbed(now_, 1, 1, ProbeAnswer::kRefused);
  EXPECT_FALSE(leases_.Held(1));
  EXPECT_TRUE(leases_.Held(2));
}

TEST_F(LeasesTest, OneOfManyFallsSilentUnprobed) {
  Live(10);
  Pass(2000);
  for (int id = 2; id <= 10; ++id) Beat(id);
  Pass(1000);
  EXPECT_TRUE(leases_.TakeProbes().empty());
  EXPECT_EQ(Ended(), (std::vector<ServerId>{1}));
}

TEST_F(LeasesTest, ManyAtOnceAreProbed) {
  Live(10);
  Pass(2000);
  for (int id = 4; id <= 10; ++id) Beat(id);
  Pass(1000);
  EXPECT_TRUE(Ended().empty());
  ASSERT_EQ(leases_.TakeProbes().size(), 3u);
  leases_.OnProbed(now_, 1, 1, ProbeAnswer::kAnswers);
  leases_.OnProbed(now_, 2, 1, ProbeAnswer::kSilent);
  leases_.OnProbed(now_, 3, 1, ProbeAnswer::kRefused);
  EXPECT_EQ(Ended(), (std::vector<ServerId>{2, 3}));
  Pass(2900);
  EXPECT_TRUE(leases_.Held(1)) << "a whole term more";
}

TEST_F(LeasesTest, OneAfterAnotherIsTooManyToo) {
  Live(5);
  for (int id = 1; id <= 5; ++id) {
    now_ += 200 * kMs;
    Beat(id);
  }
  Pass(2200);
  EXPECT_EQ(Ended(), (std::vector<ServerId>{1}));
  Put(1, 1, false);
  leases_.Sync(now_, state_);
  Pass(200);
  EXPECT_TRUE(Ended().empty());
  EXPECT_EQ(leases_.TakeProbes().size(), 1u);
}

TEST_F(LeasesTest, AHeartbeatThatComesWhileItIsProbedHolds) {
  Live(2);
  Pass(3000);
  EXPECT_EQ(leases_.TakeProbes().size(), 2u);
  Beat(1);
  leases_.OnProbed(now_, 1, 1, ProbeAnswer::kSilent);
  EXPECT_TRUE(leases_.Held(1));
  leases_.OnProbed(now_, 2, 1, ProbeAnswer::kSilent);
  EXPECT_FALSE(leases_.Held(2));
}

}  // namespace leases_test
}  // namespace hotbed
