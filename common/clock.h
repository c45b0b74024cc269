// The clock as a seam: a class that needs the time takes a Clock by constructor, so that tests and
// simulations decide what time it is. Thread-safe.
#ifndef HOTBED_COMMON_CLOCK_H_
#define HOTBED_COMMON_CLOCK_H_

#include <atomic>
#include <cstdint>

namespace hotbed {

// In nanoseconds, as Clock::NowNs counts.
inline constexpr int64_t kMillisecondNs = 1'000'000;
inline constexpr int64_t kSecondNs = 1'000 * kMillisecondNs;

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic nanoseconds that include time spent in suspend (CLOCK_BOOTTIME). For leases,
  // deadlines and rates.
  virtual int64_t NowNs() const = 0;
  // Microseconds since 1970: for display only.
  virtual int64_t WallUs() const = 0;
  virtual void SleepNs(int64_t ns) const = 0;

  static Clock* Real();  // never deleted
};

// A clock that a test advances by hand; SleepNs advances it too. Thread-safe.
class ManualClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(); }
  int64_t WallUs() const override { return NowNs() / 1000; }
  void SleepNs(int64_t ns) const override { now_ns_.fetch_add(ns); }
  void Advance(int64_t ns) { now_ns_.fetch_add(ns); }

 private:
  mutable std::atomic<int64_t> now_ns_{0};
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_CLOCK_H_
