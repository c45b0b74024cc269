// Why a shard refuses a pull, a push or a commit: everything that is checked before the state
// machine or the rows see the request, and the words for refusals of the state machine itself.
//
// Free functions without effects on the shard. Those that look at its state say so and run on its
// strand; the others run on any thread.
#ifndef HOTBED_SERVER_SHARD_REQUEST_CHECKS_H_
#define HOTBED_SERVER_SHARD_REQUEST_CHECKS_H_

#include <cstdint>
#include <string>

#include "common/ids.h"
#include "server/shard/push_state.h"
#include "server/shard/request/requests.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/shard_context.h"

namespace hotbed {

// How far the rows of a backup or learner can be trusted.
struct ReplicaReads {
  Lsn rows_ahead_of_log_lsn = 0;  // LogReplay
  int64_t primary_heard_ns = 0;   // ReplicaExchange
};

// On the strand.
Refusal CheckPull(const ShardContext& shard, const PullWork& work, const PullSegment& segment,
                  const ReplicaReads& reads);

// Other replicas could have acknowledged a push without this server, for its lease has run out: a
// strict pull must not be answered. On the strand.
bool LacksLease(const ShardContext& shard);

// Fills in the rows that a push (or the sessions that a commit) brings, and state->refusal where
// they cannot be taken. Looks at nothing that changes. A refused push becomes noop(seq) in the log;
// a refused commit is not logged.
void PrepareRows(const ShardContext& shard, PushState* state);

// Why a push or a commit is refused before the core sees it. `tail_full`: RecordTail::full. On the
// strand.
Refusal CheckPush(const ShardContext& shard, const PushState& state, bool tail_full);

// The tag of the lane of a push's rows. They must be of one lane, unless one lies outside of the
// shard. On the strand.
Refusal FindLane(const ShardContext& shard, const PushSegment& segment, uint32_t* tag);

// Says in words why the core refused a push with `code`. On the strand.
std::string ExplainRefusal(const ShardContext& shard, SegmentCode code, const PushWork& work,
                           const PushSegment& segment, uint64_t last_seq);
// Likewise of a pull.
std::string ExplainRefusal(const ShardContext& shard, SegmentCode code, const PullSegment& segment);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_CHECKS_H_
