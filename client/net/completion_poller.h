// Decides which thread takes the events of the client's completion queue: a thread of our own, or a
// caller that waits for a Future.
//
// A caller that waits in a loop of calls had best read its own answers, because nothing is then
// handed from thread to thread. While such a caller polls, and for kRest after it has left, our
// thread rests. Our thread then takes the queue again. It does so at once when a caller goes to
// sleep over a Future, or when callers have recently stayed away for more than kAwayMax on average
// between their waits: a caller that waits seldom would find old answers. A caller that arrives
// while our thread polls sleeps, and can poll the next time.
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

// The tag of an event in the completion queue: Run is called once when the event occurs.
class CompletionEvent {
 public:
  virtual ~CompletionEvent() = default;
  virtual void Run(bool ok) = 0;
};

// Thread-safe. With more than one thread, callers never poll.
class CompletionPoller final : public WaitDriver {
 public:
  static constexpr absl::Duration kRest = absl::Milliseconds(1);

  // Longer than the preparation of a push of a thousand rows, so that a caller that pushes in a
  // loop reads its own answers.
  static constexpr absl::Duration kAwayMax = absl::Microseconds(400);

  explicit CompletionPoller(int threads, absl::Duration rest = kRest,
                            absl::Duration away_max = kAwayMax);
  grpc::CompletionQueue* queue() { return &queue_; }
  // To be called once, when no further event can occur, and not from an event. Joins the threads
  // and waits for polling callers to leave.
  void Shutdown();

  bool WorkUntil(absl::FunctionRef<bool()> done, int64_t deadline_ns) override;
  void Sleeps(bool begins) override;

 private:
  void Poll();
  // Blocks until our thread should take the next event.
  void Rest() ABSL_LOCKS_EXCLUDED(mu_);
  bool TakePlace() ABSL_LOCKS_EXCLUDED(mu_);
  void LeavePlace() ABSL_LOCKS_EXCLUDED(mu_);

  const bool callers_work_;
  const absl::Duration rest_;
  const int64_t away_ns_max_;
  grpc::CompletionQueue queue_;
  std::vector<std::thread> threads_;

  absl::Mutex mu_;
  bool thread_works_ ABSL_GUARDED_BY(mu_) = false;  // our only thread polls
  bool caller_works_ ABSL_GUARDED_BY(mu_) = false;  // a caller polls
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int sleepers_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t away_ns_ ABSL_GUARDED_BY(mu_) = 0;  // between callers' waits, moving average
  int64_t caller_last_ns_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::min() / 2;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_COMPLETION_POLLER_H_
