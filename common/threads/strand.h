// Runs tasks one at a time, in order, without a thread of its own. A thread that finds the strand
// idle runs its task itself; otherwise it queues the task for the thread inside. So the state of a
// shard needs no lock, and a request on an idle shard does not change threads.
//
// A thread that drains the queue stops after 64 tasks or 200 microseconds and leaves the rest to
// the pool, so that one busy shard does not hold a stream's thread. Entering and leaving an idle
// strand costs two uncontended atomic operations and no allocation. A task that is run on its own
// strand is queued: the strand is never entered twice.
//
// Thread-safe. A strand outlives its tasks; tasks may not destroy it.
#ifndef HOTBED_COMMON_THREADS_STRAND_H_
#define HOTBED_COMMON_THREADS_STRAND_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/threads/executor.h"
#include "common/threads/thread_pool.h"

namespace hotbed {

class Strand final : public Executor {
 public:
  using Task = absl::AnyInvocable<void()>;

  struct Options {
    size_t queue_max = 4096;  // for TryRun; Run is bounded by its callers, which run completions
    // Called outside of the strand by a thread that has run queued tasks. Finishes work that the
    // tasks began for a whole batch, such as a group commit. May be null.
    void (*after_drain)(void* context) = nullptr;
    void* after_drain_context = nullptr;
  };

  Strand(ThreadPool* pool, const Clock* clock, const Options& options);
  ~Strand() override;

  // Runs `task` before returning when the strand is idle, else queues it. True: it ran here.
  void Run(Task task) override;

  // Calls `run()` before returning when the strand is idle; otherwise queues the result of
  // `make_task()` unless the queue is full. The first case never allocates.
  enum class Outcome { kRan, kQueued, kFull };
  template <typename RunNow, typename MakeTask>
  Outcome TryRun(RunNow&& run, MakeTask&& make_task) {
    if (TryEnter()) {
      SettleDeferred();
      run();
      Leave();
      return Outcome::kRan;
    }
    return Enqueue(make_task(), options_.queue_max) ? Outcome::kQueued : Outcome::kFull;
  }

  // Calls `run()` before returning if the strand is idle; else returns false.
  template <typename RunNow>
  bool RunIfIdle(RunNow&& run) {
    if (!TryEnter()) return false;
    run();
    Leave();
    return true;
  }

  // Work that a task has put off, so that the strand was left before it was done. It is settled
  // before the next task of Run, TryRun or the queue, so that only RunIfIdle ever meets it. The
  // object stays the caller's. Confined to the strand.
  class Deferred {
   public:
    virtual void Settle() = 0;

   protected:
    ~Deferred() = default;
  };
  void Defer(Deferred* deferred) { deferred_ = deferred; }
  Deferred* deferred() const { return deferred_; }  // null: nothing is put off
  // It is done, or has become a task's concern.
  void EndDeferred() { deferred_ = nullptr; }
  void SettleDeferred() {
    if (deferred_ != nullptr) std::exchange(deferred_, nullptr)->Settle();
  }

  size_t queue_depth() const { return depth_.load(std::memory_order_relaxed); }

 private:
  enum State : uint32_t { kIdle, kRunning, kRunningWithQueue };

  bool TryEnter() {
    uint32_t idle = kIdle;
    return state_.compare_exchange_strong(idle, kRunning, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void Leave() {
    uint32_t running = kRunning;
    if (!state_.compare_exchange_strong(running, kIdle, std::memory_order_release,
                                        std::memory_order_relaxed)) {
      Drain();
    }
  }
  // False: the queue is full. Enters and drains if the strand became idle meanwhile.
  bool Enqueue(Task task, size_t queue_max);
  void Drain();
  // False: the queue was empty, and the strand is idle (and perhaps gone).
  bool NextBatch();

  // First, beside other hot state of the owner.
  std::atomic<uint32_t> state_{kIdle};
  Deferred* deferred_ = nullptr;
  ThreadPool* const pool_;
  const Clock* const clock_;
  const Options options_;
  std::atomic<size_t> depth_{0};
  absl::Mutex mu_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mu_);
  // The batch that the thread inside is running, and the index of its next task.
  std::vector<Task> batch_;
  size_t batch_next_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_THREADS_STRAND_H_
