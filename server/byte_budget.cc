#include "server/byte_budget.h"

#include "common/check.h"

namespace hotbed {

ByteBudget::Outcome ByteBudget::Reserve(uint64_t bytes, Waiter* waiter) {
  absl::MutexLock lock(&mu_);
  if (waiting_.empty() && Fits(bytes)) {
    in_flight_.fetch_add(bytes, std::memory_order_relaxed);
    return Outcome::kReserved;
  }
  if (waiting_.size() >= waiters_max_) return Outcome::kRefused;
  waiting_.push_back({waiter, bytes});
  return Outcome::kWaiting;
}

void ByteBudget::Release(uint64_t bytes) {
  mu_.Lock();
  HOTBED_DCHECK(in_flight_.load() >= bytes) << "released more than was reserved";
  in_flight_.fetch_sub(bytes, std::memory_order_relaxed);
  // A granted waiter may release at once; the outer loop then goes on, so the stack stays flat.
  if (granting_) {
    mu_.Unlock();
    return;
  }
  granting_ = true;
  while (!waiting_.empty() && Fits(waiting_.front().bytes)) {
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    in_flight_.fetch_add(next.bytes, std::memory_order_relaxed);
    mu_.Unlock();
    next.waiter->Granted();
    mu_.Lock();
  }
  granting_ = false;
  mu_.Unlock();
}

}  // namespace hotbed
