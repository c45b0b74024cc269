// The inputs and outputs of a shard's core (server/protocol/shard_core.h): plain values.
#ifndef HOTBED_SERVER_PROTOCOL_CORE_MESSAGES_H_
#define HOTBED_SERVER_PROTOCOL_CORE_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/protocol/segment_code.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

inline constexpr int kStepShift = 20;  // a sequence is step << 20 | part

// The shell's name for a request that waits for its reply; 0: nobody waits.
using PushToken = uint64_t;

// One entry of the log, without its rows: the shell keeps the rows under `payload`.
struct CoreEntry : EntryHead {
  PushToken payload = 0;  // 0: forget
  // In CoreReady::appends: names this hand-over to the log, which returns it in Appended or
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
  bool staged = false;   // of a synchronous table: only in the log until its step's commit
  bool deletes = false;  // its rows are deleted: the entry is a kDelete
  // There is no memory for the rows of a staged push: it gets RESOURCE_EXHAUSTED if it is new.
  bool no_room = false;
  // There is no memory for another session: one that is new here is refused as beyond sessions_max.
  bool no_session_room = false;
  // Not kOk: the shell refuses the content. Then noop(seq) is logged, so that the pushes behind
  // this one continue, and the push is answered with this code.
  SegmentCode refusal = SegmentCode::kOk;
  PushToken token = 0;
};

// The step of a synchronous table is over. The shell keeps whose pushes count (StagedOf).
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
  // OK: applied up to here. GAP: the sequence that the next push must name as its previous one.
  uint64_t last_seq = 0;
};

// Entries that follow (prev_epoch, prev_lsn), from a primary to a follower.
struct CoreAppend {
  Epoch epoch = 0;  // of the sender's record
  Epoch prev_epoch = 0;
  Lsn prev_lsn = 0;
  Lsn commit = 0;
  // From prev_lsn + 1 on without a hole. `payload` names the record's bytes at the receiving shell.
  // Entries that do not come out in CoreReady::appends were not taken.
  absl::Span<const CoreEntry> entries;
};

// The highest numbers that the coordinator has given out, as far as this server has heard. Until it
// has heard of any, all count as given out.
struct CoreGiven {
  static constexpr uint64_t kUnheard = ~uint64_t{0};
  uint64_t session = kUnheard;  // a session's number, and an incarnation of one
  uint64_t step = kUnheard;     // the last committed step of this table
};

// The answer. ok: the log agrees with the primary's up to `lsn`. Not ok: the primary is to continue
// from `lsn`, or, with needs_snapshot, only a snapshot can make this replica agree. `applied`
// decides when a learner joins; no acknowledgement depends on it.
struct CoreAppendReply {
  Epoch epoch = 0;
  bool ok = false;
  bool needs_snapshot = false;
  Lsn lsn = 0;
  Lsn prev_lsn = 0;  // of the append it answers; kUnasked: the follower speaks first
  Lsn applied = 0;   // ok: in its rows
  Lsn last = 0;      // ok: where the follower's log ends; 0: it takes nothing now
  static constexpr Lsn kUnasked = ~Lsn{0};
};

// A message to another replica.
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
  // kSnapshot: begin to send all rows, of an LSN of at least `last_lsn`; then call SnapshotTaken
  // and, in the end, SnapshotDone. One transfer at a time per `to`.
};

// Work for the shell, to be done in the order of the members.
struct CoreReady {
  Epoch promise = 0;  // make durable, then PromiseDurable(promise); 0: nothing
  bool stepped_down = false;
  // Not 0: entries handed over with this LSN and above are no part of the log any more (another
  // primary's entries follow in `appends`). Their payloads go once the log has completed them.
  // AppendFailed does not set it: its caller knows.
  Lsn cut_from = 0;
  std::vector<CoreEntry> appends;  // hand to the log, in this order
  std::vector<CoreSend> sends;
  std::vector<CoreEntry> applies;  // committed: apply in this order, Applied() after each
  std::vector<CoreReply> replies;

  void Clear();
};

struct ShardCoreOptions {
  // Beyond this number an opening push makes room by forgetting (a logged entry) the sessions that
  // have been silent longest, at least session_idle_ns_min; without any it gets RESOURCE_EXHAUSTED.
  // From then on an unknown session is FENCED unless its incarnation is above all forgotten ones:
  // its push may have been applied before. Incarnations grow over all sessions of a cluster, so a
  // client that opens again gets in.
  uint32_t sessions_max = 1u << 16;
  int64_t session_idle_ns_min = 3'600'000'000'000;
  // Entries appended and not yet applied. Beyond it pushes get RESOURCE_EXHAUSTED, and a follower
  // takes no more.
  uint32_t entries_max = 1u << 12;
  // Entries stay for followers until DropRetained, also while there are none: a replica that was
  // away for a short while continues from the log.
  bool keep_tail = false;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_CORE_MESSAGES_H_
