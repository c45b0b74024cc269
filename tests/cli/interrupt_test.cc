#include "cli/base/interrupt.h"

#include <csignal>

#include "gtest/gtest.h"

namespace hotbed {
namespace interrupt_test {

int g_before = 0;
void Before(int) { ++g_before; }

TEST(Interrupt, HearsInsideAndGivesBackWhatWasThere) {
  auto* const interrupt = signal(SIGINT, Before);
  auto* const terminate = signal(SIGTERM, Before);
  {
    const InterruptScope scope;
    EXPECT_FALSE(scope.interrupted());
    raise(SIGTERM);
    EXPECT_TRUE(scope.interrupted());
  }
  EXPECT_EQ(g_before, 0);
  raise(SIGINT);
  EXPECT_EQ(g_before, 1);
  {
    const InterruptScope again;
    EXPECT_FALSE(again.interrupted()) << "of an earlier scope";
  }
  signal(SIGINT, interrupt);
  signal(SIGTERM, terminate);
}

}  // namespace interrupt_test
}  // namespace hotbed
