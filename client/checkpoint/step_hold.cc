#include "client/checkpoint/step_hold.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

// If whoever saves dies, the trainers go on after that.
constexpr uint32_t kHoldMs = 10'000;

}  // namespace

bool StepHold::Patient() const {
  return clock_.NowNs() - came_nearer_ns_ < absl::ToInt64Nanoseconds(patience_);
}

absl::StatusOr<bool> StepHold::Hold() {
  if (came_nearer_ns_ == 0) came_nearer_ns_ = clock_.NowNs();
  request_.set_hold_ms(kHoldMs);
  const absl::StatusOr<v1::HoldStepReply> reply = cluster_.HoldStep(request_);
  if (!reply.ok()) return Lost(reply.status());
  request_.set_renews(true);
  request_.set_group(reply->group());
  request_.set_step(reply->step());
  if (!reply->reached() && !reached_) return NotYet(*reply);
  if (!reached_) came_nearer_ns_ = clock_.NowNs();
  reached_ = true;
  waits_for_.clear();
  return true;
}

absl::StatusOr<bool> StepHold::Lost(const absl::Status& why) {
  if (absl::IsNotFound(why) && request_.renews()) {
    if (reached_) {
      return absl::AbortedError(
          absl::StrCat("the hold of the trainers ended before the rows were taken (", why.message(),
                       "); save again"));
    }
    request_.set_renews(false);  // another one will do
    return false;
  }
  const bool away = absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why);
  if (away && Patient()) return reached_;
  return why;
}

absl::StatusOr<bool> StepHold::NotYet(const v1::HoldStepReply& now) {
  waits_for_ = absl::StrCat("step ", now.step(), " of group ", now.group(), "; ", now.slowest(),
                            " has ended step ", now.ended_min());
  if (now.ended_min() > ended_min_) {
    ended_min_ = now.ended_min();
    came_nearer_ns_ = clock_.NowNs();
  }
  if (Patient()) return false;
  return absl::DeadlineExceededError(absl::StrCat(
      "no trainer came nearer within ", absl::FormatDuration(patience_), " to ", waits_for_));
}

absl::Status StepHold::End() {
  if (ended_ || !request_.renews()) return absl::OkStatus();
  request_.set_hold_ms(0);
  const absl::Status status = cluster_.HoldStep(request_).status();
  const bool away = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (away) return status;
  ended_ = true;
  return status.ok() ? status : Lost(status).status();
}

}  // namespace hotbed
