#include "common/hedge_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hotbed {
namespace hedge_budget_test {

TEST(HedgeBudgetTest, ABurstAndThenAPartOfAllCalls) {
  HedgeBudget budget(0.05, 3);
  EXPECT_FALSE(budget.Take(4)) << "none is taken where not all may be";
  EXPECT_TRUE(budget.Take(3));
  EXPECT_FALSE(budget.Has());
  int hedges = 0;
  for (int call = 0; call < 1000; ++call) {
    budget.Sent();
    hedges += budget.Take(1) ? 1 : 0;
  }
  EXPECT_EQ(hedges, 50);
  for (int call = 0; call < 1000; ++call) budget.Sent();
  EXPECT_TRUE(budget.Take(3));
  EXPECT_FALSE(budget.Take(1)) << "more than the burst is not saved up";
}

TEST(HedgeBudgetTest, NoneAndAll) {
  HedgeBudget none(0, 20), all(1, 1);
  none.Sent();
  EXPECT_FALSE(none.Has());
  for (int call = 0; call < 100; ++call) {
    all.Sent();
    EXPECT_TRUE(all.Take(1));
  }
}

TEST(HedgeBudgetTest, ThreadsTakeNoMoreThanThereIs) {
  HedgeBudget budget(0.1, 10);
  std::atomic<int> hedges{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 1000; ++call) {
        budget.Sent();
        hedges += budget.Take(1) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(hedges.load(), 410);
  EXPECT_GE(hedges.load(), 400);
}

}  // namespace hedge_budget_test
}  // namespace hotbed
