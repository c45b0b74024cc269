#include "client/pull/pulls_in_flight.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/pull/partial_pull.h"
#include "common/check.h"

namespace hotbed {

bool PullsInFlight::HasRoom(const PullCall& call) const {
  if (shut_down_ || calls_.empty()) return true;
  return calls_.size() < pulls_max_ && bytes_ + call.bytes <= bytes_max_;
}

absl::Status PullsInFlight::Admit(const CallPtr& call, bool waits) {
  {
    absl::MutexLock lock(&mu_);
    const auto room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return HasRoom(*call); };
    if (waits && !room() &&
        !transport_->AwaitAnswers(clock_, &mu_, absl::Condition(&room), call->deadline_ns)) {
      return absl::DeadlineExceededError(absl::StrCat(
          "a pull was not sent: ", calls_.size(), " pulls of ", bytes_,
          " bytes are still unanswered (limits: ", pulls_max_, " pulls, ", bytes_max_, " bytes)"));
    }
    if (shut_down_) return absl::CancelledError("the client is closing");
    bytes_ += call->bytes;
    calls_.insert(call);
  }
  timer_->AddWatcher();
  return absl::OkStatus();
}

absl::Status PullsInFlight::EndNotAdmitted(PullCall* call, absl::Status why) {
  call->Close(std::move(why));
  if (call->partial) *rows_missing_ += EndPartial(call);
  return call->result();
}

void PullsInFlight::Leave(const CallPtr& call) {
  if (!call->Leave()) return;
  if (call->partial && !call->superseded()) *rows_missing_ += EndPartial(call.get());
  scratches_.GiveBack(std::move(call->scratch));
  {
    absl::MutexLock lock(&mu_);
    HOTBED_DCHECK(bytes_ >= call->bytes);
    calls_.erase(call);
    bytes_ -= call->bytes;
  }
  timer_->RemoveWatcher();
  if (call->superseded()) return plan_again_(call.get());
  call->promise.Set(call->result());
}

absl::Status PullsInFlight::DeadlineError(const PullCall& call) {
  const absl::Status last = call.last_error();
  return absl::DeadlineExceededError(
      absl::StrCat(call.parts_left.load(), " of ", call.scratch->PartCount(),
                   " parts of a pull were not answered in time",
                   last.ok() ? "" : absl::StrCat("; last: ", last.message())));
}

void PullsInFlight::Expire() {
  const int64_t now = clock_->NowNs();
  std::vector<CallPtr> expired;
  {
    absl::MutexLock lock(&mu_);
    for (const CallPtr& call : calls_) {
      if (call->deadline_ns <= now) expired.push_back(call);
    }
  }
  for (const CallPtr& call : expired) {
    if (!call->Enter()) continue;
    call->Close(DeadlineError(*call));
    Leave(call);
  }
}

void PullsInFlight::Shutdown() {
  std::vector<CallPtr> open;
  {
    absl::MutexLock lock(&mu_);
    shut_down_ = true;
    open.assign(calls_.begin(), calls_.end());
  }
  for (const CallPtr& call : open) {
    if (!call->Enter()) continue;
    call->Close(absl::CancelledError("the client was closed while the pull ran"));
    Leave(call);
  }
}

}  // namespace hotbed
