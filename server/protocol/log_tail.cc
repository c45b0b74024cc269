#include "server/protocol/log_tail.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/protocol/core_mutant.h"

namespace hotbed {
namespace {

constexpr size_t kRingInitial = 2;

}  // namespace

// --- recovery

void LogTail::Recover(ShardMeta meta, bool installed) {
  applied_ = commit_ = held_ = last_ = meta.applied_lsn;
  applied_epoch_ = meta.applied_epoch;
  runs_.Reset(applied_, applied_epoch_);
  history_ = meta.history;
  if (history_.last() != applied_epoch_) history_.Reset(applied_, applied_epoch_);
  state_.Recover(std::move(meta), installed);
}

void LogTail::Replay(const CoreEntry& entry) {
  HOTBED_CHECK(entry.lsn == last_ + 1) << "entry " << entry.lsn << " after " << last_;
  CoreEntry known = entry;
  if (Mutated(CoreMutant::kSessionsForgottenOnRestart)) known.session = 0;
  AppendApplied(known);
  if (entry.kind == RecordKind::kStepCommit) {
    state_.DropStaged(state_.committed_step(), entry.lsn);
  }
}

void LogTail::AppendApplied(const CoreEntry& entry) {
  HOTBED_DCHECK(applied_ == last_ && entry.lsn == last_ + 1) << entry.lsn << " after " << last_;
  HOTBED_DCHECK(runs_.last() == applied_epoch_) << runs_.last() << " and " << applied_epoch_;
  state_.Fold(entry, state_.StateBefore(entry));
  applied_ = commit_ = held_ = last_ = entry.lsn;
  if (applied_epoch_ == entry.epoch) return;
  NoteApplied(entry.lsn, entry.epoch);
  runs_.Append(entry.lsn, entry.epoch);
}

void LogTail::NoteApplied(Lsn lsn, Epoch epoch) {
  if (applied_epoch_ == epoch) return;
  applied_epoch_ = epoch;
  history_.Append(lsn, epoch);
  history_.KeepNewest(kHistoryRunsMax);
}

void LogTail::SkipTo(Lsn lsn) {
  before_skip_ = end();
  skipped_to_ = lsn;
  NoteApplied(applied_ + 1, 0);
  applied_ = commit_ = held_ = last_ = lsn;
  runs_.Reset(lsn, 0);
}

void LogTail::AdoptUnknown(Epoch epoch) {
  if (last_ == 0 || runs_.At(last_) != 0) return;
  runs_.Reset(last_, epoch);
  history_.AdoptLast(epoch);
  applied_epoch_ = epoch;
}

// --- append, commit, apply

void LogTail::Grow() {
  std::vector<Slot> old(std::max(kRingInitial, ring_.size() * 2));
  old.swap(ring_);
  for (Lsn lsn = applied_ + 1; lsn <= last_; ++lsn) At(lsn) = old[lsn & (old.size() - 1)];
}

LogTail::Slot& LogTail::Append(const CoreEntry& entry, Epoch epoch) {
  if (last_ - applied_ + 1 >= ring_.size()) Grow();
  Slot& slot = At(++last_);
  slot.entry = entry;
  slot.entry.epoch = epoch;
  slot.entry.lsn = last_;
  slot.entry.ticket = ++ticket_;
  if (!Mutated(CoreMutant::kRepliesKeptOverStepDown)) slot.waiter = 0;
  slot.answer = SegmentCode::kOk;
  slot.before = state_.StateBefore(entry);
  runs_.Append(last_, epoch);
  state_.Fold(slot.entry, slot.before);
  return slot;
}

bool LogTail::Hold(Lsn lsn, uint64_t ticket) {
  if (lsn > last_ || lsn <= held_) return false;
  if (At(lsn).entry.ticket != ticket && !Mutated(CoreMutant::kStaleAppendCounts)) return false;
  held_ = lsn;
  return true;
}

bool LogTail::Awaits(Lsn lsn, uint64_t ticket) const {
  return lsn <= last_ && lsn > held_ && At(lsn).entry.ticket == ticket;
}

const CoreEntry& LogTail::CommitNext() {
  HOTBED_CHECK(commit_ < held_) << "entry " << commit_ + 1 << " is committed, and the log holds "
                                << held_;
  return At(++commit_).entry;
}

LogTail::Slot& LogTail::Apply(Lsn lsn) {
  HOTBED_CHECK(lsn == applied_ + 1 && lsn <= commit_)
      << "applied " << lsn << " after " << applied_ << ", commit " << commit_;
  Slot& slot = At(lsn);
  applied_ = lsn;
  NoteApplied(lsn, slot.entry.epoch);
  if (slot.entry.kind == RecordKind::kStepCommit) {
    state_.DropStaged(slot.entry.seq >> kStepShift, lsn);
  }
  return slot;
}

LogTail::Slot& LogTail::CutLast() {
  HOTBED_CHECK(last_ > commit_) << "entry " << last_ << " is cut, and committed is " << commit_;
  Slot& slot = At(last_);
  state_.Undo(slot.entry, slot.before);
  runs_.CutFrom(last_);
  --last_;
  held_ = std::min(held_, last_);
  return slot;
}

// --- state

uint64_t LogTail::AppliedSeq(SessionId session) const {
  for (Lsn lsn = applied_ + 1; lsn <= last_; ++lsn) {
    const Slot& slot = At(lsn);
    if (slot.entry.session == session) return slot.before.session.last_seq;
  }
  const Session* found = state_.sessions().Find(session);
  return found == nullptr ? 0 : found->last_seq;
}

ShardMeta LogTail::AppliedMeta() const {
  ShardMeta meta;
  meta.applied_lsn = applied_;
  meta.applied_epoch = applied_epoch_;
  meta.history = history_;
  meta.forgotten = state_.forgotten();
  meta.sessions = state_.sessions();
  meta.committed_step = state_.committed_step();
  for (Lsn lsn = last_; lsn > applied_; --lsn) {
    const Slot& slot = At(lsn);
    UndoSession(slot.entry, slot.before, &meta.sessions);
    meta.forgotten = slot.before.forgotten;
    meta.committed_step = slot.before.committed_step;
  }
  for (const StagedPush& push : state_.staged()) {
    if (push.lsn <= applied_) meta.staged.push_back(push);
  }
  return meta;
}

std::string LogTail::BrokenInvariant() const {
  if (applied_ > commit_ || commit_ > held_ || held_ > last_) {
    return absl::StrCat("applied ", applied_, " <= commit ", commit_, " <= held ", held_,
                        " <= last ", last_, " does not hold");
  }
  if (last_ != applied_ && last_ - applied_ >= ring_.size()) {
    return absl::StrCat(last_ - applied_, " entries in ", ring_.size(), " slots");
  }
  Epoch epoch = applied_epoch_;
  uint64_t ticket = 0;
  for (Lsn lsn = applied_ + 1; lsn <= last_; ++lsn) {
    const CoreEntry& entry = At(lsn).entry;
    if (entry.lsn != lsn || entry.epoch < epoch || entry.epoch != runs_.At(lsn) ||
        entry.ticket <= ticket) {
      return absl::StrCat("at LSN ", lsn, " stands LSN ", entry.lsn, " of epoch ", entry.epoch,
                          " under ticket ", entry.ticket, ", behind epoch ", epoch, " and ticket ",
                          ticket, "; its run is of epoch ", runs_.At(lsn));
    }
    epoch = entry.epoch;
    ticket = entry.ticket;
  }
  Lsn staged = 0;
  for (const StagedPush& push : state_.staged()) {
    if (push.lsn <= staged || push.lsn > last_) {
      return absl::StrCat("LSN ", push.lsn, " is staged behind ", staged, ", the log ends at ",
                          last_);
    }
    staged = push.lsn;
  }
  return "";
}

}  // namespace hotbed
