// How many calls may be sent twice: a part of all calls, and a burst. So servers that are all slow
// do not get twice the calls. Thread-safe.
#ifndef HOTBED_COMMON_HEDGE_BUDGET_H_
#define HOTBED_COMMON_HEDGE_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hotbed {

class HedgeBudget {
 public:
  // `part` is of 0..1. It begins with the burst.
  HedgeBudget(double part, int64_t burst)
      : per_call_(static_cast<int64_t>(part * kHedge)),
        most_(part > 0 ? burst * kHedge : 0),
        left_(most_) {}

  // A first call.
  void Sent() {
    int64_t left = left_.load(std::memory_order_relaxed);
    while (left < most_ && !left_.compare_exchange_weak(left, std::min(left + per_call_, most_),
                                                        std::memory_order_relaxed)) {
    }
  }
  bool Has() const { return left_.load(std::memory_order_relaxed) >= kHedge; }
  // Before they are sent. False: it has not as many, and none is taken.
  bool Take(int64_t hedges) {
    int64_t left = left_.load(std::memory_order_relaxed);
    while (left >= hedges * kHedge) {
      if (left_.compare_exchange_weak(left, left - hedges * kHedge, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

 private:
  static constexpr int64_t kHedge = 1'000'000;  // in units of left_
  const int64_t per_call_;
  const int64_t most_;
  std::atomic<int64_t> left_;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_HEDGE_BUDGET_H_
