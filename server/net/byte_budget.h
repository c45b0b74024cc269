// A bound on the bytes in flight, with a fair queue of waiters.
//
// Thread-safe. First come, first served: no request passes a waiting one. A request larger than the
// whole limit is admitted when nothing else is in flight, so that it cannot wait for ever.
#ifndef HOTBED_SERVER_NET_BYTE_BUDGET_H_
#define HOTBED_SERVER_NET_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class ByteBudget {
 public:
  // Exactly one of Granted and Expired is called per wait, without locks held.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // The requested bytes are reserved. Runs in Release or GrantMore of any thread.
    virtual void Granted() = 0;
    // Nothing is reserved: the deadline passed, or the waiter had Gone. Runs in Expire.
    virtual void Expired() = 0;
    // Whether the bytes are no longer wanted. Called with locks held; once true, always true.
    virtual bool Gone() const { return false; }
  };
  enum class Outcome { kReserved, kWaiting, kRefused };

  struct Wait {
    Waiter* waiter = nullptr;
    int64_t deadline_ns = 0;  // 0: none
    uint64_t held_bytes = 0;  // memory that the waiter holds while it waits
  };

  // At most `waiters_max` waiters, which together hold `waiting_bytes_max` bytes of memory (the
  // first may hold more); beyond that Reserve refuses.
  ByteBudget(uint64_t bytes_max, size_t waiters_max,
             uint64_t waiting_bytes_max = std::numeric_limits<uint64_t>::max())
      : bytes_max_(bytes_max), waiters_max_(waiters_max), waiting_bytes_max_(waiting_bytes_max) {}

  // One call grants at most kGrantsMax waiters, since it runs their work. If more could be granted,
  // it calls `hand_over`, which makes another thread call GrantMore() soon. Set before first use;
  // without it one call grants all.
  void SetHandOver(std::function<void()> hand_over) { hand_over_ = std::move(hand_over); }
  static constexpr int kGrantsMax = 8;

  // kWaiting: the waiter is called later, perhaps before this returns. A waiter that no longer
  // wants the bytes when it is granted them has to release them.
  Outcome Reserve(uint64_t bytes, const Wait& wait);
  void Release(uint64_t bytes);
  void GrantMore();
  // Removes waiters whose deadline is not after `now_ns` and waiters that have Gone.
  void Expire(int64_t now_ns);

  uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  uint64_t waiting_bytes() const { return waiting_bytes_.load(std::memory_order_relaxed); }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  struct Waiting {
    uint64_t bytes;
    Wait wait;
  };
  bool Fits(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t now = in_flight_.load(std::memory_order_relaxed);
    return now == 0 || now + bytes <= bytes_max_;
  }
  bool CanGrant() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !waiting_.empty() && Fits(waiting_.front().bytes);
  }
  void Grant() ABSL_UNLOCK_FUNCTION(mu_);

  const uint64_t bytes_max_;
  const size_t waiters_max_;
  const uint64_t waiting_bytes_max_;
  std::function<void()> hand_over_;
  absl::Mutex mu_;
  std::atomic<uint64_t> in_flight_{0};             // written under mu_; read by metrics
  std::atomic<uint64_t> waiting_bytes_{0};         // the same
  bool handed_over_ ABSL_GUARDED_BY(mu_) = false;  // GrantMore was requested
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_BYTE_BUDGET_H_
