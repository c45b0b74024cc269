#include "client/net/completion_poller.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "hotbed/future.h"

namespace hotbed {
namespace completion_poller_test {

// An event, posted through gRPC's alarm, that records its thread and keeps a promise.
class Posted final : public CompletionEvent {
 public:
  Posted(CompletionPoller* driver, Promise<int> promise, int value)
      : promise_(std::move(promise)), value_(value) {
    alarm_.Set(driver->queue(), std::chrono::system_clock::now(), this);
  }
  void Run(bool ok) override {
    EXPECT_TRUE(ok);
    ran_on_ = std::this_thread::get_id();
    promise_.Set(value_);
    done_.Notify();
  }
  std::thread::id ran_on() {
    done_.WaitForNotification();
    return ran_on_;
  }

 private:
  grpc::Alarm alarm_;
  Promise<int> promise_;
  const int value_;
  std::thread::id ran_on_;
  absl::Notification done_;
};

class CompletionPollerTest : public ::testing::Test {
 protected:
  void TearDown() override { driver_->Shutdown(); }
  void Begin(absl::Duration rest, absl::Duration away_max) {
    driver_->Shutdown();
    driver_ = std::make_shared<CompletionPoller>(1, rest, away_max);
  }
  // Posts one event and waits for it after `away`. Returns the thread that ran the event.
  std::thread::id WaitOnce(absl::Duration away = absl::ZeroDuration()) {
    Promise<int> promise(driver_);
    const Future<int> future = promise.future();
    Posted posted(driver_.get(), promise, 7);
    if (away > absl::ZeroDuration()) absl::SleepFor(away);
    EXPECT_EQ(future.Wait(), 7);
    return posted.ran_on();
  }

  std::shared_ptr<CompletionPoller> driver_ = std::make_shared<CompletionPoller>(1);
};

TEST_F(CompletionPollerTest, CallerFindsThePlaceFreeAndKeepsIt) {
  Begin(/*rest=*/absl::Minutes(10), /*away_max=*/absl::Minutes(10));
  // Once a caller has polled, our thread rests after an event that no caller waits for. It may rest
  // before that event; then the caller takes the event as soon as it waits.
  for (int tries = 0; WaitOnce() != std::this_thread::get_id(); ++tries) {
    ASSERT_LT(tries, 10'000);
    WaitOnce(/*away=*/absl::Milliseconds(1));
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(WaitOnce(), std::this_thread::get_id());
}

// A caller that our thread has served no longer counts as asleep, even before it wakes up: our
// thread leaves the queue to it, and does not keep the queue for ever.
TEST_F(CompletionPollerTest, CallerSoonTakesOverFromTheThread) {
  constexpr int kRounds = 50;
  int tries = 0;
  for (int round = 0; round < kRounds; ++round) {
    Begin(/*rest=*/absl::Minutes(10), /*away_max=*/absl::Minutes(10));
    absl::SleepFor(absl::Milliseconds(1));  // the thread waits for events by now
    while (WaitOnce() != std::this_thread::get_id()) ASSERT_LT(++tries, 10 * kRounds);
  }
}

TEST_F(CompletionPollerTest, ThreadServesCallersThatStayAway) {
  // A thread that left the queue to such a caller would rest until the test's end.
  Begin(/*rest=*/absl::Minutes(10), /*away_max=*/absl::Microseconds(1));
  for (int i = 0; i < 100; ++i) {
    WaitOnce();
    absl::SleepFor(absl::Milliseconds(1));
    EXPECT_NE(Posted(driver_.get(), Promise<int>(driver_), 0).ran_on(), std::this_thread::get_id());
  }
}

TEST_F(CompletionPollerTest, EventsRunWithoutAnybodyWaiting) {
  WaitOnce();  // a caller was here just now
  Promise<int> promise(driver_);
  std::atomic<int> seen{0};
  promise.future().Then([&seen](int value) { seen = value; });
  Posted posted(driver_.get(), promise, 9);
  EXPECT_NE(posted.ran_on(), std::this_thread::get_id());
  EXPECT_EQ(seen, 9);
}

TEST_F(CompletionPollerTest, ManyWaitersAllGetTheirs) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 300;
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i, ++done) WaitOnce();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, kThreads * kRounds);
}

TEST_F(CompletionPollerTest, SleeperIsServedWhenTheWorkingCallerLeaves) {
  // One thread polls for a value that is set first; the other sleeps over a value that is set
  // later.
  for (int i = 0; i < 50; ++i) {
    WaitOnce();
    Promise<int> first(driver_), second(driver_);
    std::thread other([&] { EXPECT_EQ(second.future().Wait(), 2); });
    Posted posted_first(driver_.get(), first, 1);
    EXPECT_EQ(first.future().Wait(), 1);
    Posted posted_second(driver_.get(), second, 2);
    other.join();
    posted_first.ran_on();
    posted_second.ran_on();
  }
}

TEST_F(CompletionPollerTest, WaitForGivesUpInTime) {
  WaitOnce();
  Promise<int> promise(driver_);
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(promise.future().WaitFor(absl::Milliseconds(20)));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(20));
  EXPECT_FALSE(promise.future().ready());
  promise.Set(1);
  EXPECT_TRUE(promise.future().WaitFor(absl::ZeroDuration()));
}

TEST_F(CompletionPollerTest, ValueFromElsewhereEndsTheWait) {
  WaitOnce();
  Promise<int> promise(driver_);
  std::thread setter([&promise] {
    absl::SleepFor(absl::Milliseconds(5));
    promise.Set(3);
  });
  EXPECT_EQ(promise.future().Wait(), 3);
  setter.join();
}

TEST(CompletionPollerShutdownTest, FutureOutlivesTheQueue) {
  auto driver = std::make_shared<CompletionPoller>(1);
  Promise<int> promise(driver);
  driver->Shutdown();
  driver.reset();
  EXPECT_FALSE(promise.future().WaitFor(absl::Milliseconds(1)));
  promise.Set(5);
  EXPECT_EQ(promise.future().Wait(), 5);
}

TEST(CompletionPollerShutdownTest, WaitsForACallerInsideAnEvent) {
  class Slow final : public CompletionEvent {
   public:
    explicit Slow(CompletionPoller* driver) {
      alarm_.Set(driver->queue(), std::chrono::system_clock::now(), this);
    }
    void Run(bool) override {
      began_.Notify();
      absl::SleepFor(absl::Milliseconds(30));
      ended_ = true;
    }
    absl::Notification began_;
    std::atomic<bool> ended_{false};

   private:
    grpc::Alarm alarm_;
  };
  auto driver = std::make_shared<CompletionPoller>(1);
  Promise<int> promise(driver);
  std::unique_ptr<Slow> slow;
  absl::Notification posted;
  std::thread waiter([&] {
    for (int i = 0; i < 5; ++i) {  // after these, the caller can poll
      Promise<int> first(driver);
      Posted event(driver.get(), first, i);
      first.future().Wait();
      event.ran_on();
    }
    slow = std::make_unique<Slow>(driver.get());
    posted.Notify();
    promise.future().WaitFor(absl::Seconds(1));
  });
  posted.WaitForNotification();
  slow->began_.WaitForNotification();
  driver->Shutdown();
  EXPECT_TRUE(slow->ended_);
  promise.Set(1);
  waiter.join();
}

TEST(CompletionPollerThreadsTest, SeveralThreadsNeedNoCaller) {
  auto driver = std::make_shared<CompletionPoller>(3);
  for (int i = 0; i < 100; ++i) {
    Promise<int> promise(driver);
    Posted posted(driver.get(), promise, i);
    EXPECT_EQ(promise.future().Wait(), i);
    EXPECT_NE(posted.ran_on(), std::this_thread::get_id());
  }
  driver->Shutdown();
}

}  // namespace completion_poller_test
}  // namespace hotbed
