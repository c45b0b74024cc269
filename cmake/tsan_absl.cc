// Tells ThreadSanitizer what Abseil's locks order. The packaged Abseil is not instrumented, so that
// every field guarded by an absl::Mutex would be reported as a race. The linker (--wrap, see
// Sanitizers.cmake) sends the calls of our code here; each is passed on to Abseil together with the
// acquire or release that it means.
//
// HOTBED_ABSL_PREFIX is how mangled names within Abseil's inline namespace begin.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

// Declares the real function and begins the definition of its wrapper. `kind` is N for methods, NK
// for const methods.
#define HOTBED_WRAP(result, kind, name, symbol, ...)                                 \
  result Real##name(__VA_ARGS__) asm("__real__Z" kind HOTBED_ABSL_PREFIX symbol);    \
  result Wrapped##name(__VA_ARGS__) asm("__wrap__Z" kind HOTBED_ABSL_PREFIX symbol); \
  result Wrapped##name(__VA_ARGS__)

namespace hotbed {
namespace {

using absl::Condition;
using absl::CondVar;
using absl::Duration;
using absl::Mutex;
using absl::Notification;
using absl::Time;

void Acquire(const void* lock) { __tsan_acquire(const_cast<void*>(lock)); }
void Release(const void* lock) { __tsan_release(const_cast<void*>(lock)); }

// A waiter's condition is also evaluated by other threads, inside their Unlock and after its
// Release: each evaluation must be ordered by itself. The lock is held around it.
class OrderedCondition {
 public:
  OrderedCondition(Mutex* mutex, const Condition& condition)
      : mutex_(mutex), condition_(condition), wrapped_(&Evaluate, this) {}
  const Condition& wrapped() const { return wrapped_; }

 private:
  static bool Evaluate(OrderedCondition* self) {
    Acquire(self->mutex_);
    const bool result = self->condition_.Eval();
    Release(self->mutex_);
    return result;
  }

  Mutex* mutex_;
  const Condition& condition_;
  Condition wrapped_;
};

// Behind the mutex stands the flag that HasBeenNotified, an inline function, loads.
const void* FlagOf(const Notification* n) {
  return reinterpret_cast<const char*>(n) + sizeof(Mutex);
}

}  // namespace

HOTBED_WRAP(void, "N", Lock, "5Mutex4LockEv", Mutex* m) {
  RealLock(m);
  Acquire(m);
}

HOTBED_WRAP(void, "N", ReaderLock, "5Mutex10ReaderLockEv", Mutex* m) {
  RealReaderLock(m);
  Acquire(m);
}

HOTBED_WRAP(bool, "N", TryLock, "5Mutex7TryLockEv", Mutex* m) {
  const bool locked = RealTryLock(m);
  if (locked) Acquire(m);
  return locked;
}

HOTBED_WRAP(void, "N", Unlock, "5Mutex6UnlockEv", Mutex* m) {
  Release(m);
  RealUnlock(m);
}

HOTBED_WRAP(void, "N", ReaderUnlock, "5Mutex12ReaderUnlockEv", Mutex* m) {
  Release(m);
  RealReaderUnlock(m);
}

HOTBED_WRAP(void, "N", LockWhen, "5Mutex8LockWhenERKNS0_9ConditionE", Mutex* m,
            const Condition& c) {
  RealLockWhen(m, OrderedCondition(m, c).wrapped());
  Acquire(m);
}

HOTBED_WRAP(bool, "N", LockWhenWithTimeout,
            "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE", Mutex* m,
            const Condition& c, Duration timeout) {
  const bool met = RealLockWhenWithTimeout(m, OrderedCondition(m, c).wrapped(), timeout);
  Acquire(m);
  return met;
}

HOTBED_WRAP(bool, "N", LockWhenWithDeadline,
            "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE", Mutex* m,
            const Condition& c, Time deadline) {
  const bool met = RealLockWhenWithDeadline(m, OrderedCondition(m, c).wrapped(), deadline);
  Acquire(m);
  return met;
}

HOTBED_WRAP(void, "N", Await, "5Mutex5AwaitERKNS0_9ConditionE", Mutex* m, const Condition& c) {
  Release(m);
  RealAwait(m, OrderedCondition(m, c).wrapped());
  Acquire(m);
}

HOTBED_WRAP(bool, "N", AwaitWithTimeout, "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
            Mutex* m, const Condition& c, Duration timeout) {
  Release(m);
  const bool met = RealAwaitWithTimeout(m, OrderedCondition(m, c).wrapped(), timeout);
  Acquire(m);
  return met;
}

HOTBED_WRAP(bool, "N", AwaitWithDeadline, "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
            Mutex* m, const Condition& c, Time deadline) {
  Release(m);
  const bool met = RealAwaitWithDeadline(m, OrderedCondition(m, c).wrapped(), deadline);
  Acquire(m);
  return met;
}

HOTBED_WRAP(void, "N", Wait, "7CondVar4WaitEPNS0_5MutexE", CondVar* v, Mutex* m) {
  Release(m);
  RealWait(v, m);
  Acquire(m);
}

HOTBED_WRAP(bool, "N", WaitWithTimeout, "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
            CondVar* v, Mutex* m, Duration timeout) {
  Release(m);
  const bool timed_out = RealWaitWithTimeout(v, m, timeout);
  Acquire(m);
  return timed_out;
}

HOTBED_WRAP(bool, "N", WaitWithDeadline, "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
            CondVar* v, Mutex* m, Time deadline) {
  Release(m);
  const bool timed_out = RealWaitWithDeadline(v, m, deadline);
  Acquire(m);
  return timed_out;
}

HOTBED_WRAP(void, "N", Notify, "12Notification6NotifyEv", Notification* n) {
  Release(FlagOf(n));
  RealNotify(n);
}

HOTBED_WRAP(void, "NK", WaitForNotification, "12Notification19WaitForNotificationEv",
            const Notification* n) {
  RealWaitForNotification(n);
  Acquire(FlagOf(n));
}

HOTBED_WRAP(bool, "NK", WaitForNotificationWithTimeout,
            "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", const Notification* n,
            Duration timeout) {
  const bool notified = RealWaitForNotificationWithTimeout(n, timeout);
  if (notified) Acquire(FlagOf(n));
  return notified;
}

}  // namespace hotbed
