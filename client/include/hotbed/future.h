// Future<T>: a value that another thread will provide. Copies of a Future share the value.
#ifndef HOTBED_FUTURE_H_
#define HOTBED_FUTURE_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/threads/await_for.h"
#include "hotbed/wait_driver.h"

namespace hotbed {

// Thread-safe. A default-constructed Future is not valid, and nothing but valid() may be called on
// it: Future::Ready and Promise make valid ones.
template <typename T>
class Future {
 public:
  Future() = default;
  static Future Ready(T value) {
    Future f(std::make_shared<State>(nullptr));
    f.state_->Set(std::move(value));
    return f;
  }

  bool valid() const { return state_ != nullptr; }
  bool ready() const { return state_->IsSet(); }
  // To be given to a promise that is kept when this Future's is. Null: waiting threads sleep.
  std::shared_ptr<WaitDriver> driver() const { return state_->driver(); }
  // Blocks until the value is there. Meanwhile this thread does the client's network work if no
  // other thread does, so that callbacks of other futures may run on it. The reference lives as
  // long as this future or a copy of it.
  const T& Wait() const { return state_->Wait(); }
  // As Wait, for at most `timeout`. False: the value is not there yet.
  bool WaitFor(absl::Duration timeout) const { return state_->WaitFor(timeout); }
  // Runs `callback` with the value: on the thread that provides it, or on this one if it is there
  // already. At most one callback per value; it must not block.
  void Then(absl::AnyInvocable<void(const T&)> callback) const {
    state_->Then(std::move(callback));
  }

 private:
  template <typename U>
  friend class Promise;

  class State {
   public:
    explicit State(std::shared_ptr<WaitDriver> driver) : driver_(std::move(driver)) {}

    const std::shared_ptr<WaitDriver>& driver() const { return driver_; }
    void Set(T value) {
      absl::AnyInvocable<void(const T&)> callback;
      int sleepers = 0;
      {
        absl::MutexLock lock(&mu_);
        value_ = std::move(value);
        set_.store(true, std::memory_order_release);
        callback = std::move(callback_);
        sleepers = std::exchange(sleepers_, 0);
      }
      // Done here and not by the threads that wake up: until they have, the driver would count them
      // as asleep and continue the work that they are about to take over.
      for (; sleepers > 0; --sleepers) driver_->Sleeps(false);
      if (callback) callback(value_);
    }
    bool IsSet() const { return set_.load(std::memory_order_acquire); }
    const T& Wait() const {
      WaitUntil(std::numeric_limits<int64_t>::max());
      return value_;
    }
    bool WaitFor(absl::Duration timeout) const {
      if (IsSet()) return true;
      if (timeout >= kWaitMax) return WaitUntil(std::numeric_limits<int64_t>::max());
      return WaitUntil(Clock::Real()->NowNs() + absl::ToInt64Nanoseconds(timeout));
    }
    void Then(absl::AnyInvocable<void(const T&)> callback) {
      {
        absl::MutexLock lock(&mu_);
        if (!IsSet()) {
          callback_ = std::move(callback);
          return;
        }
      }
      callback(value_);
    }

   private:
    static constexpr absl::Duration kWaitMax = absl::Hours(24 * 365);  // longer waits never end

    bool WaitUntil(int64_t deadline_ns) const {
      if (IsSet()) return true;
      if (driver_ == nullptr) return Sleep(deadline_ns);
      if (driver_->WorkUntil([this] { return IsSet(); }, deadline_ns)) return IsSet();
      return SleepWhileDriven(deadline_ns);
    }
    bool SleepWhileDriven(int64_t deadline_ns) const {
      driver_->Sleeps(true);
      {
        absl::MutexLock lock(&mu_);
        if (!IsSet()) {
          ++sleepers_;
          if (SleepLocked(deadline_ns)) return true;  // Set has called driver_->Sleeps(false)
          --sleepers_;
        }
      }
      driver_->Sleeps(false);
      return IsSet();
    }
    bool Sleep(int64_t deadline_ns) const {
      absl::MutexLock lock(&mu_);
      return SleepLocked(deadline_ns);
    }
    bool SleepLocked(int64_t deadline_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return AwaitFor(&mu_, absl::Condition(this, &State::IsSet),
                      absl::Nanoseconds(deadline_ns - Clock::Real()->NowNs()));
    }

    const std::shared_ptr<WaitDriver> driver_;
    mutable absl::Mutex mu_;
    std::atomic<bool> set_{false};  // written under mu_
    T value_{};                     // written once under mu_, read freely after set_
    mutable int sleepers_ ABSL_GUARDED_BY(mu_) = 0;  // threads in SleepWhileDriven, until set_
    absl::AnyInvocable<void(const T&)> callback_ ABSL_GUARDED_BY(mu_);
  };

  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The providing end. Set is called exactly once.
template <typename T>
class Promise {
 public:
  // `driver` is the work that waiting threads do. Null: they sleep.
  explicit Promise(std::shared_ptr<WaitDriver> driver = nullptr)
      : state_(std::make_shared<typename Future<T>::State>(std::move(driver))) {}
  Future<T> future() const { return Future<T>(state_); }
  void Set(T value) { state_->Set(std::move(value)); }

 private:
  std::shared_ptr<typename Future<T>::State> state_;
};

}  // namespace hotbed

#endif  // HOTBED_FUTURE_H_
