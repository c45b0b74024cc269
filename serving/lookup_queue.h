// Lookups that wait for a processor. A few run at a time; the bytes of those that wait are bounded,
// and one that would wait for more than half of the time that its caller has is refused at once. So
// an overload costs the refusal of what is too much, and the others are answered in time.
//
// Those of inference run before those of batch scoring, which get what is left. Quick ones of
// inference run at once on the thread that they came on: to refuse or pass them on costs as much.
// Thread-safe.
#ifndef HOTBED_SERVING_LOOKUP_QUEUE_H_
#define HOTBED_SERVING_LOOKUP_QUEUE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <thread>  // NOLINT(build/c++11)
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"

namespace hotbed {

class LookupQueue {
 public:
  struct Wanted {
    uint64_t bytes = 0;   // of the request and its answer: the measure of its work
    bool batch = false;   // else: inference
    bool quick = false;   // takes less time than the waking of another thread
    int64_t left_ns = 0;  // until its caller waits no more
  };
  using Task = absl::AnyInvocable<void()>;

  // `clock` outlives it.
  LookupQueue(int threads, uint64_t waiting_bytes_max, const Clock* clock);
  // Runs what waits, and ends the threads.
  ~LookupQueue();
  LookupQueue(const LookupQueue&) = delete;
  LookupQueue& operator=(const LookupQueue&) = delete;

  // Runs `task` on this thread if it is quick or few run, or later on another one.
  // ResourceExhausted: it does not, and may be asked for again after `*retry_ns`. A task alone
  // always waits.
  absl::Status Run(const Wanted& wanted, Task task, int64_t* retry_ns) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t waiting_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    uint64_t bytes = 0;
    Task task;
  };
  enum Line { kInference, kBatch, kLines };

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  bool AnyWaits() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return !lines_[kInference].empty() || !lines_[kBatch].empty();
  }
  // Runs one task, which is counted as running, and notes how fast.
  void RunOne(uint64_t bytes, Task* task) ABSL_LOCKS_EXCLUDED(mu_);
  // How long a task of the line would wait now.
  int64_t WaitNs(Line line) const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const int threads_max_;
  const uint64_t waiting_bytes_max_;
  const Clock& clock_;
  mutable absl::Mutex mu_;
  std::array<std::deque<Waiting>, kLines> lines_ ABSL_GUARDED_BY(mu_);
  std::array<uint64_t, kLines> waiting_ ABSL_GUARDED_BY(mu_) = {};  // bytes of each line
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  double ns_per_byte_ ABSL_GUARDED_BY(mu_) = 0;  // of late
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_LOOKUP_QUEUE_H_
