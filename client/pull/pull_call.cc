#include "client/pull/pull_call.h"

#include <utility>

#include "client/net/call_trace.h"
#include "common/check.h"

namespace hotbed {

bool PullCall::Enter() {
  // No thread enters a closed gate, so the count of a closed gate only falls.
  uint64_t seen = gate_.load(std::memory_order_relaxed);
  do {
    if ((seen & kClosed) != 0) return false;
  } while (!gate_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire));
  return true;
}

bool PullCall::Leave() {
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) != (kClosed | 1)) return false;
  HOTBED_CHECK(!resolved_.exchange(true)) << "a pull was resolved twice";
  return true;
}

void PullCall::Supersede() {
  if ((gate_.fetch_or(kClosed, std::memory_order_acq_rel) & kClosed) != 0) return;
  superseded_ = true;
}

void PullCall::Close(absl::Status status) {
  if ((gate_.fetch_or(kClosed, std::memory_order_acq_rel) & kClosed) != 0) return;
  result_ = InTrace(std::move(status), traceparent);
}

}  // namespace hotbed
