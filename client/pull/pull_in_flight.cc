// The pulls in flight: room for one more, deadlines, the end of each and of all.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/pull/pull_engine.h"

namespace hotbed {
namespace {

constexpr size_t kScratchKept = 32;

}  // namespace

bool PullEngine::WaitForRoom(const PullCall& call) {
  const auto room = [this, &call]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (shut_down_ || calls_.empty()) return true;  // a pull larger than the limit goes alone
    return calls_.size() < static_cast<size_t>(context_->options.pulls_in_flight_max) &&
           bytes_in_flight_ + call.bytes <= context_->options.pull_bytes_in_flight_max;
  };
  return room() || context_->Await(&mu_, absl::Condition(&room), call.deadline_ns);
}

absl::Status PullEngine::NoRoomError() const {
  return absl::DeadlineExceededError(
      absl::StrCat("a pull was not sent: ", calls_.size(), " pulls of ", bytes_in_flight_,
                   " bytes are still unanswered (limits: ", context_->options.pulls_in_flight_max,
                   " pulls, ", context_->options.pull_bytes_in_flight_max, " bytes)"));
}

void PullEngine::LeaveAndResolve(const CallPtr& call) {
  if (!call->Leave()) return;
  std::unique_ptr<PullScratch> scratch = std::move(call->scratch);
  {
    absl::MutexLock lock(&mu_);
    calls_.erase(call);
    bytes_in_flight_ -= call->bytes;
    if (free_.size() < kScratchKept) free_.push_back(std::move(scratch));
  }
  context_->timer->RemoveWatcher();
  call->promise.Set(call->result());
}

std::unique_ptr<PullScratch> PullEngine::TakeScratch() {
  absl::MutexLock lock(&mu_);
  if (free_.empty()) return std::make_unique<PullScratch>();
  std::unique_ptr<PullScratch> scratch = std::move(free_.back());
  free_.pop_back();
  return scratch;
}

absl::Status PullEngine::DeadlineError(const PullCall& call) const {
  const absl::Status last = call.last_error();
  return absl::DeadlineExceededError(
      absl::StrCat(call.parts_left.load(), " of ", call.scratch->PartCount(),
                   " parts of a pull were not answered in time",
                   last.ok() ? "" : absl::StrCat("; last: ", last.message())));
}

void PullEngine::Tick() {
  const int64_t now = context_->clock->NowNs();
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
    LeaveAndResolve(call);
  }
}

void PullEngine::Shutdown() {
  std::vector<CallPtr> open;
  {
    absl::MutexLock lock(&mu_);
    shut_down_ = true;
    open.assign(calls_.begin(), calls_.end());
  }
  for (const CallPtr& call : open) {
    if (!call->Enter()) continue;
    call->Close(absl::CancelledError("the client was closed while the pull ran"));
    LeaveAndResolve(call);
  }
}

}  // namespace hotbed
