#include "server/shard/waiting_requests.h"

#include <gtest/gtest.h>

#include "tests/shard/shard_parts.h"

namespace hotbed {
namespace waiting_requests_test {

constexpr Member kWaiter{2, 10};
constexpr Member kLeader{1, 10};

class WaitingRequestsTest : public testing::Test {
 protected:
  WaitingRequestsTest()
      : parts_(kWaiter),
        waiting_(
            &parts_.options, &parts_.core, &parts_.in_flight,
            [this](PullWork*, PullSegment* segment) { pulls_.push_back(segment); },
            [this](PushState* state) { pushes_.push_back(state); }) {}

  ShardParts parts_;
  std::vector<PullSegment*> pulls_;
  std::vector<PushState*> pushes_;
  WaitingRequests waiting_;
  TestPull work_;
};

TEST_F(WaitingRequestsTest, ThePrimaryRefusesAnLsnThatItsLogDoesNotHold) {
  parts_.Learn(PartsRecord(1, {kWaiter}, false));
  parts_.Learn(PartsRecord(1, {kWaiter}, true));
  PullSegment segment;
  segment.lsn_min = 1;
  EXPECT_EQ(waiting_.ParkPull(&work_, &segment).code, SegmentCode::kUnavailable);
  EXPECT_FALSE(waiting_.any());
}

TEST_F(WaitingRequestsTest, ABackupsPullWaitsForALimitedTimeInFlight) {
  parts_.Learn(PartsRecord(1, {kLeader, kWaiter}, true));
  PullSegment segment;
  segment.lsn_min = 1;
  ASSERT_TRUE(waiting_.ParkPull(&work_, &segment).ok());
  EXPECT_TRUE(waiting_.any());
  EXPECT_FALSE(parts_.in_flight.none());
  EXPECT_EQ(parts_.outlet.waits_until_ns, segment.waits_until_ns);
  waiting_.RunPulls();
  EXPECT_EQ(pulls_, (std::vector<PullSegment*>{&segment}));
  EXPECT_FALSE(waiting_.any());
  EXPECT_TRUE(parts_.in_flight.none());
  parts_.clock.Advance(segment.waits_until_ns);
  EXPECT_EQ(waiting_.ParkPull(&work_, &segment).code, SegmentCode::kUnavailable) << "time is up";
}

TEST_F(WaitingRequestsTest, APushOfAnEpochThatIsNotKnownYetWaits) {
  PushSegment segment;
  segment.epoch = 1;
  PushState* const state = PushState::Take();
  state->segment = &segment;
  TestPush work;
  state->work = &work;
  ASSERT_TRUE(waiting_.ParkPush(state));
  waiting_.RunPushes();
  EXPECT_EQ(pushes_, (std::vector<PushState*>{state}));
  parts_.Learn(PartsRecord(1, {kWaiter}, false));
  EXPECT_TRUE(waiting_.ParkPush(state)) << "not active yet";
  parts_.Learn(PartsRecord(1, {kWaiter}, true));
  waiting_.RunPushes();
  EXPECT_FALSE(waiting_.ParkPush(state));
  state->Give();
}

TEST_F(WaitingRequestsTest, APushOfASessionThatIsNotKnownYetWaits) {
  parts_.Learn(PartsRecord(1, {kWaiter}, false));
  parts_.Learn(PartsRecord(1, {kWaiter}, true));
  parts_.core.LearnGiven({8, 0});
  PushSegment segment;
  segment.epoch = 1;
  TestPush work;
  work.session = 5;
  work.incarnation = 9;
  PushState* const state = PushState::Take();
  state->segment = &segment;
  state->work = &work;
  EXPECT_TRUE(waiting_.ParkPush(state));
  segment.commit_step = 1;
  EXPECT_TRUE(waiting_.ParkPush(state)) << "no step is committed";
  waiting_.RunPushes();
  parts_.core.LearnGiven({9, 1});
  EXPECT_FALSE(waiting_.ParkPush(state));
  segment.commit_step = 0;
  EXPECT_FALSE(waiting_.ParkPush(state));
  state->Give();
}

}  // namespace waiting_requests_test
}  // namespace hotbed
