// libhotbed-clock-shim.so, for LD_PRELOAD: moves the time of day of a running process by the number
// of seconds in the file $HOTBED_CLOCK_SHIM (text, may be negative; read again every 10 ms).
// Monotonic clocks stay as they are. Abseil's waits until a time of day end when the moved clock
// reaches that time, as they do when somebody sets the kernel's clock: earlier or later than they
// were meant to.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr int64_t kReadEveryNs = 10'000'000;

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int RealClock(clockid_t clock, timespec* out) {
  static const auto real = Real<int (*)(clockid_t, timespec*)>("clock_gettime");
  return real(clock, out);
}

int64_t OffsetSeconds() {
  static std::atomic<int64_t> offset{0};
  static std::atomic<int64_t> read_ns{-kReadEveryNs};
  timespec now;
  RealClock(CLOCK_MONOTONIC, &now);
  const int64_t now_ns = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  int64_t last = read_ns.load();
  if (now_ns - last < kReadEveryNs || !read_ns.compare_exchange_strong(last, now_ns)) return offset;
  const char* const path = getenv("HOTBED_CLOCK_SHIM");
  FILE* const file = path == nullptr ? nullptr : fopen(path, "re");
  if (file == nullptr) return offset;
  long long seconds = 0;
  if (fscanf(file, "%lld", &seconds) == 1) offset = seconds;
  fclose(file);
  return offset;
}

bool Before(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

bool OfDay(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const int status = RealClock(clock, out);
  if (status == 0 && OfDay(clock)) out->tv_sec += OffsetSeconds();
  return status;
}

int gettimeofday(timeval* out, void*) noexcept {
  timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  *out = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

// How Abseil waits until a time of day. In slices, since the kernel knows nothing of our clock.
long syscall(long number, ...) noexcept {
  static const auto real = Real<long (*)(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 || a[3] == 0) {
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  const timespec until = *reinterpret_cast<timespec*>(a[3]);
  for (;;) {
    timespec end = until;
    end.tv_sec -= OffsetSeconds();
    timespec slice;
    RealClock(CLOCK_REALTIME, &slice);
    slice.tv_nsec += kReadEveryNs;
    if (slice.tv_nsec >= 1'000'000'000) ++slice.tv_sec, slice.tv_nsec -= 1'000'000'000;
    const bool last = Before(end, slice);
    if (last) slice = end;
    const long result = real(number, a[0], a[1], a[2], reinterpret_cast<long>(&slice), a[4], a[5]);
    if (last || result == 0 || errno != ETIMEDOUT) return result;
  }
}

// How gRPC waits, unless it asked for the monotonic clock.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static const auto real =
      Real<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  // Ten years beyond the monotonic clock, which starts at boot, it is a time of day.
  timespec now;
  RealClock(CLOCK_MONOTONIC, &now);
  timespec moved = *until;
  if (moved.tv_sec > now.tv_sec + 86400LL * 365 * 10) moved.tv_sec -= OffsetSeconds();
  return real(condition, mutex, &moved);
}

}  // extern "C"
