// Runs the blocking work of the spill tier, reads of missing rows and write-back, off the threads
// that serve requests.
//
// Bounded by its users: a shard has one write in flight, and reads are bounded by the requests in
// flight. Thread-safe.
#ifndef HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
#define HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_

#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "common/threads/thread_pool.h"

namespace hotbed {

class IoQueue {
 public:
  using Task = absl::AnyInvocable<void()>;
  virtual ~IoQueue() = default;
  virtual void Submit(Task task) = 0;  // a read
  virtual void SubmitWrite(Task task) { Submit(std::move(task)); }
};

class ThreadedIoQueue final : public IoQueue {
 public:
  ThreadedIoQueue(const std::string& name, int threads) : pool_(name, threads) {}
  void Submit(Task task) override { pool_.Submit(std::move(task)); }

 private:
  ThreadPool pool_;
};

// Writes have threads of their own: one takes tens of milliseconds, and a request waits for each
// read.
class SplitIoQueue final : public IoQueue {
 public:
  // `threads` for reads, and as many for writes.
  explicit SplitIoQueue(int threads) : reads_("io-read", threads), writes_("io-write", threads) {}
  void Submit(Task task) override { reads_.Submit(std::move(task)); }
  void SubmitWrite(Task task) override { writes_.Submit(std::move(task)); }

 private:
  ThreadPool reads_;
  ThreadPool writes_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_IO_QUEUE_H_
