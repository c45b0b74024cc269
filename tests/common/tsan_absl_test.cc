// For the ThreadSanitizer build only: accesses ordered by Abseil's locks are not reported (see
// cmake/tsan_absl.cc), and unordered accesses still are.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace hotbed {
namespace tsan_absl_test {

TEST(TsanAbsl, WhatTheLocksOrderIsNotReported) {
  absl::Mutex mutex;
  absl::CondVar changed;
  absl::Notification finished;
  int count = 0;
  bool passed_on = false;
  int result = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        absl::MutexLock lock(&mutex);
        ++count;
        if (i % 100 == 0) changed.SignalAll();
      }
    });
  }
  threads.emplace_back([&] {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(
        +[](int* n) { return *n >= 4000; }, &count));
    passed_on = true;
  });
  threads.emplace_back([&] {
    absl::MutexLock lock(&mutex);
    while (count < 2000) changed.WaitWithTimeout(&mutex, absl::Milliseconds(10));
  });
  threads.emplace_back([&] {
    mutex.LockWhen(absl::Condition(&passed_on));
    mutex.Unlock();
    result = 7;
    finished.Notify();
  });
  while (!finished.HasBeenNotified()) std::this_thread::yield();
  EXPECT_EQ(result, 7);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

// Run by hand and by the test `tsan_finds_a_planted_race`, which expects it to fail.
TEST(TsanAbsl, DISABLED_PlantedRace) {
  int count = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) ++count;
  });
  for (int i = 0; i < 1000; ++i) ++count;
  other.join();
}

}  // namespace tsan_absl_test
}  // namespace hotbed
