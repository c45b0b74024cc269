// Runs the blocking work of the spill tier, reads of missing rows and write-back, off the threads
// that serve requests.
//
// Bounded by its users: a shard has one write in flight, and reads are bounded by the requests in
// flight. Thread-safe.
#ifndef HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
#define HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_

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
};

// First come, first served, on `threads` threads. The destructor runs all queued tasks.
class ThreadedIoQueue : public IoQueue {
 public:
  explicit ThreadedIoQueue(int threads);
  ~ThreadedIoQueue() override;
  void Submit(Task task) override;

 private:
  void Work();
  bool Wakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return closed_ || !tasks_.empty(); }

  absl::Mutex mu_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
