#include "client/net/timer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/clock.h"

namespace hotbed {
namespace timer_test {

TEST(TimerTest, RunsTasksInTheOrderOfTheirTimes) {
  std::vector<int> ran;
  absl::Notification last;
  Timer timer(Clock::Real(), [] {});
  timer.RunAfter(20'000'000, [&] { ran.push_back(2), last.Notify(); });
  timer.RunAfter(1'000'000, [&] { ran.push_back(1); });
  last.WaitForNotification();
  timer.Stop();
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST(TimerTest, TicksWhileSomebodyWatches) {
  std::atomic<int> ticks{0};
  Timer timer(Clock::Real(), [&] { ++ticks; });
  Clock::Real()->SleepNs(3 * Timer::kTickNs);
  EXPECT_EQ(ticks, 0);
  timer.AddWatcher();
  const int64_t begin_ns = Clock::Real()->NowNs();
  while (ticks < 3) Clock::Real()->SleepNs(Timer::kTickNs);
  EXPECT_GE(Clock::Real()->NowNs() - begin_ns, 2 * Timer::kTickNs);
  timer.RemoveWatcher();
}

// An answer may remove a watcher before its call has added it. The timer must wait meanwhile
// without holding its mutex.
TEST(TimerTest, AWatcherMayLeaveBeforeItHasCome) {
  std::atomic<int> ticks{0};
  absl::Notification ran;
  Timer timer(Clock::Real(), [&] { ++ticks; });
  timer.RemoveWatcher();
  Clock::Real()->SleepNs(3 * Timer::kTickNs);
  timer.RunAfter(3 * Timer::kTickNs, [&] { ran.Notify(); });
  timer.AddWatcher();
  ran.WaitForNotification();
  EXPECT_EQ(ticks, 0);
}

TEST(TimerTest, WhatIsLeftAtTheEndIsDropped) {
  bool ran = false;
  Timer timer(Clock::Real(), [] {});
  timer.RunAfter(int64_t{3600} * 1'000'000'000, [&] { ran = true; });
  timer.Stop();
  timer.RunAfter(0, [&] { ran = true; });
  EXPECT_FALSE(ran);
}

}  // namespace timer_test
}  // namespace hotbed
