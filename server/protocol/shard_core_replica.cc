// The core as a follower: Raft's AppendEntries (section 5.3 of its paper) without elections, and
// the proof that a state found on a disk owes first (docs/protocol.md).
#include <algorithm>

#include "server/protocol/shard_core.h"

namespace hotbed {

void ShardCore::OnAppend(const Member& from, const CoreAppend& append) {
  if (!MayFollow(from, append.epoch)) return;
  if ((unproven_ || following_.doubted) && !ProveAgreement(append)) return;
  if (append.prev_lsn > tail_.last()) return AnswerRefusal(append.prev_lsn, tail_.last(), false);
  if (!Agrees(append)) return;
  const Lsn end = TakeEntries(append);
  if (following_.contradicted) return AnswerRefusal(append.prev_lsn, tail_.applied(), true);
  // Entries that are committed here are in every later primary's log.
  following_.verified = std::max({following_.verified, end, tail_.commit()});
  following_.commit = std::max(following_.commit, append.commit);
  following_.heard = true;
  if (end > tail_.held()) {
    if (following_.answer_at == 0) following_.answer_at = end;
  } else {
    AnswerHeld(append.prev_lsn);
  }
  FollowCommit();
}

// True if `from` is the primary that this replica follows, the promise of its epoch being durable.
bool ShardCore::MayFollow(const Member& from, Epoch epoch) {
  const bool overtaken = epoch < promised_ || epoch < epoch_;
  if (overtaken && !Mutated(CoreMutant::kPromiseIgnored)) return false;
  if (epoch == epoch_ && (primary_ || !(from == record_->primary))) return false;
  if (epoch > promised_ && !Mutated(CoreMutant::kPromiseNotAwaited)) {
    // An epoch is promised once its record is known here (LearnRecord, or now): this message alone
    // could name any. Then its sender is asked to send again.
    if (epoch == epoch_) AskPromise(epoch);
    asker_ = {from, epoch};
    return false;
  }
  if (primary_) StepDown();
  leads_ = false;
  followers_.clear();
  if (epoch != following_.epoch) FollowLeader(from, epoch);
  return true;
}

void ShardCore::FollowLeader(const Member& leader, Epoch epoch) {
  following_ = Following();
  following_.leader = leader;
  following_.epoch = epoch;
  following_.doubted = !IsMember(epoch) && !Mutated(CoreMutant::kRestartedInSync);
  if (tail_unneeded_ && !options_.keep_tail) retained_ = tail_.last();
  tail_unneeded_ = false;
  tail_.ForgetEpochsBelow(std::min(retained_, tail_.applied()));
}

bool ShardCore::IsMember(Epoch epoch) const {
  return epoch_ == epoch && Contains(record_->members, self_);
}

// The state that a process found on its disk is in the rows already and may have been committed
// nowhere. It counts once the primary's log is seen to hold the same entry at the commit LSN, and
// so (Raft's log matching) everything before it, and the primary has committed it. Otherwise a
// later primary that lacks it could lead a group that counts on this replica.
//
// A learner that has kept running proves itself likewise. The only member may have lost the end of
// its log with its machine's power (durability class log): then entries that were committed here
// are in no primary's log. (After recovery the applied LSN is the commit LSN.)
bool ShardCore::ProveAgreement(const CoreAppend& append) {
  const Lsn commit = tail_.commit();
  if (lost_tail_) {
    following_.contradicted = true;
    AnswerRefusal(append.prev_lsn, commit, true);
    return false;
  }
  // The two logs are compared at the commit LSN, or behind it where the primary's log does not
  // reach so far back.
  const Lsn at = std::max(append.prev_lsn, commit);
  Epoch theirs = append.prev_epoch;
  const Lsn index = at - append.prev_lsn;
  if (index > append.entries.size()) {
    theirs = 0;  // the primary's log ends before this one
  } else if (index > 0) {
    theirs = append.entries[index - 1].epoch;
  }
  const bool same = at == 0 || (theirs != 0 && at <= tail_.last() && theirs == tail_.EpochAt(at));
  if (!same && at > commit) {
    const Lsn hint =
        at > tail_.last() ? tail_.last() : std::max(commit, tail_.FirstOfEpochAt(at) - 1);
    AnswerRefusal(append.prev_lsn, hint, false);
    return false;
  }
  if (!same) {
    following_.contradicted = true;
    AnswerRefusal(append.prev_lsn, commit, true);
    return false;
  }
  if (append.commit < commit && !Mutated(CoreMutant::kProvenBeforeCommitted)) return false;
  unproven_ = following_.doubted = false;
  return true;
}

// Raft's check: the entry at prev_lsn is the primary's. Below the commit LSN it always is.
bool ShardCore::Agrees(const CoreAppend& append) {
  const Lsn at = append.prev_lsn;
  if (at == 0 || at < tail_.commit() || Mutated(CoreMutant::kTruncatesByLsnAlone)) return true;
  const Epoch ours = tail_.EpochAt(at);
  if (ours != 0 && ours == append.prev_epoch) return true;
  following_.contradicted = at == tail_.commit();
  // The hint skips the whole epoch: its entries need not be tried one by one.
  AnswerRefusal(at, std::max(tail_.commit(), tail_.FirstOfEpochAt(at) - 1),
                following_.contradicted);
  return false;
}

// Returns how far the log agrees with the primary's by this message. Cuts only where an entry
// conflicts: a late message says nothing about the entries behind its own.
Lsn ShardCore::TakeEntries(const CoreAppend& append) {
  const bool by_lsn = Mutated(CoreMutant::kTruncatesByLsnAlone);
  Lsn end = append.prev_lsn;
  for (const CoreEntry& entry : append.entries) {
    if (entry.lsn != end + 1) break;
    if (entry.lsn <= tail_.last()) {
      const Epoch ours = tail_.EpochAt(entry.lsn);
      const bool same = ours == entry.epoch || by_lsn;
      if (entry.lsn <= tail_.commit()) {
        // An epoch of 0 is too far back to be known.
        if (!same && ours != 0 && !Mutated(CoreMutant::kRestartedInSync)) {
          following_.contradicted = true;
        }
        if (following_.contradicted) break;
      } else if (!same) {
        CutTail(entry.lsn, SegmentCode::kWrongEpoch);
        ready_.cut_from = ready_.cut_from == 0 ? entry.lsn : std::min(ready_.cut_from, entry.lsn);
      }
    }
    if (entry.lsn > tail_.last()) {
      if (read_only_ || NoRoom()) {
        following_.left_out = true;
        break;
      }
      ready_.appends.push_back(tail_.Append(entry, entry.epoch).entry);
    }
    end = entry.lsn;
  }
  return end;
}

// Commits what the primary has committed, as far as it is held here; sends the answer that is due.
void ShardCore::FollowCommit() {
  CommitUpTo(std::min({following_.commit, following_.verified, tail_.held()}));
  if (following_.answer_at != 0 && tail_.held() >= following_.answer_at) {
    following_.answer_at = tail_.held() < following_.verified ? following_.verified : 0;
    AnswerHeld(CoreAppendReply::kUnasked);
  }
  UpdateRetained();
}

void ShardCore::CommitForCut() {
  if (primary_) {
    // Joiners are no members of the next epoch, and may have left already.
    if (leads_ && record_->members.size() == 1) CommitUpTo(tail_.held());
    return;
  }
  if (unproven_ || following_.doubted || !IsMember(following_.epoch)) return;
  CommitUpTo(std::min(following_.verified, tail_.held()));
}

void ShardCore::AnswerHeld(Lsn prev_lsn) {
  CoreSend& send = ready_.sends.emplace_back();
  send.kind = CoreSend::Kind::kAppendReply;
  send.to = following_.leader;
  send.epoch = following_.epoch;
  send.reply = {following_.epoch,
                true,
                false,
                std::min(following_.verified, tail_.held()),
                prev_lsn,
                tail_.applied(),
                read_only_ ? 0 : tail_.last()};
}

void ShardCore::AnswerRefusal(Lsn prev_lsn, Lsn hint, bool needs_snapshot) {
  CoreSend& send = ready_.sends.emplace_back();
  send.kind = CoreSend::Kind::kAppendReply;
  send.to = following_.leader;
  send.epoch = following_.epoch;
  send.reply = {following_.epoch, false, needs_snapshot, hint, prev_lsn};
}

// Speaks first: there is room again for entries that were left out, or the promise is durable.
void ShardCore::AskForMore() {
  if (primary_ || following_.epoch == 0 || following_.epoch != promised_) return;
  if (read_only_ || tail_.unapplied() > options_.entries_max / 2) return;
  following_.left_out = false;
  AnswerRefusal(CoreAppendReply::kUnasked, tail_.last(), false);
}

bool ShardCore::MayInstall(Epoch epoch, Lsn lsn) const {
  if (Mutated(CoreMutant::kSnapshotMayRegress)) return epoch >= promised_;
  if (epoch != promised_ || epoch < epoch_ || primary_) return false;
  if (IsMember(epoch)) return false;
  if (unproven_) return true;
  // Entries acknowledged in this epoch may be counted on; committed ones are in any snapshot of a
  // later LSN. Nobody counts on the tail beyond.
  const bool heard = following_.epoch == epoch;
  return (heard && following_.contradicted) ||
         lsn > std::max(tail_.commit(), heard ? following_.verified : 0);
}

bool ShardCore::serves_reads() const {
  if (primary_ || !following_.heard || following_.contradicted) return false;
  if (following_.epoch != epoch_) return false;
  return following_.verified >= following_.commit && record_->Holds(self_);
}

}  // namespace hotbed
