#include "client/net/await_answers.h"

#include <algorithm>
#include <memory>

#include "absl/time/time.h"
#include "common/await_for.h"

namespace hotbed {

bool AwaitAnswers(Transport* transport, const Clock* clock, absl::Mutex* mu,
                  const absl::Condition& condition, int64_t deadline_ns) {
  const std::shared_ptr<WaitDriver> driver = transport->driver();
  const int64_t left_ns = std::max<int64_t>(deadline_ns - clock->NowNs(), 0);
  if (driver != nullptr) driver->Sleeps(true);
  const bool holds = AwaitFor(mu, condition, absl::Nanoseconds(left_ns));
  if (driver != nullptr) driver->Sleeps(false);
  return holds;
}

}  // namespace hotbed
