// One thread that runs tasks after a delay (retries) and a regular tick (deadlines). Thread-safe.
#ifndef HOTBED_CLIENT_NET_TIMER_H_
#define HOTBED_CLIENT_NET_TIMER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"

namespace hotbed {

class Timer {
 public:
  // `tick` runs about every kTickNs while there are watchers, and never after Stop.
  static constexpr int64_t kTickNs = 5'000'000;

  Timer(const Clock* clock, std::function<void()> tick);
  ~Timer() { Stop(); }

  // Runs `task` on the timer's thread after `delay_ns`. Drops it when the timer stops first.
  void RunAfter(int64_t delay_ns, absl::AnyInvocable<void()> task);
  // Count the calls that need the tick. Another thread may remove a watcher before it is added.
  void AddWatcher();
  void RemoveWatcher();
  // Joins the thread. Not to be called from a task.
  void Stop();

 private:
  void Loop();

  const Clock* const clock_;
  const std::function<void()> tick_;
  absl::Mutex mu_;
  std::multimap<int64_t, absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  int64_t watchers_ ABSL_GUARDED_BY(mu_) = 0;
  bool waiting_idle_ ABSL_GUARDED_BY(mu_) = false;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;  // wakes the thread
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_TIMER_H_
