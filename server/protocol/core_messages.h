// What goes into a shard's core and what comes out of it (server/protocol/shard_core.h): plain values.
#ifndef HOTBED_SERVER_PROTOCOL_CORE_MESSAGES_H_
#define HOTBED_SERVER_PROTOCOL_CORE_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "server/protocol/segment_code.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

inline constexpr int kStepShift = 20;  // DECISIONS S1: seq = step << 20 | part

// The shell's name for a push that waits for its reply; 0: nobody waits.
using PushToken = uint64_t;

// One entry of the log, without its rows: those stay with the shell, under `payload`.
struct CoreEntry {
  RecordKind kind = RecordKind::kPush;
  bool open = false;
  bool staged = false;  // a push: kept for its step's commit
  Epoch epoch = 0;
  Lsn lsn = 0;
  SessionId session = 0;  // 0: a commit's
  Incarnation incarnation = 0;
  uint64_t seq = 0;  // a commit's: that of part 0 of its step
  uint64_t prev_seq = 0;
  PushToken payload = 0;  // 0: forget
  // Of CoreReady::appends: names this hand-over to the log, which brings it back in Appended or
  // AppendFailed. The same (epoch, lsn) may be handed over again after it was cut.
  uint64_t ticket = 0;
};

struct CorePush {
  Epoch epoch = 0;
  SessionId session = 0;
  Incarnation incarnation = 0;
  uint64_t seq = 0;
  uint64_t prev_seq = 0;
  bool open = false;
  bool staged = false;  // of a synchronous table: in the log, and no more, until its step's commit
  // There is no memory for what a staged push brings: it gets RESOURCE_EXHAUSTED if it is new.
  bool no_room = false;
  // What the shell found wrong with the content: then noop(seq) is logged, so that the pipeline
  // behind goes on, and the push is answered with this code (DECISIONS S3).
  SegmentCode refusal = SegmentCode::kOk;
  PushToken token = 0;
};

// The step of a synchronous table is over. Whose pushes count stays with the shell (StagedOf).
struct CoreCommit {
  Epoch epoch = 0;
  uint64_t step = 0;
  PushToken token = 0;
};

struct CoreReply {
  PushToken token = 0;
  SegmentCode code = SegmentCode::kOk;
  Epoch epoch = 0;
  Lsn lsn = 0;  // OK: of the entry; else the last applied
  uint64_t last_seq =
      0;  // OK: applied up to here; GAP: what the next push must name as its previous one
};

// Replicate of the reliability page, section 3.3: entries that follow (prev_epoch, prev_lsn).
struct CoreAppend {
  Epoch epoch = 0;  // of the sender's record
  Epoch prev_epoch = 0;
  Lsn prev_lsn = 0;
  Lsn commit = 0;
  // From prev_lsn + 1 on without a hole. `payload` names the record's bytes at the receiving shell;
  // those that do not come out in CoreReady::appends were not taken.
  absl::Span<const CoreEntry> entries;
};

// The answer: ok, and all up to `lsn` is held as the sender holds it; or go on from `lsn`; or what
// is here cannot be made what the sender has but by a snapshot. `applied` decides when a learner
// joins, and nothing that is acknowledged.
struct CoreAppendReply {
  Epoch epoch = 0;
  bool ok = false;
  bool needs_snapshot = false;
  Lsn lsn = 0;
  Lsn prev_lsn = 0;  // of the append that it answers; kUnasked: the follower speaks first
  Lsn applied = 0;   // ok: in its rows
  static constexpr Lsn kUnasked = ~Lsn{0};
};

// A message to another copy.
struct CoreSend {
  enum class Kind { kAppend, kAppendReply, kSnapshot };
  Kind kind = Kind::kAppend;
  Member to;
  // kAppend: the entries (prev_lsn, last_lsn], as they were handed to the log; last_lsn ==
  // prev_lsn: none. All are in this member's own log. The shell may cut it into several messages,
  // each with the epoch and LSN of the entry before it.
  Epoch epoch = 0;
  Epoch prev_epoch = 0;
  Lsn prev_lsn = 0;
  Lsn last_lsn = 0;
  Lsn commit = 0;
  CoreAppendReply reply;  // kAppendReply
  // kSnapshot: begin to send all rows, of an LSN of at least `last_lsn`; then SnapshotTaken and, in
  // the end, SnapshotDone. One at a time for each `to`.
};

// What the shell has to do, in the order of the members.
struct CoreReady {
  Epoch promise = 0;  // make durable, then PromiseDurable(promise); 0: nothing
  bool stepped_down = false;
  // Not 0: what was handed over with this LSN and above is no part of the log any more (another
  // primary's entries follow in `appends`): its payloads go, once the log has completed them. Not
  // set by AppendFailed, whose caller knows.
  Lsn cut_from = 0;
  std::vector<CoreEntry> appends;  // hand to the log, in this order
  std::vector<CoreSend> sends;
  std::vector<CoreEntry> applies;  // committed: apply in this order, Applied() after each
  std::vector<CoreReply> replies;

  void Clear();
};

struct CoreOptions {
  // Beyond it an opening push makes room by forgetting (a logged entry) sessions that have been
  // silent longest, none below session_idle_ns_min; where there is none it gets RESOURCE_EXHAUSTED.
  // From then on an unknown session is FENCED unless its incarnation is above all those forgotten:
  // its push may be one that was applied before. Incarnations grow over all sessions of a cluster,
  // so whoever opens anew gets in.
  uint32_t sessions_max = 1u << 16;
  int64_t session_idle_ns_min = 3'600'000'000'000;
  // Appended and not yet applied; beyond it pushes get RESOURCE_EXHAUSTED, and a follower takes no
  // more.
  uint32_t entries_max = 1u << 12;
  // Entries stay for followers until DropRetained, also where there are none now: a copy that was
  // away for a short while goes on from the log.
  bool keep_tail = false;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_CORE_MESSAGES_H_
