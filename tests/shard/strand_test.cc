#include "common/threads/strand.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/threads/thread_pool.h"

namespace hotbed {
namespace strand_test {

TEST(StrandTest, AnIdleStrandRunsTheWorkHereAndNow) {
  ThreadPool pool("test", 1);
  Strand strand(&pool, Clock::Real(), {});
  std::thread::id ran_on;
  const auto outcome = strand.TryRun([&] { ran_on = std::this_thread::get_id(); },
                                     []() -> Strand::Task { return nullptr; });
  EXPECT_EQ(outcome, Strand::Outcome::kRan);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(StrandTest, WorkFromInsideIsQueuedBehindNotEntered) {
  ThreadPool pool("test", 1);
  Strand strand(&pool, Clock::Real(), {});
  std::vector<int> order;
  strand.Run([&] {
    strand.Run([&] { order.push_back(2); });
    order.push_back(1);
  });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

struct PutOff final : Strand::Deferred {
  explicit PutOff(std::vector<int>* order) : order(order) {}
  void Settle() override { order->push_back(0); }
  std::vector<int>* order;
};

TEST(StrandTest, WorkThatWasPutOffComesBeforeTheNextTask) {
  ThreadPool pool("test", 1);
  Strand strand(&pool, Clock::Real(), {});
  std::vector<int> order;
  PutOff put_off(&order);
  strand.RunIfIdle([&] { strand.Defer(&put_off); });
  EXPECT_TRUE(strand.RunIfIdle([&] { EXPECT_EQ(strand.deferred(), &put_off); }));
  EXPECT_TRUE(order.empty());
  strand.Run([&] { order.push_back(1); });
  strand.RunIfIdle([&] { strand.Defer(&put_off); });
  strand.TryRun([&] { order.push_back(2); }, []() -> Strand::Task { return nullptr; });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 0, 2}));
  strand.Run([&] {
    strand.Run([&] { order.push_back(3); });
    strand.Defer(&put_off);
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 0, 2, 0, 3}));
  EXPECT_EQ(strand.deferred(), nullptr);
}

TEST(StrandTest, AFullQueueSaysSo) {
  ThreadPool pool("test", 1);
  Strand strand(&pool, Clock::Real(), {.queue_max = 2});
  int ran = 0;
  strand.Run([&] {
    const auto queue = [&] { return strand.TryRun([] {}, [&] { return [&] { ++ran; }; }); };
    EXPECT_EQ(queue(), Strand::Outcome::kQueued);
    EXPECT_EQ(queue(), Strand::Outcome::kQueued);
    EXPECT_EQ(queue(), Strand::Outcome::kFull);
    EXPECT_EQ(strand.queue_depth(), 2u);
  });
  EXPECT_EQ(ran, 2);
}

TEST(StrandTest, WhoDrainsLeavesTheRestToThePool) {
  ThreadPool pool("test", 1);
  std::atomic<int> drained{0};
  Strand::Options options;
  options.after_drain = [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); };
  options.after_drain_context = &drained;
  absl::Notification all;
  int here = 0;
  int ran = 0;
  const auto self = std::this_thread::get_id();
  Strand strand(&pool, Clock::Real(), options);
  strand.Run([&] {
    for (int i = 0; i < 200; ++i) {
      strand.Run([&] {
        here += std::this_thread::get_id() == self;
        if (++ran == 200) all.Notify();
      });
    }
  });
  all.WaitForNotification();
  EXPECT_LE(here, 64);
  EXPECT_GE(drained.load(), 1);
}

TEST(StrandTest, ManyThreadsOneOrderAndNoOverlap) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 5000;
  ThreadPool pool("test", 2);
  Strand strand(&pool, Clock::Real(), {});
  int64_t unguarded = 0;  // the strand is what guards it
  std::vector<int> last(kThreads, -1);
  bool in_order = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        strand.Run([&, t, i] {
          ++unguarded;
          in_order = in_order && last[t] == i - 1;
          last[t] = i;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Notification done;
  strand.Run([&] { done.Notify(); });
  done.WaitForNotification();
  EXPECT_EQ(unguarded, kThreads * kTasks);
  EXPECT_TRUE(in_order) << "each thread's tasks run in the order it gave them";
}

}  // namespace strand_test
}  // namespace hotbed
