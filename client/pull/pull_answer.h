// One server's answer to parts of a pull: reads its bulk fields segment after segment and writes
// the rows to the caller's buffers. Thread-compatible; different answers may be read concurrently.
#ifndef HOTBED_CLIENT_PULL_PULL_ANSWER_H_
#define HOTBED_CLIENT_PULL_PULL_ANSWER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client/net/transport.h"
#include "client/pull/pull_call.h"
#include "proto/wire.h"

namespace hotbed {

class PullAnswer {
 public:
  // `reply` outlives this.
  explicit PullAnswer(const ServerReply& reply);

  // Takes the next OK segment, which answers part `part`. The caller is inside the call's gate.
  // Internal names table and shard where the answer is not what the part needs.
  absl::Status TakeSegment(uint32_t part, PullCall* call);
  // Passes over an OK segment whose rows another answer has brought.
  void SkipSegment(uint32_t part, const PullCall& call);

 private:
  absl::Status TakeRows(const PlanPart& part, PullCall* call);
  absl::Status TakePooled(const PooledPart& part, PullCall* call);

  FragmentReader rows_;
  FragmentReader flags_;
  FragmentReader arg_max_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_ANSWER_H_
