#include "common/await_for.h"

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

// How soon a waiter is told again, should the first time not have reached it.
constexpr std::chrono::milliseconds kTellAgain{1};

// One thread that tells waiters that their time is over. It never waits for a waiter's mutex: who
// holds that one evaluates the waiter's condition when he lets go. Its own mutex is taken under a
// waiter's, and held while a waiter's is tried: so a waiter that has left is never touched.
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
      node.key() = now + kTellAgain;
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
