// One shard's state machine: epochs, sessions, LSNs, append, commit, apply, replication.
//
// Pure: no I/O, clock, threads or randomness. Events go in; the resulting work comes out of
// ready(), which the shell (server/shard, or the simulator) empties after every event.
// Thread-compatible; confined to the shard's strand.
//
//   event in                           what may come out
//   LearnRecord(record)                promise to make durable, step down, replies, sends
//   PromiseDurable(epoch)              sends; wants_activation() may turn true
//   LearnRecord(record, active)        committed entries to apply
//   Push(push)                         entry to append, or a reply
//   Commit(step)                       entry to append, or a reply
//   Appended(lsn) / AppendFailed(lsn)  committed entries to apply, sends / READ_ONLY, the tail cut
//   Applied(lsn)                       replies
//   OnAppend                           a tail to cut, entries to append and to apply, an answer
//   OnAppendReply                      committed entries to apply, sends; wants_activation()
//   Tick                               every request that was not answered, again
//
// Rules that hold at every step (BrokenInvariant checks those that one state can show, and the
// simulator's mutants break all of them one by one):
// - A request is served on exact match of its epoch, by an active primary only.
// - A higher epoch is acted on only after the promise of it is durable; a lower one never again.
// - An entry is acknowledged only after every member of the acknowledging set holds it and it was
//   applied here. The set: the members of the epoch, and the learners that have joined since.
// - Nothing is committed by an epoch that was not recorded active. A follower commits what the
//   primary of its promised epoch tells it to, as far as its log is known to agree.
// - A follower is sent only what its primary's own log holds: no (epoch, lsn) ever names two
//   entries.
// - Append, commit, apply: each in LSN order.
// - No session, incarnation, step or epoch above those that the coordinator has given out is taken,
//   and a request that names one leaves no trace.
// - Sessions are a function of the log: cut the tail, and they are as if it had never been.
// - Replies belong to (epoch, lsn): stepping down or cutting the tail fails them.
// - A staged push changes no row until the commit of its step. The commit applies the pushes of the
//   sessions that it names, once, and drops the others; only a step above the last committed one
//   is logged.
//
// While the acknowledging set is this member alone, no part of replication costs anything. The
// whole protocol in prose: docs/protocol.md. The parts: LogTail (the positions, undo), SessionState
// (what the log adds up to), Follower (another replica as its primary sees it). The sources:
// shard_core.cc, and shard_core_replica.cc with the part of a follower.
#ifndef HOTBED_SERVER_PROTOCOL_SHARD_CORE_H_
#define HOTBED_SERVER_PROTOCOL_SHARD_CORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/check.h"
#include "common/fetch_lines.h"
#include "common/ids.h"
#include "common/shared_value.h"
#include "common/tables/session_of_lane.h"
#include "common/tables/shard_record.h"
#include "server/protocol/core_messages.h"
#include "server/protocol/core_mutant.h"
#include "server/protocol/follower.h"
#include "server/protocol/log_tail.h"
#include "server/protocol/session_table.h"

namespace hotbed {

class ShardCore {
 public:
  explicit ShardCore(const ShardCoreOptions& options);
  ShardCore(const ShardCore&) = delete;
  ShardCore& operator=(const ShardCore&) = delete;

  // --- recovery, before anything else
  // `installed`: the meta came with a snapshot transfer. The state that this process finds here may
  // not have been committed anywhere: it acknowledges and serves nothing until a primary's log was
  // seen to agree with it, or a record names this process its primary.
  void Recover(Epoch promised, ShardMeta meta, bool installed = false);
  // The next record found in the log that no later one replaced (ShardLog::Replay).
  // True: its rows are to be applied; false: they are older than the meta, or here already.
  // DataLoss when an LSN is missing before it, or when it is of an earlier epoch than the one
  // before it.
  absl::StatusOr<bool> Replay(const CoreEntry& entry);
  // Rows were found that carry LSNs up to `lsn`, beyond the end of the log: new entries continue
  // above it, so that no LSN is used twice.
  void SkipTo(Lsn lsn);
  // Such rows were found, and no snapshot transfer brought them: the log has lost its end. Whether
  // a primary's log has the same entries there cannot be told, so before this replica follows one
  // it is sent all rows.
  void LostTail() { lost_tail_ = true; }
  // The shard was cut, and the core of the whole had this state until now, in this process, proven
  // or not. As a follower it speaks first in the next epoch: the primary's first append may have
  // come before this core was there.
  void ContinueAnother(bool proven) {
    unproven_ = unproven_ && !proven;
    speaks_first_ = true;
  }

  // --- events
  void SetSelf(const Member& self) { self_ = self; }
  void LearnRecord(const SharedValue<ShardRecord>& learned);
  void PromiseDurable(Epoch epoch);
  void Push(const CorePush& push);
  // Whether pushes may take the short way at all, until the next event.
  bool TakesPushesAlone() const;
  // The short way of a push, while TakesPushesAlone: no other replica follows, and nothing is in
  // flight. MayPushAlone adds that the push is the next one of a session that is open here; then a
  // Push would be appended with the LSN last_lsn() + 1 and be committed and applied before anything
  // else happens. The shell logs it (if the shard has a log), applies it to the rows, and then says
  // PushedAlone; before any other event it says PushLogged instead, and the push, which is in the
  // log's queue under that LSN, goes on as if Push had taken it.
  bool MayPushAlone(const CorePush& push) const;
  void PushedAlone(const CorePush& push);
  void PushLogged(const CorePush& push);
  // The entry of such a push.
  CoreEntry EntryOf(const CorePush& push) const;
  // Rows that the shard itself deletes, by a policy of its table: an entry of no session. False: it
  // takes none now, and `payload` stays the caller's.
  bool Delete(PushToken payload);
  // Answered OK when the commit is applied, also if an earlier request has committed the step.
  void Commit(const CoreCommit& commit);
  // This member's log holds everything up to `lsn`, of the hand-over `ticket`.
  void Appended(Lsn lsn, uint64_t ticket);
  // The coordinator has recorded that the shard was cut in epoch(). Its primary was the one member,
  // or it had stopped taking pushes while every member held all entries: what this member agrees
  // with is committed.
  void CommitForCut();
  // `lsn` and everything behind it is not in the log. `answer` is kReadOnly when it never will be,
  // kUnavailable when a restart may yet find it.
  void AppendFailed(Lsn lsn, uint64_t ticket, SegmentCode answer = SegmentCode::kReadOnly);
  void Applied(Lsn lsn);
  // --- replication. Nothing is taken from a member of another epoch than the promised one.
  void OnAppend(const Member& from, const CoreAppend& append);
  void OnAppendReply(const Member& from, const CoreAppendReply& reply);
  // Messages to `peer` that were not answered are lost: it is asked where it stands.
  void OnPeerLost(const Member& peer);
  // The snapshot that CoreSend::kSnapshot asked for holds everything up to `lsn`: entries above it
  // are kept for `to` from now on.
  void SnapshotTaken(const Member& to, Lsn lsn);
  // The snapshot of `lsn` was installed at `to`, or its transfer broke off.
  void SnapshotDone(const Member& to, Lsn lsn, bool installed);
  // True if a snapshot of `lsn`, sent by the primary of `epoch`, may begin to replace the state
  // here: never in place of what a member of that epoch, or a joiner, may be counted on to hold,
  // and never by something older, unless the state here contradicts that primary's log.
  bool MayInstall(Epoch epoch, Lsn lsn) const;
  // The shell has no memory for entries that only followers lack, and drops those up to `lsn`,
  // which is committed. Learners that lack them get a snapshot instead; members lose nothing.
  void DropRetained(Lsn lsn);

  // The numbers that the coordinator has given out, as far as the request that follows uses them.
  void LearnGiven(const CoreGiven& given) { given_ = given; }
  void Resume();  // the log takes appends again, and no completion of a failed one is outstanding
  void Tick();    // while it has followers, or waits for something: some ten times per second
  // The time for the events that follow, to about a second, monotonic. It alone decides which
  // sessions are idle, and their end is logged. Without it none is.
  void SetNow(int64_t now_ns) { tail_.state().SetNow(now_ns); }
  // The rows cannot be used any more: steps down and answers every waiting request with `answer`.
  // Entries in flight still commit.
  void Abandon(SegmentCode answer) { FailWaiters(answer); }

  // The work that the events so far have brought.
  CoreReady* ready() {
    HOTBED_DCHECK(AnyMutant() || BrokenInvariant().empty()) << BrokenInvariant();
    return &ready_;
  }

  // --- state
  // kOk when requests of `epoch` are served now; else why not.
  SegmentCode CheckEpoch(Epoch epoch) const;
  // Whether the coordinator has given out this session, or this step.
  bool SessionGiven(SessionId session, Incarnation incarnation) const {
    return ClientSessionOf(session) <= given_.session && incarnation <= given_.session;
  }
  bool StepGiven(uint64_t step) const { return step <= given_.step; }
  const Member& self() const { return self_; }
  // Brings to the cache what the short way of a push touches, but for its session.
  void FetchForPushAlone() const { FetchLines(this, kPushAloneBytes); }
  bool primary() const { return primary_; }
  bool active() const { return active_; }
  // The shell is to ask the coordinator for the compare-and-set active=true of epoch(): when this
  // turns true, and from time to time while it stays so.
  bool wants_activation() const;
  bool read_only() const { return read_only_; }
  Epoch epoch() const { return epoch_; }
  Epoch promised() const { return promised_; }
  const ShardRecord& record() const { return record_; }
  // The same, for those who keep it.
  const SharedValue<ShardRecord>& shared_record() const { return record_; }
  Lsn applied_lsn() const { return tail_.applied(); }
  // 0: not known. (epoch, LSN) names one entry only, so a reader that has read up to an entry knows
  // by its epoch whether the shard still goes on from there.
  Epoch AppliedEpochAt(Lsn lsn) const { return tail_.AppliedEpochAt(lsn); }
  Lsn commit_lsn() const { return tail_.commit(); }
  Lsn last_lsn() const { return tail_.last(); }
  // Where this process's own log ends, for the coordinator when all members are gone.
  LogEnd log_end() const { return tail_.end(); }
  // The epoch of which this process has been a member without a restart since, under an earlier
  // incarnation if need be; 0: none. If that epoch was active, the log holds all that was
  // acknowledged in it.
  Epoch member_of() const {
    return !unproven_ && ContainsServer(record_->members, self_.server) ? epoch_ : 0;
  }
  // On an active primary: entries that earlier epochs may have acknowledged end here.
  Lsn inherited_lsn() const { return inherited_; }
  // The last step with a commit in the log; 0: none.
  uint64_t committed_step() const { return tail_.state().committed_step(); }
  // The staged pushes of `step` by `sessions`, in the order of `sessions` and, within one of them,
  // of its parts: what a commit of the step is to sum. To be called before Applied (or Replay) of
  // that commit, which drops them.
  std::vector<Lsn> StagedOf(uint64_t step, absl::Span<const SessionId> sessions) const {
    return tail_.state().StagedOf(step, sessions);
  }
  size_t session_count() const { return tail_.state().sessions().size(); }
  size_t session_bytes() const { return tail_.state().sessions().allocated_bytes(); }
  // Members, and learners in the acknowledging set, that have answered nothing for
  // Follower::kSilentTicks though they were asked. A primary can commit nothing without them, and
  // reports them to the coordinator, which may hear from them.
  std::vector<Member> SilentMembers() const;
  // Learners in the acknowledging set, reported to the coordinator until its record has them.
  std::vector<Member> JoinReady() const;
  // Entries above this are kept for followers, with their payloads; last_lsn() when there are none.
  // A follower keeps those that it would need as a primary.
  Lsn retained_lsn() const;
  // Entries above this are still needed: they are uncommitted, or a connected follower may lack
  // them. Those below it, down to retained_lsn(), are kept in case a replica returns (keep_tail).
  Lsn needed_lsn() const;
  bool has_followers() const { return !followers_.empty(); }
  // Followers in the acknowledging set.
  size_t backup_count() const;
  // On a member that is not the primary, and on a learner: its log holds everything that its
  // primary had committed when it last sent something (leader_commit). Reads may be answered from
  // here, at once or after that is applied.
  bool serves_reads() const;
  Lsn leader_commit() const { return following_.commit; }
  // The state found here at the start was not seen to agree with a primary's log yet.
  bool unproven() const { return unproven_; }
  // The state at applied_lsn(), which is stored with the rows.
  ShardMeta AppliedMeta() const { return tail_.AppliedMeta(); }
  // Empty, or which of the rules above the present state breaks. Debug builds check it at every
  // ready(), and the simulation after every event.
  std::string BrokenInvariant() const;

 private:
  // A duplicate that waits for the entry at `lsn`.
  struct DuplicateWaiter {
    Epoch epoch;  // of the request: the entry's own may be an earlier one
    Lsn lsn;
    PushToken token;
    SegmentCode answer;
    uint64_t last_seq;
  };
  // A follower's view of its primary.
  struct Following {
    Member leader;
    Epoch epoch = 0;
    Lsn commit = 0;             // the highest that it was told
    Lsn verified = 0;           // the log agrees with the primary's up to here
    Lsn answer_at = 0;          // not 0: an answer is due when this is in the log
    bool contradicted = false;  // only a snapshot helps
    bool doubted = false;       // this is not known to be a member of the epoch: see ProveAgreement
    bool heard = false;         // the primary's log was seen to agree
    bool left_out = false;      // entries were not taken because memory was short
  };
  // A primary whose append waited for the promise of its epoch.
  struct Asker {
    Member member;
    Epoch epoch = 0;
  };

  void Reply(PushToken token, SegmentCode code, Epoch epoch, Lsn lsn, uint64_t last_seq);
  void Refuse(const CorePush& push, SegmentCode code, uint64_t last_seq);
  void ReplyToDuplicate(const CorePush& push, uint64_t last_seq);
  bool FencedInAnotherLane(const CorePush& push) const;
  void ReplyToRepeatedCommit(const CoreCommit& commit);
  // False: too many duplicates wait already.
  bool AddDuplicate(const DuplicateWaiter& waiter);
  void AppendEntry(const CoreEntry& entry, PushToken waiter, SegmentCode answer);
  bool ForgetIdleSessions();  // false: none
  bool NoRoom() const { return tail_.unapplied() >= options_.entries_max; }
  void AdvanceCommit();
  void CommitUpTo(Lsn lsn);
  // `lsn` and the entries behind it are no part of the log, and as if they had never been.
  void CutTail(Lsn lsn, SegmentCode answer);

  bool promise_held() const;
  void AskPromise(Epoch epoch);
  void BecomePrimary();
  bool MembersHoldTail() const;
  void EndLongerLogs();
  void TryActivate();
  void Activate();
  void StepDown();
  void FailWaiters(SegmentCode answer);

  Follower::Primary AsPrimary();
  Follower* FindFollower(const Member& member);
  void SetFollowers();
  Lsn KnownCommit() const;
  void PumpAll();
  void JoinIfCaughtUp(Follower* follower);
  void UpdateRetained();
  std::string BrokenRole() const;

  // shard_core_replica.cc
  bool MayFollow(const Member& from, Epoch epoch);
  void FollowLeader(const Member& leader, Epoch epoch);
  bool IsMember(Epoch epoch) const;  // by the record of that epoch
  bool ProveAgreement(const CoreAppend& append);
  bool Agrees(const CoreAppend& append);
  Lsn TakeEntries(const CoreAppend& append);
  void FollowCommit();
  void AnswerHeld(Lsn prev_lsn);
  void AnswerRefusal(Lsn prev_lsn, Lsn hint, bool needs_snapshot);
  void AskForMore();

  // All that the short way of a push touches: two cache lines.
  static constexpr size_t kPushAloneBytes = 128;
  static_assert(LogTail::kAppendBytes <= kPushAloneBytes);

  alignas(64) LogTail tail_;
  const ShardCoreOptions options_;
  CoreGiven given_;
  Member self_;
  SharedValue<ShardRecord> record_;
  Epoch epoch_ = 0;          // of record_
  Epoch promised_ = 0;       // durable
  Epoch promise_asked_ = 0;  // the highest that the shell was asked to make durable
  bool primary_ = false;     // of epoch_, until it is overtaken or abandoned
  bool active_ = false;
  bool leads_ = false;  // this replica decides what epoch_ commits
  bool read_only_ = false;
  bool unproven_ = true;
  bool lost_tail_ = false;  // the rows are ahead of the log, which has not been skipped since

  Lsn inherited_ = 0;
  Lsn retained_ = 0;           // entries above it are kept for other replicas
  bool tail_unneeded_ = true;  // no other replica needs what is logged now
  std::vector<DuplicateWaiter> duplicates_;

  std::vector<Follower> followers_;  // of a primary
  Epoch followers_epoch_ = 0;
  Following following_;
  Asker asker_;
  bool speaks_first_ = false;
  CoreReady ready_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_SHARD_CORE_H_
