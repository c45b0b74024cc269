// Debian's Abseil is not built for ThreadSanitizer, which therefore does not see its mutexes and
// reports every access that they protect. This file, linked into TSan builds only, stands in front
// of the calls that lock, unlock and wait, tells ThreadSanitizer what they order, and goes on to
// the library.
//
// Conditions are evaluated inside the library, on whichever thread holds the mutex: what they read
// is left out of the analysis.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// The library's own version of a function; `name` is mangled.
template <typename R, typename... Args>
R CallNext(void** next, const char* name, Args... args) {
  if (*next == nullptr) *next = dlsym(RTLD_NEXT, name);
  if (*next == nullptr) {
    std::fprintf(stderr, "TSan shim of Abseil's mutex: the library has no %s\n", name);
    std::abort();
  }
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  const R result = reinterpret_cast<R (*)(Args...)>(*next)(args...);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  return result;
}

}  // namespace

// `BEFORE` and `AFTER` are what the call orders. Functions without a result return what is in the
// register, which nobody reads.
#define HOTBED_SHIM(NAME, PARAMETERS, BEFORE, AFTER, ...)                  \
  extern "C" intptr_t NAME PARAMETERS {                                    \
    static void* next = nullptr;                                           \
    BEFORE;                                                                \
    const intptr_t result = CallNext<intptr_t>(&next, #NAME, __VA_ARGS__); \
    AFTER;                                                                 \
    return result;                                                         \
  }
#define HOTBED_NOTHING (void)0

HOTBED_SHIM(_ZN4absl7debian35Mutex4LockEv, (void* mu), HOTBED_NOTHING, __tsan_acquire(mu), mu)
HOTBED_SHIM(_ZN4absl7debian35Mutex10ReaderLockEv, (void* mu), HOTBED_NOTHING, __tsan_acquire(mu),
            mu)
HOTBED_SHIM(_ZN4absl7debian35Mutex6UnlockEv, (void* mu), __tsan_release(mu), HOTBED_NOTHING, mu)
HOTBED_SHIM(_ZN4absl7debian35Mutex12ReaderUnlockEv, (void* mu), __tsan_release(mu), HOTBED_NOTHING,
            mu)
HOTBED_SHIM(_ZN4absl7debian35Mutex7TryLockEv, (void* mu), HOTBED_NOTHING, __tsan_acquire(mu), mu)
HOTBED_SHIM(_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE, (void* mu, void* condition),
            __tsan_release(mu), __tsan_acquire(mu), mu, condition)
HOTBED_SHIM(_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE,
            (void* mu, void* condition, int64_t high, uint32_t low), __tsan_release(mu),
            __tsan_acquire(mu), mu, condition, high, low)
HOTBED_SHIM(_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE, (void* mu, void* condition),
            HOTBED_NOTHING, __tsan_acquire(mu), mu, condition)
HOTBED_SHIM(_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE, (void* cv, void* mu), __tsan_release(mu),
            __tsan_acquire(mu), cv, mu)
HOTBED_SHIM(_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE,
            (void* cv, void* mu, int64_t high, uint32_t low), __tsan_release(mu),
            __tsan_acquire(mu), cv, mu, high, low)
