#include "client/push/push_window.h"

#include <gtest/gtest.h>

#include <deque>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace push_window_test {

constexpr int64_t kMs = 1'000'000;

TEST(PushWindowTest, KeepsItsLimitsButLetsOneAlwaysGo) {
  PushWindow window(2, 100);
  EXPECT_TRUE(window.Admits(1000, 0)) << "alone";
  const PushWindow::Entry first = window.Enter(60, 0);
  EXPECT_FALSE(window.Admits(41, 1'000 * kMs)) << "too many bytes";
  EXPECT_TRUE(window.Admits(40, 1'000 * kMs));
  window.Enter(10, 0);
  EXPECT_FALSE(window.Admits(1, 1'000 * kMs)) << "too many pushes";
  window.Leave(first, 0);
  EXPECT_TRUE(window.Admits(90, 1'000 * kMs));
}

TEST(PushWindowTest, WhatWouldBeLateDoesNotGo) {
  PushWindow window(1000, 1 << 20);
  // Four pushes at once, answered one after another every 10 ms.
  PushWindow::Entry entries[4];
  for (PushWindow::Entry& entry : entries) entry = window.Enter(1, 0);
  for (int i = 0; i < 4; ++i) window.Leave(entries[i], (i + 1) * 10 * kMs);
  EXPECT_EQ(window.ExpectedNs(), 10 * kMs);
  for (int i = 0; i < 5; ++i) window.Enter(1, 100 * kMs);
  EXPECT_EQ(window.ExpectedNs(), 60 * kMs);
  EXPECT_FALSE(window.Admits(1, 79 * kMs)) << "a quarter of the time has to be left";
  EXPECT_TRUE(window.Admits(1, 80 * kMs));
}

// A server that processes a push in 1 to 3 ms, in order, and clients that want to send three times
// as many, each with a deadline of a second. Without the rule, the pushes in flight would soon be
// more than a second's work.
TEST(PushWindowTest, UnderThreeTimesTheLoadNearlyAllThatGoAreInTime) {
  const TestSeed seed(5);
  Random random(seed.value());
  struct Going {
    PushWindow::Entry entry;
    int64_t deadline_ns;
  };
  PushWindow window(100'000, uint64_t{1} << 40);
  std::deque<Going> going;
  int64_t done_ns = 0;  // when the first push of `going` is answered
  int in_time = 0;
  int late = 0;
  const auto serve_ns = [&random] { return kMs + static_cast<int64_t>(random.Uniform(2 * kMs)); };
  for (int64_t now_ns = 0; now_ns < 60'000 * kMs; now_ns += 2 * kMs / 3) {
    while (!going.empty() && done_ns <= now_ns) {
      window.Leave(going.front().entry, done_ns);
      ++(done_ns <= going.front().deadline_ns ? in_time : late);
      going.pop_front();
      done_ns += serve_ns();
    }
    if (!window.Admits(1, 1'000 * kMs)) continue;
    if (going.empty()) done_ns = now_ns + serve_ns();
    going.push_back({window.Enter(1, now_ns), now_ns + 1'000 * kMs});
  }
  EXPECT_GT(in_time, 0.95 * 60'000 / 2) << late << " late";
  EXPECT_LT(late, 0.01 * in_time);
}

// A push that was not answered for long, because a server died, does not close the window for good.
TEST(PushWindowTest, OneLongWaitIsSoonForgotten) {
  PushWindow window(64, 1 << 20);
  int64_t now_ns = 0;
  for (int i = 0; i < 100; ++i) window.Leave(window.Enter(1, now_ns), now_ns + kMs);
  window.Leave(window.Enter(1, 0), 5'000 * kMs);
  window.Enter(1, 0);
  EXPECT_FALSE(window.Admits(1, 1'000 * kMs));
  for (int i = 0; i < 30; ++i) window.Leave(window.Enter(1, now_ns), now_ns + kMs);
  EXPECT_TRUE(window.Admits(1, 1'000 * kMs));
}

}  // namespace push_window_test
}  // namespace hotbed
