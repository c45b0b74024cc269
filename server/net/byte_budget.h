// A bound on the bytes in flight, with a fair queue of those who wait for room (DECISIONS C3).
//
// Thread-safe. First come, first served: while someone waits, nobody passes. A request larger than
// the whole limit is admitted when nothing else is in flight, so that it cannot wait for ever.
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
  // A waiter hears exactly one of Granted and Expired, without locks held.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    // The bytes asked for are reserved. Runs on a thread that released some, or in GrantMore.
    virtual void Granted() = 0;
    // Its deadline passed, or it had Gone: nothing is reserved. Runs in Expire.
    virtual void Expired() = 0;
    // Nobody wants the room any more. Asked with locks held; true for ever once true.
    virtual bool Gone() const { return false; }
  };
  enum class Outcome { kReserved, kWaiting, kRefused };

  struct Wait {
    Waiter* waiter = nullptr;
    int64_t deadline_ns = 0;  // 0: none
    uint64_t held_bytes = 0;  // of memory that the waiter holds while it waits
  };

  // At most `waiters_max` wait, holding `waiting_bytes_max` bytes of memory together (the first may
  // hold more); beyond that Reserve refuses.
  ByteBudget(uint64_t bytes_max, size_t waiters_max,
             uint64_t waiting_bytes_max = std::numeric_limits<uint64_t>::max())
      : bytes_max_(bytes_max), waiters_max_(waiters_max), waiting_bytes_max_(waiting_bytes_max) {}

  // A call that releases bytes grants kGrantsMax waiters at most, since it runs their work. If more
  // could be granted it calls `hand_over`, which has some other thread call GrantMore() soon.
  // Before first use; without it one call grants all.
  void SetHandOver(std::function<void()> hand_over) { hand_over_ = std::move(hand_over); }
  static constexpr int kGrantsMax = 8;

  // kWaiting: the waiter hears later, perhaps before this returns. One whose stream has gone when
  // it is granted releases the bytes again.
  Outcome Reserve(uint64_t bytes, const Wait& wait);
  void Release(uint64_t bytes);
  void GrantMore();
  // Takes out those whose deadline is not after `now_ns` and those that have gone.
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
  std::atomic<uint64_t> waiting_bytes_{0};         // likewise
  bool handed_over_ ABSL_GUARDED_BY(mu_) = false;  // GrantMore has been asked for
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_BYTE_BUDGET_H_
