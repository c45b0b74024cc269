// Part of our programs, not of the client library. Makes every wait of Abseil that ends at a time
// of day end by the monotonic clock instead; gRPC's timers and deadlines are such waits. Otherwise
// a wait that is in progress when the clock is set back by an hour takes an hour longer
// (tests/fault/clock_test.py). Abseil releases from 2023-08 on do not need this.
//
// Abseil calls the C library's syscall() for futexes. The dynamic linker finds this function first.
#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <ctime>

namespace {

using SystemCall = long (*)(long, ...);  // NOLINT(google-runtime-int): as declared by the C library

// No static local with a guard: the guard would wait by a futex, through this very function.
SystemCall Next() {
  static std::atomic<SystemCall> next{nullptr};
  SystemCall found = next.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = reinterpret_cast<SystemCall>(dlsym(RTLD_NEXT, "syscall"));
    next.store(found, std::memory_order_relaxed);
  }
  return found;
}

int64_t NsOf(const timespec& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; }

int64_t NowNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return NsOf(now);
}

}  // namespace

// NOLINTNEXTLINE(google-runtime-int): as declared by the C library
extern "C" __attribute__((visibility("default"))) long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];                                               // NOLINT(google-runtime-int)
  for (auto& argument : a) argument = va_arg(list, long);  // NOLINT(google-runtime-int)
  va_end(list);
  timespec until;
  if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0) {
    const auto* const of_day = reinterpret_cast<const timespec*>(a[3]);
    const int64_t left_ns = NsOf(*of_day) - NowNs(CLOCK_REALTIME);
    const int64_t end_ns = NowNs(CLOCK_MONOTONIC) + (left_ns > 0 ? left_ns : 0);
    until = {end_ns / 1'000'000'000, end_ns % 1'000'000'000};
    a[1] &= ~FUTEX_CLOCK_REALTIME;
    a[3] = reinterpret_cast<intptr_t>(&until);
  }
  return Next()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
