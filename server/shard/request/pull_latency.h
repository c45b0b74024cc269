// The durations of pulls: a histogram with two buckets per power of two, emptied once per second.
// Thread-safe; a duration that is added during TakeP99 may count for either second.
#ifndef HOTBED_SERVER_SHARD_REQUEST_PULL_LATENCY_H_
#define HOTBED_SERVER_SHARD_REQUEST_PULL_LATENCY_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "common/clock.h"

namespace hotbed {

class PullLatency {
 public:
  explicit PullLatency(const Clock* clock) : clock_(clock) {}

  int64_t NowNs() const { return clock_->NowNs(); }
  void Add(int64_t ns) { counts_[BucketOf(ns)].fetch_add(1, std::memory_order_relaxed); }
  // The 99th percentile of the durations added since the last call, rounded up to the end of its
  // bucket; 0: none were added.
  int64_t TakeP99() {
    std::array<uint64_t, kBuckets> taken;
    uint64_t all = 0;
    for (int i = 0; i < kBuckets; ++i) {
      taken[i] = counts_[i].exchange(0, std::memory_order_relaxed);
      all += taken[i];
    }
    uint64_t below = 0;
    for (int i = 0; i < kBuckets; ++i) {
      below += taken[i];
      if (below > 0 && below * 100 >= all * 99) return UpperNs(i);
    }
    return 0;
  }

 private:
  static constexpr int kBuckets = 80;  // two per power of two, from 1 us up
  static int BucketOf(int64_t ns) {
    const uint64_t us = ns < 1000 ? 1 : static_cast<uint64_t>(ns) / 1000;
    const int log = std::bit_width(us) - 1;
    const int half = log > 0 && (us >> (log - 1)) & 1 ? 1 : 0;
    const int bucket = 2 * log + half;
    return bucket < kBuckets ? bucket : kBuckets - 1;
  }
  static int64_t UpperNs(int bucket) {
    const int64_t power = int64_t{1000} << (bucket / 2);
    return bucket % 2 == 0 ? power + power / 2 : 2 * power;
  }

  const Clock* const clock_;
  std::array<std::atomic<uint64_t>, kBuckets> counts_ = {};
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_PULL_LATENCY_H_
