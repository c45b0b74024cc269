#include "client/queue_driver.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "common/check.h"

namespace hotbed {
namespace {

// A caller looks up this often for what other threads may have done: a deadline that passed.
constexpr absl::Duration kLookUp = absl::Milliseconds(2);

}  // namespace

QueueDriver::QueueDriver(int threads, absl::Duration rest)
    : callers_work_(threads == 1), rest_(rest) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Poll(); });
}

void QueueDriver::Shutdown() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    wake_.Signal();
  }
  queue_.Shutdown();
  for (std::thread& thread : threads_) thread.join();
  // A caller may still be inside its last event, with the owner of the queue in its hands.
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](bool* works) { return !*works; }, &caller_works_));
}

void QueueDriver::Poll() {
  void* tag = nullptr;
  bool ok = false;
  do {
    if (callers_work_) Rest();
    if (!queue_.Next(&tag, &ok)) return;
    static_cast<CompletionEvent*>(tag)->Run(ok);
  } while (true);
}

void QueueDriver::Rest() {
  absl::MutexLock lock(&mu_);
  thread_works_ = false;
  while (!closed_) {
    const absl::Duration since = absl::Now() - caller_last_;
    if (!caller_works_ && (sleepers_ > 0 || since >= rest_ || since < absl::ZeroDuration())) break;
    wake_.WaitWithTimeout(&mu_, rest_);
  }
  thread_works_ = true;
}

bool QueueDriver::TakePlace() {
  absl::MutexLock lock(&mu_);
  caller_last_ = absl::Now();
  if (thread_works_ || caller_works_ || closed_) return false;
  caller_works_ = true;
  return true;
}

void QueueDriver::LeavePlace() {
  absl::MutexLock lock(&mu_);
  caller_works_ = false;
  caller_last_ = absl::Now();
  if (sleepers_ > 0) wake_.Signal();
}

bool QueueDriver::WorkUntil(absl::FunctionRef<bool()> done, absl::Time deadline) {
  if (!callers_work_ || !TakePlace()) return false;
  bool open = true;
  while (!done()) {
    const absl::Time now = absl::Now();
    if (now >= deadline) break;
    void* tag = nullptr;
    bool ok = false;
    const auto status =
        queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(std::min(deadline, now + kLookUp)));
    if (status == grpc::CompletionQueue::GOT_EVENT) static_cast<CompletionEvent*>(tag)->Run(ok);
    open = status != grpc::CompletionQueue::SHUTDOWN;
    if (!open) break;
  }
  LeavePlace();
  return open;
}

void QueueDriver::Sleeps(bool begins) {
  absl::MutexLock lock(&mu_);
  sleepers_ += begins ? 1 : -1;
  if (begins && !caller_works_) wake_.Signal();
}

}  // namespace hotbed
