// One server's answer to parts of a pull: reads its bulk fields segment after segment and writes
// the rows to the caller's buffers. Thread-compatible; different answers may be read concurrently.
#ifndef HOTBED_CLIENT_PULL_PULL_ANSWER_H_
#define HOTBED_CLIENT_PULL_PULL_ANSWER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/net/transport.h"
#include "client/pull/pull_call.h"
#include "proto/wire.h"

namespace hotbed {

class PullAnswer {
 public:
  // `reply` outlives this.
  explicit PullAnswer(const ServerReply& reply);

  // Takes the next OK segments, which answer `parts`. The caller is inside the call's gate.
  // Internal names table and shard where the answer is not what a part needs.
  absl::Status TakeSegments(absl::Span<const uint32_t> parts, PullCall* call);
  // Passes over an OK segment whose rows another answer has brought.
  void SkipSegment(uint32_t part, const PullCall& call);

 private:
  // The rows of `parts`, which `run` joins.
  absl::Status TakeRows(const PlanPart& run, absl::Span<const uint32_t> parts, PullCall* call);
  // The error that the first of `parts` has that the answer has no bytes for.
  absl::Status TooShort(absl::Span<const uint32_t> parts, const PullCall& call) const;
  absl::Status TakePooled(const PooledPart& part, PullCall* call);

  FragmentReader rows_;
  FragmentReader flags_;
  FragmentReader arg_max_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_ANSWER_H_
