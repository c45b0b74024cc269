// Pulls and pushes as the gRPC streams pass them to the shard host: cut into segments, one per
// shard, free of gRPC and protobuf.
//
// Ownership: the stream allocates a PullWork or PushWork together with everything that its segments
// point to (slices of the message and of the answer), and keeps it alive until Done() is called.
// Done() is called exactly once, by the thread that finishes the last segment, perhaps before
// ShardHost::Pull/Push returns. Segments of one work may run on several threads concurrently; each
// thread writes only its segment's `result`, `rows` and `flags`.
#ifndef HOTBED_SERVER_SHARD_REQUEST_REQUESTS_H_
#define HOTBED_SERVER_SHARD_REQUEST_REQUESTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "common/ids.h"
#include "server/kernels/row_batches.h"
#include "server/protocol/segment_code.h"
#include "server/shard/request/request_stages.h"

namespace hotbed {

class PullLatency;
class Shard;

struct SegmentResult {
  SegmentCode code = SegmentCode::kOk;
  uint32_t retry_after_ms = 0;
  Epoch epoch = 0;  // with lsn: the state of the shard that answered
  Lsn lsn = 0;
  uint64_t last_seq = 0;  // push: the session's last sequence on this shard
  std::string detail;     // empty when ok; names the thing, the value and the limit
};

// Ids, bag lengths and weights are aligned. `type` and `answer` are the shard's to fill in, as the
// work has them. bag_check.h says which bags are refused.
struct PullSegment : RowReads {
  PullSegment() {}  // not defaulted, which would set all bytes to 0 first

  Shard* shard = nullptr;  // null: unknown; the host fills in the result
  ShardId shard_id;
  Epoch epoch = 0;
  Lsn lsn_min = 0;
  // Owned by the shard while the pull waits for an LSN.
  int64_t waits_until_ns = 0;
  int64_t since_ns = 0;           // of the stage that it is in, where it waits there
  bool waits_for_commit = false;  // lsn_min covers what a strict pull has to see
  SegmentResult result;
};

struct PullWork {
  virtual ~PullWork() = default;
  virtual void Done() = 0;

  RowType row_type = RowType::kFp32;
  AnswerMemory* answer = nullptr;  // the memory of all segments' rows; null: of any kind
  int64_t deadline_ns = 0;         // Clock::NowNs() scale; 0: none
  bool strict = false;             // only the primary answers, while its lease surely holds
  // A backup or learner answers only if it heard from its primary within this time; 0: always.
  uint32_t staleness_ms_max = 0;
  absl::InlinedVector<PullSegment, 8> segments;
  std::shared_ptr<const void> shards;  // keeps those of the segments alive
  RequestStages stages;
  // Owned by the host.
  std::atomic<int32_t> pending{0};
  PullLatency* latency = nullptr;  // null: the pull is not timed
  int64_t begun_ns = 0;
};

struct PushSegment {
  PushSegment() {}  // as PullSegment

  Shard* shard = nullptr;
  ShardId shard_id;
  Epoch epoch = 0;
  const uint64_t* ids = nullptr;  // aligned, unique within the segment
  uint32_t count = 0;
  const uint8_t* const* gradients = nullptr;  // one pointer per row, to dim unaligned elements
  uint64_t seq = 0;
  uint64_t prev_seq = 0;
  bool open = false;
  bool last_part = false;
  bool has_learning_rate = false;
  float learning_rate = 0.0f;
  bool assign = false;   // `gradients` are the rows' new weights
  bool deletes = false;  // the rows are deleted; there are no gradients
  bool shows = false;    // each gradient ends with f32 shows and f32 clicks (row_math/touches.h)
  // The rows of a vocabulary, as they follow from the shard's state at `decided_at`: refused with
  // kUnavailable if its log goes on behind that.
  bool vocabulary = false;
  Lsn decided_at = 0;
  // Not 0: the segment is the commit of this step of a synchronous table. `ids` are the sessions
  // whose staged pushes count, in trainer order (`count` may be 0); other fields are unused.
  uint64_t commit_step = 0;
  SegmentResult result;
};

struct PushWork {
  virtual ~PushWork() = default;
  virtual void Done() = 0;

  SessionId session = 0;
  Incarnation incarnation = 0;
  RowType gradient_type = RowType::kFp32;
  int64_t deadline_ns = 0;
  int64_t now_ns = 0;  // when it came, for the sessions; 0: as of the shards' last ticks
  absl::InlinedVector<PushSegment, 8> segments;
  std::shared_ptr<const void> shards;  // keeps those of the segments alive
  RequestStages stages;
  std::atomic<int32_t> pending{0};  // owned by the host
};

// The segment was in `stage` since `since_ns`. Returns the time.
template <typename Work, typename Segment>
int64_t NoteStage(RequestStages::Stage stage, Work* work, const Segment* segment,
                  int64_t since_ns) {
  if (!work->stages.noted()) return 0;
  return work->stages.Note(stage, since_ns, static_cast<size_t>(segment - work->segments.data()));
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_REQUESTS_H_
