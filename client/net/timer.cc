#include "client/net/timer.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/threads/await_for.h"

namespace hotbed {

Timer::Timer(const Clock* clock, std::function<void()> tick)
    : clock_(clock), tick_(std::move(tick)), thread_([this] { Loop(); }) {}

void Timer::RunAfter(int64_t delay_ns, absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mu_);
  if (stopped_) return;
  tasks_.emplace(clock_->NowNs() + delay_ns, std::move(task));
  changed_ = true;
}

void Timer::AddWatcher() {
  absl::MutexLock lock(&mu_);
  ++watchers_;
  if (waiting_idle_) changed_ = true;
}

void Timer::RemoveWatcher() {
  absl::MutexLock lock(&mu_);
  --watchers_;
}

void Timer::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    changed_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Timer::Loop() {
  int64_t tick_at = clock_->NowNs() + kTickNs;
  mu_.Lock();
  while (!stopped_) {
    const int64_t now = clock_->NowNs();
    if (!tasks_.empty() && tasks_.begin()->first <= now) {
      auto node = tasks_.extract(tasks_.begin());
      mu_.Unlock();
      node.mapped()();
      mu_.Lock();
      continue;
    }
    if (watchers_ > 0 && tick_at <= now) {
      tick_at = now + kTickNs;
      mu_.Unlock();
      tick_();
      mu_.Lock();
      continue;
    }
    const bool idle = watchers_ <= 0;  // negative: a watcher was removed before it was added
    if (idle && tasks_.empty()) {
      waiting_idle_ = true;
      mu_.Await(absl::Condition(&changed_));
      waiting_idle_ = changed_ = false;
      continue;
    }
    int64_t until = idle ? tasks_.begin()->first : tick_at;
    if (!tasks_.empty()) until = std::min(until, tasks_.begin()->first);
    waiting_idle_ = idle;
    AwaitFor(&mu_, absl::Condition(&changed_), absl::Nanoseconds(until - now));
    waiting_idle_ = changed_ = false;
  }
  mu_.Unlock();
}

}  // namespace hotbed
