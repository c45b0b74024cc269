#include "server/byte_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hotbed {
namespace {

using Outcome = ByteBudget::Outcome;

// Releases at once what it is granted, if told to.
class Recorder final : public ByteBudget::Waiter {
 public:
  Recorder(ByteBudget* budget, std::vector<int>* order, int name, uint64_t release)
      : budget_(budget), order_(order), name_(name), release_(release) {}
  void Granted() override {
    order_->push_back(name_);
    if (release_ > 0) budget_->Release(release_);
  }

 private:
  ByteBudget* budget_;
  std::vector<int>* order_;
  int name_;
  uint64_t release_;
};

TEST(ByteBudgetTest, FirstComeFirstServed) {
  ByteBudget budget(100, 10);
  std::vector<int> order;
  Recorder big(&budget, &order, 1, 0);
  Recorder small(&budget, &order, 2, 0);
  EXPECT_EQ(budget.Reserve(60, nullptr), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(50, &big), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(10, &small), Outcome::kWaiting);  // would fit, but does not pass
  EXPECT_EQ(budget.in_flight(), 60u);
  budget.Release(60);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(budget.in_flight(), 60u);
}

TEST(ByteBudgetTest, AdmitsWhatIsLargerThanTheLimitWhenAlone) {
  ByteBudget budget(100, 10);
  std::vector<int> order;
  Recorder huge(&budget, &order, 1, 0);
  EXPECT_EQ(budget.Reserve(1, nullptr), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(5000, &huge), Outcome::kWaiting);
  budget.Release(1);
  EXPECT_EQ(order.size(), 1u);
  EXPECT_EQ(budget.in_flight(), 5000u);
}

TEST(ByteBudgetTest, RefusesBeyondTheWaiters) {
  ByteBudget budget(10, 1);
  std::vector<int> order;
  Recorder waiter(&budget, &order, 1, 0);
  EXPECT_EQ(budget.Reserve(10, nullptr), Outcome::kReserved);
  EXPECT_EQ(budget.Reserve(1, &waiter), Outcome::kWaiting);
  EXPECT_EQ(budget.Reserve(1, nullptr), Outcome::kRefused);
}

TEST(ByteBudgetTest, ManyWaitersThatReleaseAtOnceDoNotDeepenTheStack) {
  ByteBudget budget(10, 1 << 20);
  std::vector<int> order;
  Recorder waiter(&budget, &order, 1, 10);
  EXPECT_EQ(budget.Reserve(10, nullptr), Outcome::kReserved);
  for (int i = 0; i < 200'000; ++i) ASSERT_EQ(budget.Reserve(10, &waiter), Outcome::kWaiting);
  budget.Release(10);
  EXPECT_EQ(order.size(), 200'000u);
  EXPECT_EQ(budget.in_flight(), 0u);
}

TEST(ByteBudgetTest, NeverOverTheLimitWithManyThreads) {
  class Blocking final : public ByteBudget::Waiter {
   public:
    void Granted() override { granted.store(true); }
    std::atomic<bool> granted{false};
  };
  ByteBudget budget(64, 64);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t bytes = 1 + (i * 7 + t) % 40;
        Blocking waiter;
        if (budget.Reserve(bytes, &waiter) == Outcome::kWaiting) {
          while (!waiter.granted.load()) std::this_thread::yield();
        }
        if (budget.in_flight() > 64) over.store(true);
        budget.Release(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(over.load());
  EXPECT_EQ(budget.in_flight(), 0u);
}

}  // namespace
}  // namespace hotbed
