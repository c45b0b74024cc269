#include "client/push/push_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/threads/await_for.h"

namespace hotbed {

absl::StatusOr<SessionIdentity> PushSession::Open(int64_t deadline_ns) {
  // One caller at a time asks, without the mutex. The others wait, each until its own deadline, and
  // one of them asks again where the time of the first was too short.
  const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return identity_.session != 0 || !opening_;
  };
  {
    absl::MutexLock lock(&mu_);
    if (identity_.session != 0) return identity_;
    const int64_t left_ns = std::max<int64_t>(deadline_ns - clock_->NowNs(), 0);
    if (!AwaitFor(&mu_, absl::Condition(&free), absl::Nanoseconds(left_ns))) {
      return absl::DeadlineExceededError(absl::StrCat(
          "session ", name_, " is not open yet; is the coordinator up? Nothing was sent"));
    }
    if (identity_.session != 0) return identity_;
    opening_ = true;
  }
  const int64_t left_ns = std::max<int64_t>(deadline_ns - clock_->NowNs(), 1'000'000);
  const absl::StatusOr<SessionIdentity> opened =
      control_->OpenSession(name_, absl::Nanoseconds(left_ns));
  if (opened.ok()) transport_->SetSession(opened->session, opened->incarnation);
  absl::MutexLock lock(&mu_);
  opening_ = false;
  if (opened.ok()) identity_ = *opened;
  return opened;
}

}  // namespace hotbed
