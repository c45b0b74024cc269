// Waits that end after a time, measured on the monotonic clock.
//
// Abseil's own (AwaitWithTimeout, WaitWithTimeout) sleep until a time of day: one that is under way
// when the clock is set back by an hour takes an hour longer. Everything of ours that waits for a
// time uses this instead, also in a trainer's process (tests/tidy/house_rules.py sees to it). For
// gRPC's own waits our programs have common/steady_waits.cc.
#ifndef HOTBED_COMMON_AWAIT_FOR_H_
#define HOTBED_COMMON_AWAIT_FOR_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace hotbed {

// As mu->AwaitWithTimeout: unlocks `mu`, waits until `condition` holds or `timeout` has passed,
// locks again, and says whether the condition holds. Costs about a microsecond beside the sleep.
// Thread-safe; the calling thread holds `mu` alone.
bool AwaitFor(absl::Mutex* mu, const absl::Condition& condition, absl::Duration timeout)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

}  // namespace hotbed

#endif  // HOTBED_COMMON_AWAIT_FOR_H_
