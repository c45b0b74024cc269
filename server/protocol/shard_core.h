// One shard's state machine: epochs, sessions, LSNs, append, commit, apply (reliability page,
// section 3).
//
// Pure: no I/O, clock, threads or randomness. Events go in; what is to be done comes out of
// ready(), which the shell (server/shard/shard.cc, or the simulator) empties after every event.
// Thread-compatible; confined to the shard's strand.
//
//   event in                           what may come out
//   LearnRecord(record)                promise to make durable, step down, replies, sends
//   PromiseDurable(epoch)              activation to ask for, sends
//   LearnRecord(record, active)        committed entries to apply
//   Push(push)                         entry to append, or a reply
//   Commit(step)                       entry to append, or a reply
//   Appended(lsn) / AppendFailed(lsn)  committed entries to apply, sends / READ_ONLY, the tail cut
//   Applied(lsn)                       replies
//   OnAppend                           a tail to cut, entries to append and to apply, an answer
//   OnAppendReply                      committed entries to apply, sends, activation
//   Tick                               all that was asked for and not answered, again
//
// Rules that hold at every step (the simulator's mutants break them one by one):
// - A request is served on exact match of its epoch, by an active primary only.
// - A higher epoch is acted on only after the promise of it is durable; a lower one never again.
// - An entry is acknowledged only after every member of the acknowledging set holds it and it was
// applied here. The set: the members of the epoch, and the learners that were put in since.
// - Nothing is committed by an epoch that was not recorded active; a follower commits what its
// primary of the epoch that it promised says, as far as its log is known to agree.
// - A follower is sent only what its primary's own log holds: no (epoch, lsn) ever names two
// entries.
// - Append, commit, apply: each in LSN order.
// - Sessions are a function of the log: cut the tail, and they are as if it had never been.
// - Replies belong to (epoch, lsn): stepping down or cutting the tail fails them.
// - A staged push changes no row until the commit of its step, which applies those of the sessions
// that it names, once, and drops the rest; only a step above the last committed one is logged.
//
// Alone, the acknowledging set is this member, and no part of replication costs anything. The
// whole protocol, told to people: docs/protocol.md. The sources: shard_core.cc (pushes, append,
// commit, apply), shard_core_epochs.cc (recovery, epochs, activation), shard_core_followers.cc (the
// primary's view of its followers), shard_core_replica.cc (a follower), shard_core_steps.cc.
#ifndef HOTBED_SERVER_PROTOCOL_SHARD_CORE_H_
#define HOTBED_SERVER_PROTOCOL_SHARD_CORE_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "server/protocol/core_messages.h"
#include "server/protocol/session_table.h"
#include "server/shard_log/epoch_runs.h"

namespace hotbed {

class ShardCore {
 public:
  explicit ShardCore(const CoreOptions& options);
  ShardCore(const ShardCore&) = delete;
  ShardCore& operator=(const ShardCore&) = delete;

  // --- recovery, before anything else
  // `installed`: the meta came with a snapshot. What this process finds here may not have been
  // committed anywhere: it acknowledges and serves nothing until a primary's log was seen to agree
  // with it, or a record names this process its primary.
  void Recover(Epoch promised, ShardMeta meta, bool installed = false);
  // The next record found in the log that no later one replaced (shard_log/replaced_records.h).
  // True: its rows are to be applied; false: they are older than the meta, or here already.
  // DataLoss when an LSN is missing before it, or when it is of an earlier epoch than the one
  // before it.
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
  // This member's log holds everything up to lsn, of the hand-over `ticket`.
  void Appended(Lsn lsn, uint64_t ticket);
  // lsn and everything behind it is not in the log. `answer` is kReadOnly when it never will be,
  // kUnavailable when a restart may yet find it.
  void AppendFailed(Lsn lsn, uint64_t ticket, SegmentCode answer = SegmentCode::kReadOnly);
  void Applied(Lsn lsn);
  // --- replication. Nothing is taken from a member of another epoch than the promised one.
  void OnAppend(const Member& from, const CoreAppend& append);
  void OnAppendReply(const Member& from, const CoreAppendReply& reply);
  // What was sent to `peer` and not answered is lost: it is asked where it stands.
  void OnPeerLost(const Member& peer);
  // The snapshot that CoreSend::kSnapshot asked for holds everything up to `lsn`: entries above it
  // are kept for `to` from now on. Then it was installed there, or the copy is off.
  void SnapshotTaken(const Member& to, Lsn lsn);
  void SnapshotDone(const Member& to, Lsn lsn, bool installed);
  // Whether a snapshot of `lsn`, sent by the primary of `epoch`, may begin to replace what is here:
  // never what a member of that epoch, or a joiner, may be counted on to hold, and never by
  // something older, unless what is here contradicts that primary's log.
  bool MayInstall(Epoch epoch, Lsn lsn) const;
  // Nobody may be waited for without bound: the shell has no memory for entries that only the
  // follower lacks, and drops those up to `lsn`. Learners among them get a snapshot instead; those
  // of the acknowledging set lose nothing, `lsn` must be committed.
  void DropRetained(Lsn lsn);

  void Resume();  // the log takes appends again, and no completion of a failed one is outstanding
  void Tick();    // while it has followers, or waits for something: some ten times a second
  // What time it is for the events that follow, to the second or so: which sessions are idle is
  // decided by it, once, and logged. Without it none is. Monotonic.
  void SetNow(int64_t now_ns);
  // The rows cannot be used any more: steps down and answers whoever waits with `answer`.
  // What is in flight still commits.
  void Abandon(SegmentCode answer) { FailWaiters(answer); }

  CoreReady* ready() { return &ready_; }

  // --- state
  // kOk when requests of `epoch` are served now; else why not.
  SegmentCode CheckEpoch(Epoch epoch) const;
  const Member& self() const { return self_; }
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
  // Of an active primary: what earlier epochs may have acknowledged ends here.
  Lsn inherited_lsn() const { return inherited_; }
  // Of an entry that is in the log and not applied; for those who have no CoreEntry at hand.
  uint64_t TicketOf(Lsn lsn) const { return At(lsn).entry.ticket; }
  // Of the last commit in the log; 0: none.
  uint64_t committed_step() const { return committed_step_; }
  // The staged pushes of `step` by `sessions`, in the order of these and each one's own parts: what
  // a commit of the step is to sum. Before Applied (or Replay) of that commit, which drops them.
  std::vector<Lsn> StagedOf(uint64_t step, absl::Span<const SessionId> sessions) const;
  size_t staged_count() const { return staged_.size(); }
  size_t session_count() const { return sessions_.size(); }
  // Members, and learners in the acknowledging set, that have answered nothing for kSilentTicks,
  // though they were asked: of a primary, which can commit nothing without them. To be told to the
  // coordinator, who may hear of them.
  std::vector<Member> SilentMembers() const;
  static constexpr uint16_t kSilentTicks = 40;
  // Learners in the acknowledging set, to be told to the coordinator until its record has them.
  std::vector<Member> JoinReady() const;
  // Entries above this are kept for followers, with their payloads; last_lsn() when there are none.
  // A follower keeps those that it would need as a primary.
  Lsn retained_lsn() const;
  // Of those, the entries above this are needed now: a follower that is there lacks them, or may;
  // or they are not committed. The others are kept in case a copy comes back (keep_tail).
  Lsn needed_lsn() const;
  bool has_followers() const { return !followers_.empty(); }
  // Followers in the acknowledging set.
  size_t backup_count() const;
  // Of a member that is not the primary, and of a learner: its log has everything that its primary
  // had committed when it was last heard of (leader_commit), so reads may be answered from here: at
  // once, or after that is applied.
  bool serves_reads() const;
  Lsn leader_commit() const { return leader_commit_; }
  // What was found here at the start has not been seen to agree with a primary.
  bool unproven() const { return old_; }
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
  // Another copy, as its primary sees it in this epoch.
  struct Follower {
    enum class State : uint8_t {
      kProbe,     // asked where it stands; nothing else is sent until it answers
      kStream,    // entries are sent as they come
      kSnapshot,  // a copy of all rows is on its way
    };
    Member member;
    bool acknowledges = false;  // of the acknowledging set: a member, or a joiner
    bool answered = false;      // its log was seen to agree up to `match`
    bool waits = false;         // kProbe: was asked
    State state = State::kProbe;
    uint8_t quiet_ticks = 0;           // since it was heard of, or something was sent
    uint8_t join_ticks = 0;            // kStream, not acknowledging: so long
    uint16_t silent_ticks = 0;         // since it was heard of
    Lsn match = 0;                     // its log holds the same up to here
    Lsn applied = 0;                   // its rows do; as it said last
    Lsn sent = 0;                      // kProbe: asked about this one; kStream: sent up to here
    Lsn told = 0;                      // the commit that was sent last
    Lsn hold = 0;                      // of its last snapshot
    bool taken = false;                // kSnapshot: entries above `hold` are needed
    bool broken_off = false;           // that snapshot was not installed
    absl::InlinedVector<Lsn, 4> ways;  // the ends of the appends that are not answered
  };

  Slot& At(Lsn lsn) { return ring_[lsn & (ring_.size() - 1)]; }
  const Slot& At(Lsn lsn) const { return ring_[lsn & (ring_.size() - 1)]; }
  void Reply(PushToken token, SegmentCode code, Epoch epoch, Lsn lsn, uint64_t last_seq);
  void Refuse(const CorePush& push, SegmentCode code, uint64_t last_seq);
  void ReplyToDuplicate(const CorePush& push, uint64_t last_seq);
  // The session's last sequence at applied_lsn().
  uint64_t AppliedSeq(SessionId session) const;
  // `session`: as the entry leaves it; null where it leaves all alone.
  void AppendEntry(const CoreEntry& entry, PushToken waiter, SegmentCode answer,
                   const Session* session);
  void ReplyToRepeatedCommit(const CoreCommit& commit);
  // `lsn` is a commit of `step` and applied: no push staged before it is needed any more.
  void DropStaged(uint64_t step, Lsn lsn);
  void AdvanceCommit();
  void CommitUpTo(Lsn lsn);
  void CutTail(Lsn lsn, SegmentCode answer);
  Slot* NextSlot(const CoreEntry& entry, Epoch epoch);
  // What an entry does to sessions, steps and what is staged.
  void Fold(const CoreEntry& entry);

  // shard_core_epochs.cc
  bool promise_held() const;
  void AskPromise(Epoch epoch);
  void BecomePrimary();
  bool MembersHoldTail() const;
  void TryActivate();
  void Activate();
  void StepDown();
  void FailWaiters(SegmentCode answer);

  // shard_core_followers.cc
  Follower* FindFollower(const Member& member);
  void SetFollowers();
  Lsn KnownCommit() const;
  void Pump(Follower* follower);
  void PumpAll();
  void SendAppend(Follower* follower, Lsn last);
  void Probe(Follower* follower, Lsn at, Lsn entries_max);
  void BeginSnapshot(Follower* follower);
  void JoinIfCaughtUp(Follower* follower);
  void OnRefusal(Follower* follower, const CoreAppendReply& reply);
  void TickFollower(Follower* follower);
  void UpdateRetained();

  // shard_core_replica.cc
  bool MayFollow(const Member& from, Epoch epoch);
  void FollowLeader(const Member& leader, Epoch epoch);
  bool IsMember(Epoch epoch) const;  // of the record of that epoch
  bool ProveOld(const CoreAppend& append);
  bool Agrees(const CoreAppend& append);
  Lsn TakeEntries(const CoreAppend& append);
  void FollowCommit();
  void AnswerHeld(Lsn prev_lsn);
  void AnswerRefusal(Lsn prev_lsn, Lsn hint, bool needs_snapshot);
  void AskForMore();

  void ForgetIdleSessions();
  void Grow();
  static void UndoSession(const Slot& slot, SessionTable* sessions);

  const CoreOptions options_;
  Member self_;
  ShardRecord record_;
  Epoch promised_ = 0;       // durable
  Epoch promise_asked_ = 0;  // the highest that the shell was asked to make durable
  bool primary_ = false;     // of record_.epoch, until it is overtaken or abandoned
  bool active_ = false;
  bool leads_ = false;  // what is committed in record_.epoch is decided here
  bool read_only_ = false;
  bool old_ = true;  // unproven()

  // applied_ <= commit_ <= last_; slots of (applied_, last_] are live. commit_ <= held_ <= last_.
  Lsn applied_ = 0;
  Epoch applied_epoch_ = 0;
  Lsn commit_ = 0;
  Lsn held_ = 0;  // in this member's own log
  Lsn last_ = 0;
  Lsn inherited_ = 0;
  uint64_t ticket_ = 0;
  Lsn retained_ = 0;
  EpochRuns runs_;  // of all above the lowest of retained_, commit_
  std::vector<Slot> ring_;
  absl::InlinedVector<Follower, 2> followers_;  // of a primary
  Epoch followers_epoch_ = 0;                   // of followers_
  bool tail_not_kept_ = true;                   // what is logged now is needed by no other copy

  // As a follower.
  Member leader_;
  Epoch leader_epoch_ = 0;
  Lsn leader_commit_ = 0;
  Lsn verified_ = 0;           // in leader_epoch_: the log agrees with the primary's up to here
  Lsn answer_at_ = 0;          // not 0: answered when this is in the log
  bool contradicted_ = false;  // in leader_epoch_: only a snapshot helps
  bool doubted_ = false;   // not known to be a member of leader_epoch_: proves itself (ProveOld)
  bool heard_ = false;     // in leader_epoch_: its log agrees with what is here
  bool left_out_ = false;  // entries came that there was no room for
  Member asker_;           // whose append waited for the promise of asked_epoch_
  Epoch asked_epoch_ = 0;

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

#endif  // HOTBED_SERVER_PROTOCOL_SHARD_CORE_H_
