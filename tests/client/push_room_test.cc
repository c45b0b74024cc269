#include "client/push/push_room.h"

#include <gtest/gtest.h>

#include <deque>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace push_room_test {

constexpr int64_t kMs = 1'000'000;

TEST(PushRoomTest, KeepsItsLimitsButLetsOneAlwaysGo) {
  PushRoom room(2, 100);
  EXPECT_TRUE(room.Has(1000, 0)) << "alone";
  const PushRoom::Place first = room.Enter(60, 0);
  EXPECT_FALSE(room.Has(41, 1'000 * kMs)) << "too many bytes";
  EXPECT_TRUE(room.Has(40, 1'000 * kMs));
  room.Enter(10, 0);
  EXPECT_FALSE(room.Has(1, 1'000 * kMs)) << "too many pushes";
  room.Leave(first, 0);
  EXPECT_TRUE(room.Has(90, 1'000 * kMs));
}

TEST(PushRoomTest, WhatWouldBeLateDoesNotGo) {
  PushRoom room(1000, 1 << 20);
  // Four at once, answered one after the other, each 10 ms after the one before.
  PushRoom::Place places[4];
  for (PushRoom::Place& place : places) place = room.Enter(1, 0);
  for (int i = 0; i < 4; ++i) room.Leave(places[i], (i + 1) * 10 * kMs);
  EXPECT_EQ(room.ExpectedNs(), 10 * kMs);
  for (int i = 0; i < 5; ++i) room.Enter(1, 100 * kMs);
  EXPECT_EQ(room.ExpectedNs(), 60 * kMs);
  EXPECT_FALSE(room.Has(1, 79 * kMs)) << "a quarter of the time has to be left";
  EXPECT_TRUE(room.Has(1, 80 * kMs));
}

// A server that takes a push each 1 to 3 ms, in order, and three times as many that want to go,
// each with a second. Without the rule those that wait on their way are soon more than a second's
// work.
TEST(PushRoomTest, UnderThreeTimesTheLoadNearlyAllThatGoAreInTime) {
  const TestSeed seed(5);
  Random random(seed.value());
  struct Going {
    PushRoom::Place place;
    int64_t deadline_ns;
  };
  PushRoom room(100'000, uint64_t{1} << 40);
  std::deque<Going> going;
  int64_t done_ns = 0;  // when the first of `going` is answered
  int in_time = 0;
  int late = 0;
  const auto serve_ns = [&random] { return kMs + static_cast<int64_t>(random.Uniform(2 * kMs)); };
  for (int64_t now_ns = 0; now_ns < 60'000 * kMs; now_ns += 2 * kMs / 3) {
    while (!going.empty() && done_ns <= now_ns) {
      room.Leave(going.front().place, done_ns);
      ++(done_ns <= going.front().deadline_ns ? in_time : late);
      going.pop_front();
      done_ns += serve_ns();
    }
    if (!room.Has(1, 1'000 * kMs)) continue;
    if (going.empty()) done_ns = now_ns + serve_ns();
    going.push_back({room.Enter(1, now_ns), now_ns + 1'000 * kMs});
  }
  EXPECT_GT(in_time, 0.95 * 60'000 / 2) << late << " late";
  EXPECT_LT(late, 0.01 * in_time);
}

// One that nobody answered for long, a server's death, does not close the room for good.
TEST(PushRoomTest, OneLongWaitIsSoonForgotten) {
  PushRoom room(64, 1 << 20);
  int64_t now_ns = 0;
  for (int i = 0; i < 100; ++i) room.Leave(room.Enter(1, now_ns), now_ns + kMs);
  room.Leave(room.Enter(1, 0), 5'000 * kMs);
  room.Enter(1, 0);
  EXPECT_FALSE(room.Has(1, 1'000 * kMs));
  for (int i = 0; i < 30; ++i) room.Leave(room.Enter(1, now_ns), now_ns + kMs);
  EXPECT_TRUE(room.Has(1, 1'000 * kMs));
}

}  // namespace push_room_test
}  // namespace hotbed
