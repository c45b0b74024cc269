#include "server/host/upkeep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/synchronization/notification.h"

namespace hotbed {
namespace {

TEST(UpkeepTest, ChoresRunInOrderEachAtItsInterval) {
  std::string ran;
  Upkeep upkeep({{kSecondNs, [&](int64_t) { ran += 's'; }}, {0, [&](int64_t) { ran += 'p'; }}},
                Clock::Real());
  int64_t now_ns = 5 * kSecondNs;
  for (int pass = 0; pass < 12; ++pass, now_ns += kSecondNs / 5) upkeep.RunDue(now_ns);
  EXPECT_EQ(ran, "spppppspppppspp");
}

TEST(UpkeepTest, StopWaitsForTheChoreThatRuns) {
  absl::Notification runs;
  std::atomic<bool> through{false};
  Upkeep upkeep({{0,
                  [&](int64_t) {
                    if (!runs.HasBeenNotified()) runs.Notify();
                    Clock::Real()->SleepNs(20 * kMillisecondNs);
                    through = true;
                  }}},
                Clock::Real());
  upkeep.Start();
  runs.WaitForNotification();
  upkeep.Stop();
  EXPECT_TRUE(through);
}

}  // namespace
}  // namespace hotbed
