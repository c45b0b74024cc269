// A bound on the bytes in flight, with a queue of waiters, shared fairly by connections and peers.
//
// A connection takes at most as much as it leaves free, and a peer with all of its connections at
// most three times as much, so that there is room for one more of each, however many there are.
// Where a peer has too much, its requests wait for each other and hold up nobody else's. First
// come, first served, except that a request does not hold up those behind it while its own
// connection has bytes in flight, or while it could not be served even if all others had ended: a
// connection whose client does not read its answers (Stalled) keeps its bytes and nobody's turn.
// Its requests wait until no other waits.
//
// Thread-safe. A request larger than the whole limit is admitted when nothing else is in flight, so
// that it cannot wait for ever. A connection's request counts as half of the limit at most: a large
// one, of which there is one at a time, leaves room for small ones.
#ifndef HOTBED_SERVER_NET_BYTE_BUDGET_H_
#define HOTBED_SERVER_NET_BYTE_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
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

  // The bytes that all connections from one address have in flight. Guarded by the budget.
  struct Peer {
    uint64_t in_flight = 0;
    uint64_t stalled_bytes = 0;  // of connections that are stalled
    uint64_t held_up_in = 0;     // the last scan of the queue in which a request held up the others
  };
  // The bytes that one connection has in flight; outlives its requests. Guarded by the budget.
  struct Account {
    Peer* of = nullptr;  // outlives it; null: of no peer
    uint64_t in_flight = 0;
    bool stalled = false;
    int64_t stalled_since_ns = 0;  // as ToShed() saw it first; 0: not yet
    std::string peer;              // as gRPC writes it
  };

  struct Wait {
    Waiter* waiter = nullptr;
    int64_t deadline_ns = 0;     // 0: none
    uint64_t held_bytes = 0;     // memory that the waiter holds while it waits
    Account* account = nullptr;  // null: of nobody in particular
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
  Outcome Reserve(uint64_t asked, const Wait& wait);
  void Release(uint64_t asked, Account* account = nullptr);
  // The client of this connection has not read an answer for a while; so until its next Release.
  void Stalled(Account* account);
  void GrantMore();
  // Removes waiters whose deadline is not after `now_ns` and waiters that have Gone. While stalled
  // connections hold half of the limit and others wait, a connection that has taken no answer for
  // kShedNs is named to `shed`: of several, the one that holds most.
  void Expire(int64_t now_ns);
  static constexpr int64_t kShedNs = 3'000'000'000;
  void SetShed(std::function<void(const std::string& peer)> shed) { shed_ = std::move(shed); }

  uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  uint64_t waiting_bytes() const { return waiting_bytes_.load(std::memory_order_relaxed); }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  struct Waiting {
    uint64_t bytes;
    Wait wait;
  };
  static constexpr size_t kNobody = ~size_t{0};

  // Whether the request fits beside `in_flight` bytes of all connections and `own` of its own.
  bool Fits(uint64_t bytes, const Account* account, uint64_t in_flight, uint64_t own) const {
    if (in_flight == 0) return true;
    if (in_flight + bytes > bytes_max_) return false;
    return account == nullptr || own + bytes <= bytes_max_ - in_flight - bytes;
  }
  // The same for its peer, which has `of_peer`.
  bool PeerFits(uint64_t bytes, const Account* account, uint64_t in_flight,
                uint64_t of_peer) const {
    if (in_flight == 0 || account == nullptr || account->of == nullptr) return true;
    return in_flight + bytes <= bytes_max_ &&
           of_peer + bytes <= 3 * (bytes_max_ - in_flight - bytes);
  }
  bool PeerFitsNow(uint64_t bytes, const Account* account) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return account == nullptr || account->of == nullptr ||
           PeerFits(bytes, account, in_flight_.load(std::memory_order_relaxed),
                    account->of->in_flight);
  }
  bool FitsNow(uint64_t bytes, const Account* account) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Fits(bytes, account, in_flight_.load(std::memory_order_relaxed),
                account == nullptr ? 0 : account->in_flight) &&
           PeerFitsNow(bytes, account);
  }
  enum class HoldsUp { kNobody, kItsPeer, kAll };
  // Who of those behind this one, which does not fit, wait for it.
  HoldsUp Holds(uint64_t bytes, const Account* account) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, noted.
  HoldsUp Hold(uint64_t bytes, const Account* account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsHeldUp(const Account* account) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return held_up_ ||
           (account != nullptr && account->of != nullptr && account->of->held_up_in == scan_);
  }
  uint64_t Counted(uint64_t bytes, const Account* account) const {
    return account == nullptr ? bytes : std::min(bytes, std::max<uint64_t>(1, bytes_max_ / 2));
  }
  static bool IsStalled(const Account* account) { return account != nullptr && account->stalled; }
  void Take(uint64_t bytes, Account* account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The place of the next waiter to be granted; kNobody: none can be. Sets `held_up_`.
  size_t Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Grant() ABSL_UNLOCK_FUNCTION(mu_);
  // The peer to shed now; empty: none.
  std::string ToShed(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t bytes_max_;
  const size_t waiters_max_;
  const uint64_t waiting_bytes_max_;
  std::function<void()> hand_over_;
  std::function<void(const std::string&)> shed_;
  absl::Mutex mu_;
  std::atomic<uint64_t> in_flight_{0};             // written under mu_; read by metrics
  std::atomic<uint64_t> waiting_bytes_{0};         // the same
  bool handed_over_ ABSL_GUARDED_BY(mu_) = false;  // GrantMore was requested
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  bool held_up_ ABSL_GUARDED_BY(mu_) = false;  // a waiter holds up those behind it
  uint64_t scan_ ABSL_GUARDED_BY(mu_) = 1;     // of the queue, by Next
  uint64_t stalled_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<Account*> stalled_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_BYTE_BUDGET_H_
