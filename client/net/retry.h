// How the client treats a segment that was refused or lost. Functions are pure; RetryPolicy keeps a
// budget.
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
  kGap,        // push: continue from last_seq
  kOpenAgain,  // push: the shard does not know the session
};

Verdict VerdictOf(v1::Code code, bool push);

// True where the server refused because it has too much to do, so that resends must come slowly.
bool IsOverload(v1::Code code);

// True for the end of a stream or call by which a server refuses for good, before it takes anything
// from it: another cluster, another wire version, or a caller that may not.
bool IsNever(const absl::Status& transport);

// The answer to each segment of a message that was refused as a whole.
v1::SegmentReply RefusalOf(const v1::ReplyHeader& header);

// The status that the caller sees for a final code: `where` names table and shard.
absl::Status StatusOf(v1::Code code, absl::string_view where, absl::string_view detail);

// Delays before segments are sent again, all with a jitter of half. Thread-safe.
//
// For an overloaded server (DelayNs) they grow from 1 ms to 256 ms, or are those that the server
// named. Such retries are limited to a tenth of the requests plus a burst of a hundred. Beyond this
// budget the delay is eight times as long, at most kDelayNsMax: clients do not keep an overloaded
// server down, and find a restarted one soon.
//
// Failures that a fail-over or a move will end (a lost stream, a shard that is not active yet, a
// record that is not newer) are retried sooner (SoonNs) and without a budget: this load ends with
// its cause. Cuts, merges and moves stop a shard for some milliseconds, so the first of these
// retries lie close together: a push waits little longer than its shard was stopped.
class RetryPolicy {
 public:
  explicit RetryPolicy(uint64_t seed) : random_(seed) {}

  void CountRequest();
  // `attempt` counts from 1; `retry_after_ms` is the server's wish, 0 if it named none.
  int64_t DelayNs(int attempt, uint32_t retry_after_ms);
  // From 1 ms to kBriefNsMax for kBriefAttempts attempts (about 60 ms), to kSoonNsMax for
  // kSoonAttempts (about 3 s, twice the time of a fail-over), then up to 256 ms; never less than
  // the server's wish.
  int64_t SoonNs(int attempt, uint32_t retry_after_ms);
  int64_t ResendDelayNs(int attempt, uint32_t retry_after_ms, bool overload) {
    return overload ? DelayNs(attempt, retry_after_ms) : SoonNs(attempt, retry_after_ms);
  }
  static constexpr int64_t kBriefNsMax = 4'000'000;
  static constexpr int kBriefAttempts = 16;
  static constexpr int64_t kSoonNsMax = 16'000'000;
  static constexpr int kSoonAttempts = 200;

 private:
  int64_t Jittered(int64_t delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return delay / 2 + static_cast<int64_t>(random_.Uniform(static_cast<uint64_t>(delay)));
  }

  static constexpr int64_t kDelayNsMax = 512'000'000;
  static constexpr int64_t kTokensMax = 1000;  // in tenths of a retry: a burst of a hundred
  absl::Mutex mu_;
  Random random_ ABSL_GUARDED_BY(mu_);
  int64_t tokens_ ABSL_GUARDED_BY(mu_) = kTokensMax;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_RETRY_H_
