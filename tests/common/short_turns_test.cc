#include "common/threads/short_turns.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <thread>  // NOLINT(build/c++11)

namespace hotbed {
namespace short_turns_test {

TEST(ShortTurnsTest, ThreadsKeepTheirPriorityAndPolicy) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 7), 0);  // on Linux, of the calling thread
    TakeShortTurns();
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), 7);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

}  // namespace short_turns_test
}  // namespace hotbed
