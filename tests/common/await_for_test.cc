#include "common/threads/await_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace await_for_test {

double SecondsSince(int64_t begin_ns) {
  return static_cast<double>(Clock::Real()->NowNs() - begin_ns) / 1e9;
}

TEST(AwaitForTest, EndsWhenTheTimeHasPassed) {
  absl::Mutex mu;
  bool never = false;
  const int64_t begin_ns = Clock::Real()->NowNs();
  absl::MutexLock lock(&mu);
  EXPECT_FALSE(AwaitFor(&mu, absl::Condition(&never), absl::Milliseconds(30)));
  EXPECT_GE(SecondsSince(begin_ns), 0.030);
  EXPECT_LT(SecondsSince(begin_ns), 5.0);
}

TEST(AwaitForTest, EndsAtOnceWhereNothingIsToBeAwaited) {
  absl::Mutex mu;
  bool holds = true;
  bool never = false;
  absl::MutexLock lock(&mu);
  EXPECT_TRUE(AwaitFor(&mu, absl::Condition(&holds), absl::ZeroDuration()));
  EXPECT_FALSE(AwaitFor(&mu, absl::Condition(&never), absl::ZeroDuration()));
  EXPECT_FALSE(AwaitFor(&mu, absl::Condition(&never), -absl::InfiniteDuration()));
}

TEST(AwaitForTest, EndsWhenTheConditionHolds) {
  for (const absl::Duration timeout : {absl::Seconds(60), absl::InfiniteDuration()}) {
    absl::Mutex mu;
    bool holds = false;
    std::thread setter([&] {
      absl::MutexLock lock(&mu);
      holds = true;
    });
    {
      absl::MutexLock lock(&mu);
      EXPECT_TRUE(AwaitFor(&mu, absl::Condition(&holds), timeout));
    }
    setter.join();
  }
}

// A mutex that is held for long must not delay the timeouts of other waiters.
TEST(AwaitForTest, WhoHoldsHisMutexDelaysNobodyElse) {
  absl::Mutex held;
  absl::Mutex free;
  bool never = false;
  std::atomic<bool> late_ended{false};
  std::thread late([&] {
    absl::MutexLock lock(&held);
    EXPECT_FALSE(AwaitFor(&held, absl::Condition(&never), absl::Milliseconds(20)));
    late_ended = true;
  });
  Clock::Real()->SleepNs(10'000'000);
  held.Lock();
  {
    absl::MutexLock lock(&free);
    EXPECT_FALSE(AwaitFor(&free, absl::Condition(&never), absl::Milliseconds(60)));
  }
  EXPECT_FALSE(late_ended);
  held.Unlock();
  late.join();
}

// Waiters come and go with their mutexes, some by time, some by their condition.
TEST(AwaitForTest, WaitersThatLeaveAreForgotten) {
  const TestSeed seed(7);
  std::atomic<int> by_time{0};
  std::atomic<int> by_condition{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(seed.value() + t);
      for (int i = 0; i < 300; ++i) {
        struct Both {
          absl::Mutex mu;
          bool holds = false;
        };
        const auto both = std::make_unique<Both>();
        const int64_t delay_ns = static_cast<int64_t>(random.Uniform(300'000));
        std::thread setter([&] {
          Clock::Real()->SleepNs(delay_ns);
          absl::MutexLock lock(&both->mu);
          both->holds = true;
        });
        {
          absl::MutexLock lock(&both->mu);
          const absl::Duration timeout =
              absl::Nanoseconds(static_cast<int64_t>(random.Uniform(400'000)));
          const bool held = AwaitFor(&both->mu, absl::Condition(&both->holds), timeout);
          EXPECT_EQ(held, both->holds);
          ++(held ? by_condition : by_time);
        }
        setter.join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(by_time, 0);
  EXPECT_GT(by_condition, 0);
}

}  // namespace await_for_test
}  // namespace hotbed
