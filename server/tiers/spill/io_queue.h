// Runs the blocking work of the spill tier, reads of missing rows and write-back, off the threads
// that serve requests.
//
// Bounded by its users: a shard has one write in flight, and reads are bounded by the requests in
// flight. Thread-safe.
#ifndef HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
#define HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace hotbed {

class IoQueue {
 public:
  using Task = absl::AnyInvocable<void()>;
  virtual ~IoQueue() = default;
  virtual void Submit(Task task) = 0;
  virtual uint64_t depth() const = 0;  // tasks that wait
};

// First come, first served, on `threads` threads. The destructor runs all queued tasks.
class ThreadedIoQueue : public IoQueue {
 public:
  explicit ThreadedIoQueue(int threads);
  ~ThreadedIoQueue() override;
  void Submit(Task task) override;
  uint64_t depth() const override;

 private:
  void Work();
  bool Wakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return closed_ || !tasks_.empty(); }

  mutable absl::Mutex mu_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

// Runs tasks when a test says so, on the test's thread.
class ManualIoQueue : public IoQueue {
 public:
  void Submit(Task task) override { tasks_.push_back(std::move(task)); }
  uint64_t depth() const override { return tasks_.size(); }
  // Runs the task at `index` of those waiting; others keep their order.
  void RunAt(size_t index) {
    Task task = std::move(tasks_[index]);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
    task();
  }

 private:
  std::deque<Task> tasks_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
