#include "common/threads/short_turns.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace hotbed {
namespace {

// The length of the calling thread's turns by sched_getattr; 0: the kernel does not tell.
uint64_t TurnNs() {
  uint64_t attributes[6] = {};  // size and policy, flags, nice and priority, then the turn
  if (syscall(SYS_sched_getattr, 0, attributes, sizeof(attributes), 0) != 0) return 0;
  return attributes[3];
}

TEST(ShortTurnsTest, OnlyTheCallingThreadTakesThemAndKeepsItsPriority) {
  const uint64_t usual_ns = TurnNs();
  std::thread([&] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1), 0);
    const int nice = getpriority(PRIO_PROCESS, 0);
    const bool taken = TakeShortTurns();
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
    if (usual_ns == 0) {
      EXPECT_FALSE(taken);
    } else {
      EXPECT_TRUE(taken);
      EXPECT_EQ(TurnNs(), static_cast<uint64_t>(kShortTurnNs));
    }
  }).join();
  EXPECT_EQ(TurnNs(), usual_ns);
}

}  // namespace
}  // namespace hotbed
