// Runs the blocking work of the spill tier, reads of missing rows and write-back, off the threads
// that serve requests.
//
// Bounded by its users: a shard has one write in flight, and reads are bounded by the requests in
// flight. Thread-safe.
#ifndef HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
#define HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_

#include <utility>

#include "absl/functional/any_invocable.h"
#include "common/threads/thread_pool.h"

namespace hotbed {

class IoQueue {
 public:
  using Task = absl::AnyInvocable<void()>;
  virtual ~IoQueue() = default;
  virtual void Submit(Task task) = 0;
};

class ThreadedIoQueue : public IoQueue {
 public:
  explicit ThreadedIoQueue(int threads) : pool_("io", threads) {}
  void Submit(Task task) override { pool_.Submit(std::move(task)); }

 private:
  ThreadPool pool_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
