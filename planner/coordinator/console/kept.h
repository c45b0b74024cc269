// What takes long to make, kept for a while however many browsers ask for it: for `kept_ns`,
// and for ten times as long as making it took. Thread-safe; whoever asks while it is made waits.
#ifndef HOTBED_PLANNER_COORDINATOR_CONSOLE_KEPT_H_
#define HOTBED_PLANNER_COORDINATOR_CONSOLE_KEPT_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"

namespace hotbed {

template <typename Made>
class Kept {
 public:
  Kept(int64_t kept_ns, std::function<Made()> make) : kept_ns_(kept_ns), make_(std::move(make)) {}

  Made Get() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const Clock& clock = *Clock::Real();
    const int64_t now = clock.NowNs();
    if (!made_ || now >= until_ns_) {
      value_ = make_();
      made_ = true;
      const int64_t made = clock.NowNs();
      until_ns_ = made + std::max(kept_ns_, 10 * (made - now));
    }
    return value_;
  }

 private:
  const int64_t kept_ns_;
  const std::function<Made()> make_;
  absl::Mutex mu_;
  Made value_ ABSL_GUARDED_BY(mu_);
  bool made_ ABSL_GUARDED_BY(mu_) = false;
  int64_t until_ns_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CONSOLE_KEPT_H_
