// The pulls of a client that wait for their answers: admits them within the limits, ends them at
// their deadlines, and provides the value of each Future once. Thread-safe.
#ifndef HOTBED_CLIENT_PULL_PULLS_IN_FLIGHT_H_
#define HOTBED_CLIENT_PULL_PULLS_IN_FLIGHT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/batch/free_list.h"
#include "client/net/timer.h"
#include "client/net/transport.h"
#include "client/pull/pull_call.h"
#include "common/clock.h"

namespace hotbed {

class PullsInFlight {
 public:
  using CallPtr = std::shared_ptr<PullCall>;

  // At most `pulls_max` calls of together `bytes_max` bytes (PullCall::bytes); a call that is
  // larger goes alone. `timer` ticks while calls are in flight. Rows that partial calls end without
  // are added to `rows_missing`. A call that was superseded is
  // given to `plan_again` instead of being resolved. All pointers outlive this.
  PullsInFlight(size_t pulls_max, uint64_t bytes_max, const Clock* clock, Transport* transport,
                Timer* timer, std::atomic<uint64_t>* rows_missing,
                std::function<void(PullCall*)> plan_again)
      : pulls_max_(pulls_max),
        bytes_max_(bytes_max),
        clock_(clock),
        transport_(transport),
        timer_(timer),
        rows_missing_(rows_missing),
        plan_again_(std::move(plan_again)) {}

  // Blocks until the limits admit the call. DeadlineExceeded at the call's deadline, Cancelled
  // after Shutdown: the call is then not in flight.
  // A call that takes the place of one that was in flight need not wait.
  absl::Status Admit(const CallPtr& call, bool waits = true);
  // The answer to a call that Admit refused: a partial one whose deadline has passed ends without
  // any row.
  absl::Status EndNotAdmitted(PullCall* call, absl::Status why);
  // Leaves the call's gate. The last to leave a closed call ends it here and keeps its promise.
  void Leave(const CallPtr& call);
  // Ends the calls whose deadline has passed.
  void Expire();
  // Ends every call, and each later one, with Cancelled.
  void Shutdown();
  // A scratch that an earlier call gave back, or a new one.
  std::unique_ptr<PullScratch> TakeScratch() { return scratches_.Take(); }

 private:
  static constexpr size_t kScratchesKept = 32;

  bool HasRoom(const PullCall& call) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static absl::Status DeadlineError(const PullCall& call);

  const size_t pulls_max_;
  const uint64_t bytes_max_;
  const Clock* const clock_;
  Transport* const transport_;
  Timer* const timer_;
  std::atomic<uint64_t>* const rows_missing_;
  const std::function<void(PullCall*)> plan_again_;

  FreeList<PullScratch> scratches_{kScratchesKept};
  absl::Mutex mu_;
  absl::flat_hash_set<CallPtr> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of calls_
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULLS_IN_FLIGHT_H_
