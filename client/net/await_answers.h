// Waits for conditions that answers fulfil. The sleeping thread tells the transport that it sleeps,
// so that another thread reads the answers.
#ifndef HOTBED_CLIENT_NET_AWAIT_ANSWERS_H_
#define HOTBED_CLIENT_NET_AWAIT_ANSWERS_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/net/transport.h"
#include "common/clock.h"

namespace hotbed {

// Sleeps until `condition`, which `mu` guards, holds. False if `deadline_ns` of `clock` passes
// first.
bool AwaitAnswers(Transport* transport, const Clock* clock, absl::Mutex* mu,
                  const absl::Condition& condition, int64_t deadline_ns)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_AWAIT_ANSWERS_H_
