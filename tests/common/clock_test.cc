#include "common/clock.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace clock_test {

TEST(Clock, SleepsAtLeastAsLongAsAsked) {
  const int64_t begin = Clock::Real()->NowNs();
  Clock::Real()->SleepNs(2000000);
  EXPECT_GE(Clock::Real()->NowNs() - begin, 2000000);
  Clock::Real()->SleepNs(-1);
  EXPECT_GT(Clock::Real()->WallUs(), int64_t{1600000000} * 1000000);
}

TEST(ManualClock, MovesOnlyByHand) {
  ManualClock clock;
  clock.Advance(5);
  clock.SleepNs(2000);
  EXPECT_EQ(clock.NowNs(), 2005);
  EXPECT_EQ(clock.WallUs(), 2);
}

}  // namespace clock_test
}  // namespace hotbed
