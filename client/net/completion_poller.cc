#include "client/net/completion_poller.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

// How often a polling caller checks its condition, which other threads may have fulfilled: a
// deadline may have ended the call.
constexpr int64_t kLookUpNs = 2'000'000;

}  // namespace

CompletionPoller::CompletionPoller(int threads, absl::Duration rest, absl::Duration away_max)
    : callers_work_(threads == 1), rest_(rest), away_ns_max_(absl::ToInt64Nanoseconds(away_max)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Poll(); });
}

void CompletionPoller::Shutdown() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  queue_.Shutdown();
  for (std::thread& thread : threads_) thread.join();
  // A caller may still run its last event, which uses the owner of the queue.
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](bool* works) { return !*works; }, &caller_works_));
}

void CompletionPoller::Poll() {
  void* tag = nullptr;
  bool ok = false;
  do {
    if (callers_work_) Rest();
    if (!queue_.Next(&tag, &ok)) return;
    static_cast<CompletionEvent*>(tag)->Run(ok);
  } while (true);
}

void CompletionPoller::Rest() {
  absl::MutexLock lock(&mu_);
  thread_works_ = false;
  const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || (!caller_works_ && (sleepers_ > 0 || away_ns_ > away_ns_max_));
  };
  while (!wakes()) {
    const int64_t since_ns = Clock::Real()->NowNs() - caller_last_ns_;
    if (!caller_works_ && since_ns >= absl::ToInt64Nanoseconds(rest_)) break;
    AwaitFor(&mu_, absl::Condition(&wakes), rest_);
  }
  thread_works_ = true;
}

bool CompletionPoller::TakePlace() {
  absl::MutexLock lock(&mu_);
  const int64_t now_ns = Clock::Real()->NowNs();
  const int64_t away_ns = std::min(now_ns - caller_last_ns_, absl::ToInt64Nanoseconds(rest_));
  away_ns_ += (away_ns - away_ns_) / 4;
  caller_last_ns_ = now_ns;
  if (thread_works_ || caller_works_ || closed_) return false;
  caller_works_ = true;
  return true;
}

void CompletionPoller::LeavePlace() {
  absl::MutexLock lock(&mu_);
  caller_works_ = false;
  caller_last_ns_ = Clock::Real()->NowNs();
}

bool CompletionPoller::WorkUntil(absl::FunctionRef<bool()> done, int64_t deadline_ns) {
  if (!callers_work_ || !TakePlace()) return false;
  bool open = true;
  while (!done()) {
    const int64_t left_ns = deadline_ns - Clock::Real()->NowNs();
    if (left_ns <= 0) break;
    void* tag = nullptr;
    bool ok = false;
    const auto status = queue_.AsyncNext(
        &tag, &ok, gpr_time_from_nanos(std::min(left_ns, kLookUpNs), GPR_TIMESPAN));
    if (status == grpc::CompletionQueue::GOT_EVENT) static_cast<CompletionEvent*>(tag)->Run(ok);
    open = status != grpc::CompletionQueue::SHUTDOWN;
    if (!open) break;
  }
  LeavePlace();
  return open;
}

void CompletionPoller::Sleeps(bool begins) {
  absl::MutexLock lock(&mu_);
  sleepers_ += begins ? 1 : -1;
  if (!begins) caller_last_ns_ = Clock::Real()->NowNs();
}

}  // namespace hotbed
