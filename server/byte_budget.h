// A bound on the bytes in flight, with a fair queue of those who wait for room (DECISIONS C3).
//
// Thread-safe. First come, first served: while someone waits, nobody passes. A request larger than
// the whole limit is admitted when nothing else is in flight, so that it cannot wait for ever.
#ifndef HOTBED_SERVER_BYTE_BUDGET_H_
#define HOTBED_SERVER_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class ByteBudget {
 public:
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // The bytes asked for are reserved. Runs on the thread that released them, without locks held.
    virtual void Granted() = 0;
  };
  enum class Outcome { kReserved, kWaiting, kRefused };

  // At most `waiters_max` wait; beyond that Reserve refuses.
  ByteBudget(uint64_t bytes_max, size_t waiters_max)
      : bytes_max_(bytes_max), waiters_max_(waiters_max) {}

  // kWaiting: `waiter` is called once, later. One whose stream has gone meanwhile releases the
  // bytes again.
  Outcome Reserve(uint64_t bytes, Waiter* waiter);
  void Release(uint64_t bytes);

  uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  struct Waiting {
    Waiter* waiter;
    uint64_t bytes;
  };
  bool Fits(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t now = in_flight_.load(std::memory_order_relaxed);
    return now == 0 || now + bytes <= bytes_max_;
  }

  const uint64_t bytes_max_;
  const size_t waiters_max_;
  absl::Mutex mu_;
  std::atomic<uint64_t> in_flight_{0};  // written under mu_; read by metrics
  bool granting_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_BYTE_BUDGET_H_
