// What to do with a segment that was refused or lost, by its code. Pure, but for the budget.
#ifndef HOTBED_CLIENT_NET_RETRY_H_
#define HOTBED_CLIENT_NET_RETRY_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/random.h"
#include "proto/data.pb.h"

namespace hotbed {

enum class Verdict {
  kOk,
  kReroute,    // WRONG_EPOCH, UNKNOWN_SHARD: take the record, refresh the map, resend
  kLater,      // overload, shutting down, disk full: resend after a delay
  kFinal,      // no resend can help
  kGap,        // push: go on from last_seq
  kOpenAgain,  // push: the shard does not know the session
};

Verdict VerdictOf(v1::Code code, bool push);

// The status that the caller sees for a final code: `where` names table and shard.
absl::Status StatusOf(v1::Code code, absl::string_view where, absl::string_view detail);

// Delays between attempts: exponential from 1 ms to 256 ms for what may change at once (a lost
// stream, a moved shard), the server's own wish where it named one, both with jitter of half.
// Retries are at most a tenth of the requests plus a burst; beyond that the delay grows eightfold,
// to kDelayNsMax at most, so that an overloaded server is not kept down by its clients, and one
// that was restarted is found again soon. What a fail-over or a move will end (a lost stream, a
// shard that is not active yet, a record that is not newer) is asked for again sooner, and out of
// no budget: its load ends with its cause. Thread-safe.
class RetryPolicy {
 public:
  explicit RetryPolicy(uint64_t seed) : random_(seed) {}

  void CountRequest();
  // `attempt` counts from 1; `retry_after_ms` 0: the server named none.
  int64_t DelayNs(int attempt, uint32_t retry_after_ms);
  // Of the second kind: from 1 ms to kSoonNsMax for kSoonAttempts (about 3 s, twice what a
  // fail-over takes), then as DelayNs to 256 ms; at least the server's wish.
  int64_t SoonNs(int attempt, uint32_t retry_after_ms);
  static constexpr int64_t kSoonNsMax = 16'000'000;
  static constexpr int kSoonAttempts = 200;

 private:
  int64_t Jittered(int64_t delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return delay / 2 + static_cast<int64_t>(random_.Uniform(static_cast<uint64_t>(delay)));
  }

  static constexpr int64_t kDelayNsMax = 512'000'000;
  static constexpr int64_t kTokensMax = 1000;  // tenths of a retry: a burst of a hundred
  absl::Mutex mu_;
  Random random_ ABSL_GUARDED_BY(mu_);
  int64_t tokens_ ABSL_GUARDED_BY(mu_) = kTokensMax;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_RETRY_H_
