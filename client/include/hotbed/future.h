// Future<T>: a value that another thread will provide. Copies share the value.
#ifndef HOTBED_FUTURE_H_
#define HOTBED_FUTURE_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace hotbed {

// Thread-safe. A default-constructed Future is not valid: only Future::Ready and Promise make
// usable ones.
template <typename T>
class Future {
 public:
  Future() = default;
  static Future Ready(T value) {
    Future f(std::make_shared<State>());
    f.state_->Set(std::move(value));
    return f;
  }

  bool valid() const { return state_ != nullptr; }
  bool ready() const { return state_->IsSet(); }
  // Blocks until the value is there. The reference lives as long as this future or a copy of it.
  const T& Wait() const { return state_->Wait(); }
  // False when `timeout` passed first.
  bool WaitFor(absl::Duration timeout) const { return state_->WaitFor(timeout); }
  // Runs `callback` with the value, on the thread that provides it, or now if it is there. At most
  // one a future; it must not block.
  void Then(absl::AnyInvocable<void(const T&)> callback) const {
    state_->Then(std::move(callback));
  }

 private:
  template <typename U>
  friend class Promise;

  class State {
   public:
    void Set(T value) {
      absl::AnyInvocable<void(const T&)> callback;
      {
        absl::MutexLock lock(&mu_);
        value_ = std::move(value);
        set_ = true;
        callback = std::move(callback_);
      }
      if (callback) callback(value_);
    }
    bool IsSet() const {
      absl::MutexLock lock(&mu_);
      return set_;
    }
    const T& Wait() const {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&set_));
      return value_;
    }
    bool WaitFor(absl::Duration timeout) const {
      absl::MutexLock lock(&mu_);
      return mu_.AwaitWithTimeout(absl::Condition(&set_), timeout);
    }
    void Then(absl::AnyInvocable<void(const T&)> callback) {
      {
        absl::MutexLock lock(&mu_);
        if (!set_) {
          callback_ = std::move(callback);
          return;
        }
      }
      callback(value_);
    }

   private:
    mutable absl::Mutex mu_;
    bool set_ ABSL_GUARDED_BY(mu_) = false;
    T value_{};  // written once under mu_, read freely after set_
    absl::AnyInvocable<void(const T&)> callback_ ABSL_GUARDED_BY(mu_);
  };

  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The providing end. Set is called exactly once.
template <typename T>
class Promise {
 public:
  Promise() : state_(std::make_shared<typename Future<T>::State>()) {}
  Future<T> future() const { return Future<T>(state_); }
  void Set(T value) { state_->Set(std::move(value)); }

 private:
  std::shared_ptr<typename Future<T>::State> state_;
};

}  // namespace hotbed

#endif  // HOTBED_FUTURE_H_
