// The core as a follower: Raft's AppendEntries (section 5.3 of its paper) without elections, and
// what a copy that was found on a disk has to prove first (docs/protocol.md).
#include <algorithm>

#include "server/protocol/core_mutant.h"
#include "server/protocol/shard_core.h"

namespace hotbed {

void ShardCore::OnAppend(const Member& from, const CoreAppend& append) {
  if (!MayFollow(from, append.epoch)) return;
  if ((old_ || doubted_) && !ProveOld(append)) return;
  if (append.prev_lsn > last_) return AnswerRefusal(append.prev_lsn, last_, false);
  if (!Agrees(append)) return;
  const Lsn end = TakeEntries(append);
  if (contradicted_) return AnswerRefusal(append.prev_lsn, applied_, true);
  // What is committed here is in every later primary's log.
  verified_ = std::max({verified_, end, std::min(commit_, last_)});
  leader_commit_ = std::max(leader_commit_, append.commit);
  heard_ = true;
  if (end > held_) {
    if (answer_at_ == 0) answer_at_ = end;
  } else {
    AnswerHeld(append.prev_lsn);
  }
  FollowCommit();
}

// Whether `from` is the primary that this copy follows, its promise being durable.
bool ShardCore::MayFollow(const Member& from, Epoch epoch) {
  const bool overtaken = epoch < promised_ || epoch < record_.epoch;
  if (overtaken && !Mutated(CoreMutant::kPromiseIgnored)) return false;
  if (epoch > promised_ && !Mutated(CoreMutant::kPromiseNotAwaited)) {
    AskPromise(epoch);
    if (epoch >= asked_epoch_) {
      asker_ = from;
      asked_epoch_ = epoch;
    }
    return false;
  }
  if (primary_ && epoch == record_.epoch) return false;
  if (primary_) StepDown();
  leads_ = false;
  followers_.clear();
  if (epoch != leader_epoch_) FollowLeader(from, epoch);
  return true;
}

void ShardCore::FollowLeader(const Member& leader, Epoch epoch) {
  leader_ = leader;
  leader_epoch_ = epoch;
  leader_commit_ = verified_ = answer_at_ = 0;
  contradicted_ = left_out_ = heard_ = false;
  doubted_ = !IsMember(epoch) && !Mutated(CoreMutant::kRestartedInSync);
  if (tail_not_kept_ && !options_.keep_tail) retained_ = last_;
  tail_not_kept_ = false;
  runs_.ForgetBelow(std::min({retained_, commit_, applied_}));
}

bool ShardCore::IsMember(Epoch epoch) const {
  return record_.epoch == epoch && Contains(record_.members, self_);
}

// What a process found on its disk is in the rows already and may have been committed nowhere. It
// counts once the primary's log is seen to hold the same entry at commit_, and so (Raft's log
// matching) everything before it, and the primary has committed it: else a later primary that lacks
// it could become one of a group that counts on this copy.
//
// A learner that lived on proves itself likewise: where the only member lost the end of its log
// (class log, the machine without power) and came back, what was committed here before is in no
// primary's log. (Of a process found on its disk, applied_ is commit_.)
bool ShardCore::ProveOld(const CoreAppend& append) {
  // Where the two logs are compared: at commit_, or behind it, where the primary's reaches not so
  // far back.
  const Lsn at = std::max(append.prev_lsn, commit_);
  Epoch theirs = append.prev_epoch;
  const Lsn index = at - append.prev_lsn;
  if (index > append.entries.size()) {
    theirs = 0;  // the primary's log ends before ours
  } else if (index > 0) {
    theirs = append.entries[index - 1].epoch;
  }
  const bool same = at == 0 || (theirs != 0 && at <= last_ && theirs == runs_.At(at));
  if (!same && at > commit_) {
    const Lsn hint = at > last_ ? last_ : std::max(commit_, runs_.FirstOfRun(at) - 1);
    AnswerRefusal(append.prev_lsn, hint, false);
    return false;
  }
  if (!same) {
    contradicted_ = true;
    AnswerRefusal(append.prev_lsn, commit_, true);
    return false;
  }
  if (append.commit < commit_ && !Mutated(CoreMutant::kProvenBeforeCommitted)) return false;
  old_ = doubted_ = false;
  return true;
}

// Raft's check: the entry at prev_lsn is the primary's. Below commit_ it is.
bool ShardCore::Agrees(const CoreAppend& append) {
  const Lsn at = append.prev_lsn;
  if (at == 0 || at < commit_ || Mutated(CoreMutant::kTruncatesByLsnAlone)) return true;
  const Epoch ours = runs_.At(at);
  if (ours != 0 && ours == append.prev_epoch) return true;
  contradicted_ = at == commit_;
  // No entry of that epoch needs to be tried one by one.
  AnswerRefusal(at, std::max(commit_, runs_.FirstOfRun(at) - 1), contradicted_);
  return false;
}

// How far the log now agrees with the primary's by this message. Cuts only where an entry
// conflicts: a late message says nothing about what came after it.
Lsn ShardCore::TakeEntries(const CoreAppend& append) {
  const bool by_lsn = Mutated(CoreMutant::kTruncatesByLsnAlone);
  Lsn end = append.prev_lsn;
  for (const CoreEntry& entry : append.entries) {
    if (entry.lsn != end + 1) break;
    if (entry.lsn <= last_) {
      const Epoch ours = runs_.At(entry.lsn);
      const bool same = ours == entry.epoch || by_lsn;
      if (entry.lsn <= commit_) {
        // 0: so far back that nobody remembers.
        if (!same && ours != 0 && !Mutated(CoreMutant::kRestartedInSync)) contradicted_ = true;
        if (contradicted_) break;
      } else if (!same) {
        CutTail(entry.lsn, SegmentCode::kWrongEpoch);
        ready_.cut_from = ready_.cut_from == 0 ? entry.lsn : std::min(ready_.cut_from, entry.lsn);
      }
    }
    if (entry.lsn > last_) {
      if (read_only_ || last_ - applied_ >= options_.entries_max) {
        left_out_ = true;
        break;
      }
      Fold(NextSlot(entry, entry.epoch)->entry);
    }
    end = entry.lsn;
  }
  return end;
}

// Commits what the primary has committed, as far as it is here; answers what was waited for.
void ShardCore::FollowCommit() {
  CommitUpTo(std::min({leader_commit_, verified_, held_}));
  if (answer_at_ != 0 && held_ >= answer_at_) {
    answer_at_ = held_ < verified_ ? verified_ : 0;
    AnswerHeld(CoreAppendReply::kUnasked);
  }
  UpdateRetained();
}

void ShardCore::AnswerHeld(Lsn prev_lsn) {
  CoreSend& send = ready_.sends.emplace_back();
  send.kind = CoreSend::Kind::kAppendReply;
  send.to = leader_;
  send.epoch = leader_epoch_;
  send.reply = {leader_epoch_, true, false, std::min(verified_, held_), prev_lsn, applied_};
}

void ShardCore::AnswerRefusal(Lsn prev_lsn, Lsn hint, bool needs_snapshot) {
  CoreSend& send = ready_.sends.emplace_back();
  send.kind = CoreSend::Kind::kAppendReply;
  send.to = leader_;
  send.epoch = leader_epoch_;
  send.reply = {leader_epoch_, false, needs_snapshot, hint, prev_lsn};
}

// Speaks first: there is room again for what was left out, or the promise is durable.
void ShardCore::AskForMore() {
  if (primary_ || leader_epoch_ == 0 || leader_epoch_ != promised_) return;
  if (read_only_ || last_ - applied_ > options_.entries_max / 2) return;
  left_out_ = false;
  AnswerRefusal(CoreAppendReply::kUnasked, last_, false);
}

bool ShardCore::MayInstall(Epoch epoch, Lsn lsn) const {
  if (Mutated(CoreMutant::kSnapshotMayRegress)) return epoch >= promised_;
  if (epoch != promised_ || epoch < record_.epoch || primary_) return false;
  if (IsMember(epoch)) return false;
  if (old_) return true;
  // What was acknowledged in this epoch may be counted on; what is committed is in any snapshot of
  // a later LSN. The tail beyond is nobody's.
  const bool heard = leader_epoch_ == epoch;
  return (heard && contradicted_) || lsn > std::max(commit_, heard ? verified_ : 0);
}

bool ShardCore::serves_reads() const {
  if (primary_ || !heard_ || contradicted_ || leader_epoch_ != record_.epoch) return false;
  return verified_ >= leader_commit_ && record_.Holds(self_);
}

}  // namespace hotbed
