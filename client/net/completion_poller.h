// Who takes the events of the client's completion queue: threads of its own, or, where there is
// one, whoever waits for a Future just then.
//
// A caller that waits in a loop of calls is the best one to read its own answers: nothing is handed
// from thread to thread. While such a caller is there, and for kRest after it has left, our thread
// rests; it takes the queue again then, or at once when somebody goes to sleep over a Future, or
// when callers have lately stayed away for more than kAwayMax between their waits, in the mean (who
// waits seldom would find old answers). A caller that comes while our thread works sleeps, and
// finds the place free the next time.
#ifndef HOTBED_CLIENT_NET_COMPLETION_POLLER_H_
#define HOTBED_CLIENT_NET_COMPLETION_POLLER_H_

#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hotbed/wait_driver.h"

namespace hotbed {

// What a completion queue event leads to. The tag of an event is a CompletionEvent*.
class CompletionEvent {
 public:
  virtual ~CompletionEvent() = default;
  virtual void Run(bool ok) = 0;
};

// Thread-safe. With more than one thread, callers never take part.
class CompletionPoller final : public WaitDriver {
 public:
  static constexpr absl::Duration kRest = absl::Milliseconds(1);

  // Longer than it takes to make ready a push of a thousand rows: a caller that pushes in a loop is
  // one that reads its own answers.
  static constexpr absl::Duration kAwayMax = absl::Microseconds(400);

  explicit CompletionPoller(int threads, absl::Duration rest = kRest,
                            absl::Duration away_max = kAwayMax);
  grpc::CompletionQueue* queue() { return &queue_; }
  // When no further event can come: ends and joins the threads, and waits for callers at work to
  // leave. Once, and not from an event.
  void Shutdown();

  bool WorkUntil(absl::FunctionRef<bool()> done, int64_t deadline_ns) override;
  void Sleeps(bool begins) override;

 private:
  void Poll();
  // Waits until our thread should take the next event.
  void Rest() ABSL_LOCKS_EXCLUDED(mu_);
  bool TakePlace() ABSL_LOCKS_EXCLUDED(mu_);
  void LeavePlace() ABSL_LOCKS_EXCLUDED(mu_);

  const bool callers_work_;
  const absl::Duration rest_;
  const int64_t away_ns_max_;
  grpc::CompletionQueue queue_;
  std::vector<std::thread> threads_;

  absl::Mutex mu_;
  bool thread_works_ ABSL_GUARDED_BY(mu_) = false;  // ours, the only one
  bool caller_works_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int sleepers_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t away_ns_ ABSL_GUARDED_BY(mu_) = 0;  // from a caller's wait to the next, lately
  int64_t caller_last_ns_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::min() / 2;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_COMPLETION_POLLER_H_
