// Waits that end after a time, measured on the monotonic clock.
//
// Abseil's AwaitWithTimeout and WaitWithTimeout sleep until a time of day, so a wait that is in
// progress when the clock is set back by an hour takes an hour longer. All our timed waits use
// AwaitFor instead, also in a trainer's process; tests/tidy/house_rules.py checks this. For the
// waits inside gRPC, our programs link common/threads/steady_waits.cc.
#ifndef HOTBED_COMMON_THREADS_AWAIT_FOR_H_
#define HOTBED_COMMON_THREADS_AWAIT_FOR_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace hotbed {

// Like mu->AwaitWithTimeout: unlocks `mu`, waits until `condition` holds or `timeout` has passed,
// locks `mu` again, and returns whether the condition holds. Costs about a microsecond in addition
// to the sleep. Thread-safe; the calling thread holds `mu` exclusively.
bool AwaitFor(absl::Mutex* mu, const absl::Condition& condition, absl::Duration timeout)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

}  // namespace hotbed

#endif  // HOTBED_COMMON_THREADS_AWAIT_FOR_H_
