#include "common/threads/await_for.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace hotbed {
namespace {

using SteadyClock = std::chrono::steady_clock;

// An expired waiter is woken again at this interval until it has left.
constexpr std::chrono::milliseconds kWakeAgain{1};

// One thread that wakes waiters whose time has passed. It never blocks on a waiter's mutex: the
// holder of that mutex re-evaluates the condition on unlock. Alarms' own mutex is taken while a
// waiter's mutex is held, and is held while a waiter's mutex is tried, so a waiter that has left is
// never touched.
class Alarms {
 public:
  struct Waiter;
  using Waiters = std::multimap<SteadyClock::time_point, Waiter*>;
  struct Waiter {
    absl::Mutex* mu;
    std::atomic<bool> expired{false};
    Waiters::iterator place;
  };

  static Alarms& Get() {
    static Alarms* const alarms = new Alarms;  // never deleted: threads may outlive main
    return *alarms;
  }

  void Add(Waiter* waiter, SteadyClock::time_point until) {
    const std::scoped_lock lock(mu_);
    waiter->place = waiters_.emplace(until, waiter);
    if (waiter->place == waiters_.begin()) sooner_.notify_one();
  }

  void Remove(Waiter* waiter) {
    const std::scoped_lock lock(mu_);
    waiters_.erase(waiter->place);
  }

 private:
  Alarms() {
    std::thread([this] { Loop(); }).detach();
  }

  void Loop() {
    std::unique_lock lock(mu_);
    for (;;) {
      if (waiters_.empty()) {
        sooner_.wait(lock);
        continue;
      }
      const auto first = waiters_.begin();
      const SteadyClock::time_point now = SteadyClock::now();
      if (first->first > now) {
        sooner_.wait_until(lock, SteadyClock::time_point(first->first));
        continue;
      }
      Waiter* const waiter = first->second;
      waiter->expired.store(true, std::memory_order_release);
      if (waiter->mu->TryLock()) waiter->mu->Unlock();  // evaluates the condition
      auto node = waiters_.extract(first);
      node.key() = now + kWakeAgain;
      waiter->place = waiters_.insert(std::move(node));
    }
  }

  std::mutex mu_;
  std::condition_variable sooner_;
  Waiters waiters_;
};

}  // namespace

bool AwaitFor(absl::Mutex* mu, const absl::Condition& condition, absl::Duration timeout) {
  if (condition.Eval()) return true;
  if (timeout <= absl::ZeroDuration()) return false;
  if (timeout >= absl::Hours(24 * 365)) {
    mu->Await(condition);
    return true;
  }
  Alarms::Waiter waiter{mu};
  const auto ends = [&] {
    return waiter.expired.load(std::memory_order_acquire) || condition.Eval();
  };
  Alarms::Get().Add(&waiter, SteadyClock::now() + absl::ToChronoNanoseconds(timeout));
  mu->Await(absl::Condition(&ends));
  Alarms::Get().Remove(&waiter);
  return condition.Eval();
}

}  // namespace hotbed
