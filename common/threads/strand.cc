#include "common/threads/strand.h"

#include <limits>
#include <thread>
#include <utility>

namespace hotbed {
namespace {

constexpr int kDrainTasksMax = 64;
constexpr int64_t kDrainNsMax = 200'000;
constexpr int kTasksAClockRead = 8;

}  // namespace

Strand::Strand(ThreadPool* pool, const Clock* clock, const Options& options)
    : pool_(pool), clock_(clock), options_(options) {}

Strand::~Strand() {
  // The thread that ran the last task may still be leaving.
  while (state_.load(std::memory_order_acquire) != kIdle) std::this_thread::yield();
}

void Strand::Run(Task task) {
  if (TryEnter()) {
    SettleDeferred();
    task();
    Leave();
    return;
  }
  Enqueue(std::move(task), std::numeric_limits<size_t>::max());
}

bool Strand::Enqueue(Task task, size_t queue_max) {
  {
    absl::MutexLock lock(&mu_);
    if (depth_.load(std::memory_order_relaxed) >= queue_max) return false;
    queue_.push_back(std::move(task));
    depth_.fetch_add(1, std::memory_order_relaxed);
    if (state_.exchange(kRunningWithQueue, std::memory_order_acq_rel) != kIdle) return true;
  }
  Drain();
  return true;
}

// Entered in state kRunningWithQueue by the owner of the strand, or by the pool, which continues
// the rest of a batch. The strand may be destroyed as soon as it is idle, so no member is touched
// after that.
void Strand::Drain() {
  const Options options = options_;
  const int64_t end_ns = clock_->NowNs() + kDrainNsMax;
  for (int ran = 0;;) {
    if (batch_next_ == batch_.size() && !NextBatch()) break;
    if (ran >= kDrainTasksMax ||
        (ran % kTasksAClockRead == kTasksAClockRead - 1 && clock_->NowNs() >= end_ns)) {
      pool_->Submit([this] { Drain(); });
      break;
    }
    depth_.fetch_sub(1, std::memory_order_relaxed);
    SettleDeferred();
    batch_[batch_next_++]();
    ++ran;
  }
  if (options.after_drain != nullptr) options.after_drain(options.after_drain_context);
}

bool Strand::NextBatch() {
  batch_.clear();
  batch_next_ = 0;
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      batch_.swap(queue_);
      if (!batch_.empty()) return true;
      state_.store(kRunning, std::memory_order_relaxed);
    }
    uint32_t running = kRunning;
    if (state_.compare_exchange_strong(running, kIdle, std::memory_order_release,
                                       std::memory_order_relaxed)) {
      return false;
    }
  }
}

}  // namespace hotbed
