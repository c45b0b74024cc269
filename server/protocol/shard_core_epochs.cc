// The core's part in recovery and in the change of epochs: promise, activation, stepping down.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/protocol/core_mutant.h"
#include "server/protocol/shard_core.h"

namespace hotbed {
// --- recovery

void ShardCore::Recover(Epoch promised, ShardMeta meta, bool installed) {
  promised_ = promised;
  applied_ = commit_ = held_ = last_ = retained_ = meta.applied_lsn;
  applied_epoch_ = meta.applied_epoch;
  runs_.Reset(applied_, applied_epoch_);
  old_ = !Mutated(CoreMutant::kRestartedInSync);
  forgotten_ = meta.forgotten;
  const bool sessions_lost = Mutated(CoreMutant::kSessionsForgottenOnRestart) ||
                             (installed && Mutated(CoreMutant::kSessionsNotInstalled));
  if (!sessions_lost) sessions_ = std::move(meta.sessions);
  committed_step_ = meta.committed_step;
  for (const StagedPush& push : meta.staged) {
    if (Mutated(CoreMutant::kStagedForgottenOnRestart)) break;
    staged_.push_back({push.lsn, push.session, push.seq, ""});
  }
}

absl::StatusOr<bool> ShardCore::Replay(const CoreEntry& entry) {
  if (entry.lsn <= last_) return false;
  if (entry.lsn != last_ + 1) {
    return absl::DataLossError(absl::StrCat("log records ", last_ + 1, " to ", entry.lsn - 1,
                                            " are missing before record ", entry.lsn));
  }
  if (entry.epoch < runs_.last()) {
    return absl::DataLossError(absl::StrCat("log record ", entry.lsn, " is of epoch ", entry.epoch,
                                            " and follows one of epoch ", runs_.last()));
  }
  CoreEntry known = entry;
  if (Mutated(CoreMutant::kSessionsForgottenOnRestart)) known.session = 0;
  Fold(known);
  if (entry.kind == RecordKind::kStepCommit) DropStaged(committed_step_, entry.lsn);
  applied_ = commit_ = held_ = last_ = retained_ = entry.lsn;
  applied_epoch_ = entry.epoch;
  runs_.Append(entry.lsn, entry.epoch);
  return true;
}

void ShardCore::SkipTo(Lsn lsn) {
  if (lsn <= last_) return;
  applied_ = commit_ = held_ = last_ = retained_ = lsn;
  // What was there is lost: no other copy can be compared with this one. See BecomePrimary.
  applied_epoch_ = 0;
  runs_.Reset(lsn, 0);
}

// --- epochs

void ShardCore::LearnRecord(const ShardRecord& record) {
  if (!Mutated(CoreMutant::kPromiseIgnored) &&
      (record.epoch < record_.epoch || record.epoch < promised_)) {
    return;
  }
  if (record.epoch == record_.epoch) {
    if (record.revision <= record_.revision) return;
    record_ = record;
    if (leader_epoch_ == record.epoch && IsMember(record.epoch)) doubted_ = false;
    if (!primary_ || !promise_held()) return;
    SetFollowers();
    TryActivate();
    for (Follower& follower : followers_) JoinIfCaughtUp(&follower);  // readers no more
    return PumpAll();
  }
  if (primary_) StepDown();
  leads_ = false;
  record_ = record;
  if (leader_epoch_ == record.epoch && IsMember(record.epoch)) doubted_ = false;
  primary_ = record.primary == self_;
  const bool held_here = record.Holds(self_);
  if (!primary_) followers_.clear();
  // What was kept for others stays kept: an epoch that never becomes active may end in this one's
  // members again, who have to bring each other to the primary's tail.
  if (!held_here) return;
  runs_.ForgetBelow(std::min({retained_, commit_, applied_}));
  if (promise_held()) BecomePrimary();
  AskPromise(record.epoch);
}

void ShardCore::AskPromise(Epoch epoch) {
  if (epoch <= std::max(promised_, promise_asked_)) return;
  ready_.promise = promise_asked_ = epoch;
}

void ShardCore::PromiseDurable(Epoch epoch) {
  promised_ = std::max(promised_, epoch);
  // Another epoch's primary has asked for it: this one is over.
  if (primary_ && promised_ > record_.epoch && !Mutated(CoreMutant::kPromiseIgnored)) StepDown();
  if (promise_held()) BecomePrimary();
  if (asked_epoch_ == 0 || asked_epoch_ != promised_) return;
  // Its append was not taken while the promise was on its way: it is told to go on.
  FollowLeader(asker_, std::exchange(asked_epoch_, 0));
  AskForMore();
}

bool ShardCore::promise_held() const {
  return promised_ == record_.epoch ||
         (promised_ < record_.epoch && Mutated(CoreMutant::kPromiseNotAwaited)) ||
         (promised_ > record_.epoch && Mutated(CoreMutant::kPromiseIgnored));
}

// Once the promise is durable; does nothing on a copy that is not the primary, or is it already.
void ShardCore::BecomePrimary() {
  if (!primary_ || active_) return;
  if (last_ != 0 && runs_.At(last_) == 0) {
    // SkipTo: what stands here is, from now on, this epoch's. So no other copy's log agrees with
    // it, and whoever follows gets a snapshot.
    runs_.Reset(last_, record_.epoch);
    applied_epoch_ = record_.epoch;
  }
  SetFollowers();
  TryActivate();
  PumpAll();
}

bool ShardCore::MembersHoldTail() const {
  // Its own log first: what survives of the tail is part of the new epoch.
  if (held_ != last_) return false;
  for (const Follower& follower : followers_) {
    const bool holds = follower.answered && follower.match >= last_;
    if (Contains(record_.members, follower.member) && !holds) return false;
  }
  return true;
}

bool ShardCore::wants_activation() const {
  return primary_ && !active_ && !record_.active && promise_held() && MembersHoldTail();
}

void ShardCore::TryActivate() {
  if (!primary_ || active_ || !promise_held() || !MembersHoldTail()) return;
  if (record_.active || Mutated(CoreMutant::kActivationNotRecorded)) return Activate();
  ready_.activate = record_.epoch;
}

void ShardCore::Activate() {
  active_ = leads_ = true;
  old_ = false;  // the record says that this is what the shard holds
  // First: what the epoch inherited is held by all its members, and part of it was acknowledged
  // before. A learner that joined below it would hold back its commit, and with it strict pulls
  // would be older than what was acknowledged (the simulation's seed 25037).
  AdvanceCommit();
  inherited_ = commit_;
  if (followers_.empty()) tail_not_kept_ = true;
  for (Follower& follower : followers_) JoinIfCaughtUp(&follower);
}

void ShardCore::StepDown() {
  FailWaiters(SegmentCode::kWrongEpoch);
  leads_ = false;
}

// Whoever waits for an entry is told that it is not known to be done; the entries stay.
void ShardCore::FailWaiters(SegmentCode answer) {
  primary_ = false;
  active_ = false;
  ready_.stepped_down = true;
  if (Mutated(CoreMutant::kRepliesKeptOverStepDown)) return;
  for (Lsn lsn = applied_ + 1; lsn <= last_; ++lsn) {
    Slot& slot = At(lsn);
    Reply(std::exchange(slot.waiter, 0), answer, record_.epoch, applied_, 0);
  }
  for (const DuplicateWaiter& waiter : duplicates_) {
    Reply(waiter.token, answer, record_.epoch, applied_, 0);
  }
  duplicates_.clear();
}

SegmentCode ShardCore::CheckEpoch(Epoch epoch) const {
  if (record_.epoch == 0) return SegmentCode::kUnavailable;
  if (epoch != record_.epoch || !primary_) return SegmentCode::kWrongEpoch;
  return active_ ? SegmentCode::kOk : SegmentCode::kUnavailable;
}

void ShardCore::Tick() {
  TryActivate();
  if (promise_asked_ > promised_) ready_.promise = promise_asked_;
  for (Follower& follower : followers_) TickFollower(&follower);
}

void ShardCore::SetNow(int64_t now_ns) {
  if (now_ns_ == 0) first_now_ns_ = now_ns;
  now_ns_ = now_ns;
}

}  // namespace hotbed
