#include "server/net/byte_budget.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"

namespace hotbed {
namespace {

// The budget that this thread is granting from. A waiter that releases at once must not grant
// recursively, or the stack would grow with the queue.
thread_local const ByteBudget* granting = nullptr;

}  // namespace

void ByteBudget::Take(uint64_t bytes, Account* account) {
  in_flight_.fetch_add(bytes, std::memory_order_relaxed);
  if (account == nullptr) return;
  account->in_flight += bytes;
  if (account->stalled) stalled_bytes_ += bytes;
  if (account->of == nullptr) return;
  account->of->in_flight += bytes;
  if (account->stalled) account->of->stalled_bytes += bytes;
}

ByteBudget::HoldsUp ByteBudget::Holds(uint64_t bytes, const Account* account) const {
  if (account == nullptr) return HoldsUp::kAll;
  if (account->in_flight != 0 || !Fits(bytes, account, stalled_bytes_, 0)) return HoldsUp::kNobody;
  if (PeerFitsNow(bytes, account)) return HoldsUp::kAll;
  if (!PeerFits(bytes, account, stalled_bytes_, account->of->stalled_bytes)) {
    return HoldsUp::kNobody;
  }
  // Where its peer has nothing more that will end by itself, it waits for the others.
  return account->of->in_flight == account->of->stalled_bytes ? HoldsUp::kAll : HoldsUp::kItsPeer;
}

ByteBudget::HoldsUp ByteBudget::Hold(uint64_t bytes, const Account* account) {
  const HoldsUp holds = Holds(bytes, account);
  if (holds == HoldsUp::kAll) held_up_ = true;
  if (holds == HoldsUp::kItsPeer) account->of->held_up_in = scan_;
  return holds;
}

ByteBudget::Outcome ByteBudget::Reserve(uint64_t asked, const Wait& wait) {
  const uint64_t bytes = Counted(asked, wait.account);
  absl::MutexLock lock(&mu_);
  const bool first = waiting_.empty() || (!IsHeldUp(wait.account) && !IsStalled(wait.account));
  if (first && FitsNow(bytes, wait.account)) {
    Take(bytes, wait.account);
    return Outcome::kReserved;
  }
  const uint64_t held = waiting_bytes_.load(std::memory_order_relaxed) + wait.held_bytes;
  if (waiting_.size() >= waiters_max_ || (!waiting_.empty() && held > waiting_bytes_max_)) {
    return Outcome::kRefused;
  }
  waiting_.push_back({bytes, wait});
  if (!IsStalled(wait.account) && !IsHeldUp(wait.account)) Hold(bytes, wait.account);
  waiting_bytes_.store(held, std::memory_order_relaxed);
  return Outcome::kWaiting;
}

void ByteBudget::Release(uint64_t asked, Account* account) {
  const uint64_t bytes = Counted(asked, account);
  mu_.Lock();
  HOTBED_DCHECK(in_flight_.load() >= bytes) << "released more than was reserved";
  in_flight_.fetch_sub(bytes, std::memory_order_relaxed);
  if (account != nullptr) {
    if (account->stalled) {
      account->stalled = false;
      account->stalled_since_ns = 0;
      stalled_bytes_ -= account->in_flight;
      if (account->of != nullptr) account->of->stalled_bytes -= account->in_flight;
      stalled_.erase(account);
    }
    account->in_flight -= bytes;
    if (account->of != nullptr) account->of->in_flight -= bytes;
  }
  Grant();
}

void ByteBudget::Stalled(Account* account) {
  mu_.Lock();
  if (!account->stalled && account->in_flight > 0) {
    account->stalled = true;
    stalled_bytes_ += account->in_flight;
    if (account->of != nullptr) account->of->stalled_bytes += account->in_flight;
    stalled_.insert(account);
  }
  Grant();
}

size_t ByteBudget::Next() {
  held_up_ = false;
  ++scan_;
  size_t stalled = kNobody;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Waiting& waiting = waiting_[i];
    const Account* const account = waiting.wait.account;
    if (IsStalled(account)) {
      if (stalled == kNobody) stalled = i;
      continue;
    }
    if (IsHeldUp(account)) continue;
    if (FitsNow(waiting.bytes, account)) return i;
    if (Hold(waiting.bytes, account) == HoldsUp::kAll) return kNobody;
  }
  if (stalled == kNobody) return kNobody;
  return FitsNow(waiting_[stalled].bytes, waiting_[stalled].wait.account) ? stalled : kNobody;
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
  size_t place = Next();
  for (int n = 0; place != kNobody && (n < kGrantsMax || !hand_over_); ++n) {
    const Waiting next = waiting_[place];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(place));
    Take(next.bytes, next.wait.account);
    waiting_bytes_.fetch_sub(next.wait.held_bytes, std::memory_order_relaxed);
    mu_.Unlock();
    next.wait.waiter->Granted();
    mu_.Lock();
    place = Next();
  }
  granting = outer;
  const bool hand_over = place != kNobody && !std::exchange(handed_over_, true);
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
  const std::string to_shed = ToShed(now_ns);
  Grant();
  for (Waiter* waiter : expired) waiter->Expired();
  if (!to_shed.empty() && shed_) shed_(to_shed);
}

std::string ByteBudget::ToShed(int64_t now_ns) {
  if (waiting_.empty() || stalled_bytes_ < bytes_max_ / 2) return "";
  Account* most = nullptr;
  for (Account* account : stalled_) {
    if (account->stalled_since_ns == 0) account->stalled_since_ns = now_ns;
    if (now_ns - account->stalled_since_ns < kShedNs) continue;
    if (most == nullptr || account->in_flight > most->in_flight) most = account;
  }
  if (most == nullptr) return "";
  most->stalled_since_ns = now_ns;  // it gets as long again to end
  return most->peer;
}

}  // namespace hotbed
