#include "server/net/byte_budget.h"

#include <utility>
#include <vector>

#include "common/check.h"

namespace hotbed {
namespace {

// The budget that this thread is granting from. A waiter that releases at once must not grant
// recursively, or the stack would grow with the queue.
thread_local const ByteBudget* granting = nullptr;

}  // namespace

ByteBudget::Outcome ByteBudget::Reserve(uint64_t bytes, const Wait& wait) {
  absl::MutexLock lock(&mu_);
  if (waiting_.empty() && Fits(bytes)) {
    in_flight_.fetch_add(bytes, std::memory_order_relaxed);
    return Outcome::kReserved;
  }
  const uint64_t held = waiting_bytes_.load(std::memory_order_relaxed) + wait.held_bytes;
  if (waiting_.size() >= waiters_max_ || (!waiting_.empty() && held > waiting_bytes_max_)) {
    return Outcome::kRefused;
  }
  waiting_.push_back({bytes, wait});
  waiting_bytes_.store(held, std::memory_order_relaxed);
  return Outcome::kWaiting;
}

void ByteBudget::Release(uint64_t bytes) {
  mu_.Lock();
  HOTBED_DCHECK(in_flight_.load() >= bytes) << "released more than was reserved";
  in_flight_.fetch_sub(bytes, std::memory_order_relaxed);
  Grant();
}

void ByteBudget::GrantMore() {
  mu_.Lock();
  handed_over_ = false;
  Grant();
}

void ByteBudget::Grant() {
  if (granting == this) {  // the loop below continues, further up this stack
    mu_.Unlock();
    return;
  }
  const ByteBudget* const outer = std::exchange(granting, this);
  for (int n = 0; CanGrant() && (n < kGrantsMax || !hand_over_); ++n) {
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    in_flight_.fetch_add(next.bytes, std::memory_order_relaxed);
    waiting_bytes_.fetch_sub(next.wait.held_bytes, std::memory_order_relaxed);
    mu_.Unlock();
    next.wait.waiter->Granted();
    mu_.Lock();
  }
  granting = outer;
  const bool hand_over = CanGrant() && !std::exchange(handed_over_, true);
  mu_.Unlock();
  if (hand_over) hand_over_();
}

void ByteBudget::Expire(int64_t now_ns) {
  std::vector<Waiter*> expired;
  mu_.Lock();
  std::deque<Waiting> kept;
  for (const Waiting& waiting : waiting_) {
    const Wait& wait = waiting.wait;
    if ((wait.deadline_ns != 0 && wait.deadline_ns <= now_ns) || wait.waiter->Gone()) {
      expired.push_back(wait.waiter);
      waiting_bytes_.fetch_sub(wait.held_bytes, std::memory_order_relaxed);
    } else if (!expired.empty()) {
      kept.push_back(waiting);
    }
  }
  if (!expired.empty()) {
    // Waiters before the first expired one keep their place.
    waiting_.resize(waiting_.size() - expired.size() - kept.size());
    waiting_.insert(waiting_.end(), kept.begin(), kept.end());
  }
  Grant();
  for (Waiter* waiter : expired) waiter->Expired();
}

}  // namespace hotbed
