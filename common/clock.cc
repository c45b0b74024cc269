#include "common/clock.h"

#include <cerrno>
#include <ctime>

namespace hotbed {
namespace {

constexpr int64_t kNsPerS = 1000000000;

class RealClock : public Clock {
 public:
  int64_t NowNs() const override {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * kNsPerS + now.tv_nsec;
  }

  int64_t WallUs() const override {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
  }

  void SleepNs(int64_t ns) const override {
    if (ns <= 0) return;
    timespec left = {.tv_sec = ns / kNsPerS, .tv_nsec = ns % kNsPerS};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

}  // namespace hotbed
