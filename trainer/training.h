// Parts that training loops share: threads that train while the caller reports, the calls of a
// batch in flight, and the count of its rows.
#ifndef HOTBED_TRAINER_TRAINING_H_
#define HOTBED_TRAINER_TRAINING_H_

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/threads/await_for.h"
#include "trainer/row_source.h"

namespace hotbed {

// Runs work(0) to work(count - 1), each on a thread of its own. Until all have ended, calls
// report() on this thread, once per `interval`.
template <typename Work, typename Report>
void RunTrainers(int count, absl::Duration interval, const Work& work, const Report& report) {
  absl::Mutex mu;
  int running = count;  // guarded by mu
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      work(t);
      absl::MutexLock lock(&mu);
      --running;
    });
  }
  const auto none_runs = [&] { return running == 0; };
  const auto ended = [&] {
    absl::MutexLock lock(&mu);
    return AwaitFor(&mu, absl::Condition(&none_runs), interval);
  };
  while (!ended()) report();
  for (std::thread& thread : threads) thread.join();
}

// The calls that use the buffers of a batch.
struct BatchCalls {
  Future<absl::Status> pull;
  Future<PushResult> push;

  // Each waits for its call, if there is one, and forgets it.
  absl::Status FinishPull() {
    absl::Status status = pull.valid() ? pull.Wait() : absl::OkStatus();
    pull = {};
    return status;
  }
  absl::Status FinishPush() {
    absl::Status status = push.valid() ? push.Wait().status : absl::OkStatus();
    push = {};
    return status;
  }
};

// The rows of a source that a run has counted.
struct CountedRows {
  uint64_t pulled = 0, pushed = 0;

  // Adds the rows since the last call to the totals.
  template <typename Progress>
  void AddTo(Progress* total, const RowSource& source) {
    const uint64_t pulled_now = source.rows_pulled(), pushed_now = source.rows_pushed();
    total->rows_pulled += pulled_now - std::exchange(pulled, pulled_now);
    total->rows_pushed += pushed_now - std::exchange(pushed, pushed_now);
  }
};

}  // namespace hotbed

#endif  // HOTBED_TRAINER_TRAINING_H_
