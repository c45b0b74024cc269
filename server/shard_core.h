// One shard's state machine: epochs, sessions, LSNs, append, commit, apply (reliability page,
// section 3).
//
// Pure: no I/O, clock, threads or randomness. Events go in; what is to be done comes out of
// ready(), which the shell (server/shard.cc, or the simulator) empties after every event.
// Thread-compatible; confined to the shard's strand.
//
//   event in                           what may come out
//   LearnRecord(record)                promise to make durable, step down, replies
//   PromiseDurable(epoch)              activation to ask for
//   LearnRecord(record, active)        -
//   Push(push)                         entry to append, or a reply
//   Commit(step)                       entry to append, or a reply
//   Appended(lsn) / AppendFailed(lsn)  committed entries to apply / replies READ_ONLY, the tail cut
//   Applied(lsn)                       replies
//   Tick                               the activation asked for again
//
// Rules that hold at every step (the simulator's mutants break them one by one):
// - A request is served on exact match of its epoch, by an active primary only.
// - A higher epoch is acted on only after the promise of it is durable; a lower one never again.
// - An entry is acknowledged only after every member of the acknowledging set holds it and it was
// applied here.
// - Append, commit, apply: each in LSN order.
// - Sessions are a function of the log: cut the tail, and they are as if it had never been.
// - Replies belong to (epoch, lsn): stepping down or cutting the tail fails them.
// - A staged push changes no row until the commit of its step, which applies those of the sessions
// that it names, once, and drops the rest; only a step above the last committed one is logged.
//
// Alone, the acknowledging set is this member. Replication adds members' matches to it (Progress)
// and the Replicate and Snapshot messages to ready(); nothing else changes.
#ifndef HOTBED_SERVER_SHARD_CORE_H_
#define HOTBED_SERVER_SHARD_CORE_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "server/requests.h"
#include "server/session_table.h"
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
  absl::Span<const CoreEntry> entries;  // `payload` names the record's bytes at the receiving shell
};

// The answer: ok, and all up to `lsn` is held as the sender holds it; or go on from `lsn`; or what
// is here cannot be made what the sender has but by a snapshot.
struct CoreAppendReply {
  Epoch epoch = 0;
  bool ok = false;
  bool needs_snapshot = false;
  Lsn lsn = 0;
};

// A message to another copy.
struct CoreSend {
  enum class Kind { kAppend, kAppendReply, kSnapshot };
  Kind kind = Kind::kAppend;
  Member to;
  // kAppend: the entries (prev_lsn, last_lsn], as they were handed to the log; last_lsn ==
  // prev_lsn: none.
  Epoch epoch = 0;
  Epoch prev_epoch = 0;
  Lsn prev_lsn = 0;
  Lsn last_lsn = 0;
  Lsn commit = 0;
  CoreAppendReply reply;  // kAppendReply
  // kSnapshot: begin to send all rows, of an LSN of at least `last_lsn`; then SnapshotTaken.
};

// What the shell has to do, in the order of the members.
struct CoreReady {
  Epoch promise = 0;   // make durable, then PromiseDurable(promise); 0: nothing
  Epoch activate = 0;  // ask for the compare-and-set active=true of this epoch; 0: nothing
  bool stepped_down = false;
  // Not 0: what was handed over with this LSN and above is no part of the log any more (another
  // primary's entries follow in `appends`): its payloads go.
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
  uint32_t entries_max = 1u << 12;  // appended and not yet applied; beyond it RESOURCE_EXHAUSTED
};

class ShardCore {
 public:
  explicit ShardCore(const CoreOptions& options);
  ShardCore(const ShardCore&) = delete;
  ShardCore& operator=(const ShardCore&) = delete;

  // --- recovery, before anything else
  void Recover(Epoch promised, ShardMeta meta);
  // The next record found in the log. True: its rows are to be applied; false: they are older than
  // the meta. Alone, all that the log holds is committed. DataLoss when an LSN is missing before
  // it.
  absl::StatusOr<bool> Replay(const CoreEntry& entry);
  // Rows were found that carry LSNs up to `lsn`, beyond the end of the log: new entries go on above
  // it (DECISIONS L3).
  void SkipTo(Lsn lsn);

  // --- events
  void SetSelf(const Member& self) { self_ = self; }
  void LearnRecord(const ShardRecord& record);
  void PromiseDurable(Epoch epoch);
  void Push(const CorePush& push);
  // Answered OK when it is applied, also where it was before.
  void Commit(const CoreCommit& commit);
  void Forget(SessionId session);  // logged; ignored when not active
  void Appended(Lsn lsn);          // this member's log holds everything up to lsn
  // lsn and everything behind it is not in the log. `answer` is kReadOnly when it never will be,
  // kUnavailable when a restart may yet find it.
  void AppendFailed(Lsn lsn, SegmentCode answer = SegmentCode::kReadOnly);
  void Applied(Lsn lsn);
  // --- replication. From a member of another epoch nothing is taken; see docs/protocol.md.
  void OnAppend(const Member& from, const CoreAppend& append);
  void OnAppendReply(const Member& from, const CoreAppendReply& reply);
  // What was sent to `peer` and not answered is lost: it is asked where it stands.
  void OnPeerLost(const Member& peer);
  // The snapshot that CoreSend::kSnapshot asked for holds everything up to `lsn`: entries above it
  // are kept for `to` from now on. Then it was installed there, or the copy is off.
  void SnapshotTaken(const Member& to, Lsn lsn);
  void SnapshotDone(const Member& to, Lsn lsn, bool installed);
  // Whether a snapshot of `lsn`, sent by the primary of `epoch`, may replace what is here: never
  // what a member of that epoch, or a joiner, needs of us, and never by something older.
  bool MayInstall(Epoch epoch, Lsn lsn) const;
  // Nobody may be waited for without bound: the shell has no memory for entries that only the
  // follower lacks, and drops those up to `lsn`. Learners among them get a snapshot instead; those
  // of the acknowledging set lose nothing, `lsn` must be committed.
  void DropRetained(Lsn lsn);

  void Resume();  // the log takes appends again, and no completion of a failed one is outstanding
  void Tick();
  // What time it is for the events that follow, to the second or so: which sessions are idle is
  // decided by it, once, and logged. Without it none is. Monotonic.
  void SetNow(int64_t now_ns);
  // The rows cannot be used any more: steps down and answers whoever waits with `answer`.
  void Abandon(SegmentCode answer) { StepDown(answer); }

  CoreReady* ready() { return &ready_; }

  // --- state
  // kOk when requests of `epoch` are served now; else why not.
  SegmentCode CheckEpoch(Epoch epoch) const;
  bool primary() const { return primary_; }
  bool active() const { return active_; }
  bool wants_activation() const;
  bool read_only() const { return read_only_; }
  Epoch epoch() const { return record_.epoch; }
  Epoch promised() const { return promised_; }
  const ShardRecord& record() const { return record_; }
  Lsn applied_lsn() const { return applied_; }
  Lsn commit_lsn() const { return commit_; }
  Lsn last_lsn() const { return last_; }
  // Of the last commit in the log; 0: none.
  uint64_t committed_step() const { return committed_step_; }
  // The staged pushes of `step` by `sessions`, in the order of these and each one's own parts: what
  // a commit of the step is to sum. Before Applied (or Replay) of that commit, which drops them.
  std::vector<Lsn> StagedOf(uint64_t step, absl::Span<const SessionId> sessions) const;
  size_t staged_count() const { return staged_.size(); }
  size_t session_count() const { return sessions_.size(); }
  // Learners in the acknowledging set, to be told to the coordinator until its record has them.
  std::vector<Member> JoinReady() const;
  // Entries above this are kept for followers, with their payloads; last_lsn() when there are none.
  Lsn retained_lsn() const;
  bool has_followers() const;
  // Of a member that is not the primary, and of a learner: it has everything that its primary had
  // committed when it last heard of it, so reads may be answered from here.
  bool serves_reads() const;
  // The state at applied_lsn(): what a sweep stores.
  ShardMeta AppliedMeta() const;

 private:
  // An entry with what it takes to undo it and to answer it.
  struct Slot {
    CoreEntry entry;
    PushToken waiter = 0;
    SegmentCode answer = SegmentCode::kOk;
    bool session_existed = false;
    Session session_before;
    Incarnation forgotten_before = 0;
    uint64_t committed_before = 0;
  };
  // A duplicate that waits for the entry at `lsn`.
  struct DuplicateWaiter {
    Epoch epoch;  // of the request: the entry's own may be an earlier one
    Lsn lsn;
    PushToken token;
    SegmentCode answer;
    uint64_t last_seq;
  };
  // How far a member of the acknowledging set holds the log.
  struct Progress {
    Member member;
    Lsn match = 0;
  };

  Slot& At(Lsn lsn) { return ring_[lsn & (ring_.size() - 1)]; }
  const Slot& At(Lsn lsn) const { return ring_[lsn & (ring_.size() - 1)]; }
  void Reply(PushToken token, SegmentCode code, Epoch epoch, Lsn lsn, uint64_t last_seq);
  void Refuse(const CorePush& push, SegmentCode code, uint64_t last_seq);
  void ReplyToDuplicate(const CorePush& push, uint64_t last_seq);
  // The session's last sequence at applied_lsn().
  uint64_t AppliedSeq(SessionId session) const;
  // `session`: as the entry leaves it; null where it leaves all alone.
  void AppendEntry(CoreEntry entry, PushToken waiter, SegmentCode answer, const Session* session);
  void ReplyToRepeatedCommit(const CoreCommit& commit);
  // `lsn` is a commit of `step` and applied: no push staged before it is needed any more.
  void DropStaged(uint64_t step, Lsn lsn);
  void AdvanceCommit();
  void Activate();
  bool promise_held() const;
  void AfterPromise();
  void StepDown(SegmentCode answer);
  void ForgetIdleSessions();
  void Grow();
  static void UndoSession(const Slot& slot, SessionTable* sessions);

  const CoreOptions options_;
  Member self_;
  ShardRecord record_;
  Epoch promised_ = 0;  // durable
  bool primary_ = false;
  bool active_ = false;
  bool read_only_ = false;

  // applied_ <= commit_ <= last_; slots of (applied_, last_] are live.
  Lsn applied_ = 0;
  Epoch applied_epoch_ = 0;
  Lsn commit_ = 0;
  Lsn last_ = 0;
  std::vector<Slot> ring_;
  absl::InlinedVector<Progress, 4> ack_set_;  // [0] is this member
  std::vector<DuplicateWaiter> duplicates_;

  SessionTable sessions_;           // at last_
  Incarnation forgotten_ = 0;       // likewise: ShardMeta::forgotten
  std::vector<StagedPush> staged_;  // by lsn, at last_; without payloads
  uint64_t committed_step_ = 0;     // at last_
  int64_t now_ns_ = 0;
  int64_t first_now_ns_ = 0;       // recovered sessions count as heard of then
  int64_t idle_not_until_ns_ = 0;  // no session is idle for long enough before
  CoreReady ready_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_CORE_H_
