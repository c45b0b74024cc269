// The core as a primary: requests, append, commit, apply; then epochs; then followers. The part
// of a follower is in shard_core_replica.cc.
#include "server/protocol/shard_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr size_t kForgetBatch = 64;  // sessions forgotten in one search among all

}  // namespace

void CoreReady::Clear() {
  promise = 0;
  stepped_down = false;
  cut_from = 0;
  appends.clear();
  sends.clear();
  applies.clear();
  replies.clear();
}

ShardCore::ShardCore(const ShardCoreOptions& options) : options_(options) {}

// --- recovery

void ShardCore::Recover(Epoch promised, ShardMeta meta, bool installed) {
  promised_ = promised;
  tail_.Recover(std::move(meta), installed);
  retained_ = tail_.last();
  unproven_ = !Mutated(CoreMutant::kRestartedInSync);
}

absl::StatusOr<bool> ShardCore::Replay(const CoreEntry& entry) {
  if (entry.lsn <= tail_.last()) return false;
  if (entry.lsn != tail_.last() + 1) {
    return absl::DataLossError(absl::StrCat("log records ", tail_.last() + 1, " to ", entry.lsn - 1,
                                            " are missing before record ", entry.lsn));
  }
  if (entry.epoch < tail_.last_epoch()) {
    return absl::DataLossError(absl::StrCat("log record ", entry.lsn, " is of epoch ", entry.epoch,
                                            " and follows one of epoch ", tail_.last_epoch()));
  }
  tail_.Replay(entry);
  retained_ = entry.lsn;
  return true;
}

void ShardCore::SkipTo(Lsn lsn) {
  if (lsn <= tail_.last()) return;
  lost_tail_ = false;
  tail_.SkipTo(lsn);
  retained_ = lsn;
}

// --- requests

void ShardCore::Reply(PushToken token, SegmentCode code, Epoch epoch, Lsn lsn, uint64_t last_seq) {
  if (token != 0) ready_.replies.push_back({token, code, epoch, lsn, last_seq});
}

void ShardCore::Refuse(const CorePush& push, SegmentCode code, uint64_t last_seq) {
  Reply(push.token, code, epoch_, tail_.applied(), last_seq);
}

bool ShardCore::AddDuplicate(const DuplicateWaiter& waiter) {
  if (duplicates_.size() >= options_.entries_max) return false;
  duplicates_.push_back(waiter);
  return true;
}

void ShardCore::ReplyToDuplicate(const CorePush& push, uint64_t last_seq) {
  // It waits for the entry of this sequence, if that is still in flight. A push that opens is
  // answered with all that its session has in the log, its earlier incarnations included, so it
  // waits for the last of those entries.
  for (Lsn lsn = tail_.last(); lsn > tail_.applied(); --lsn) {
    const CoreEntry& entry = tail_.At(lsn).entry;
    if (entry.session != push.session || (entry.seq != push.seq && !push.open)) continue;
    if (Mutated(CoreMutant::kDuplicateAckedEarly)) break;
    const uint64_t answered = push.open ? last_seq : push.seq;
    if (!AddDuplicate({push.epoch, lsn, push.token, push.refusal, answered})) {
      Refuse(push, SegmentCode::kResourceExhausted, 0);
    }
    return;
  }
  Refuse(push, push.refusal, std::max(tail_.AppliedSeq(push.session), push.seq));
}

void ShardCore::Push(const CorePush& push) {
  if (const SegmentCode code = CheckEpoch(push.epoch); code != SegmentCode::kOk) {
    return Refuse(push, code, 0);
  }
  if (!SessionGiven(push.session, push.incarnation)) {
    return Refuse(push, SegmentCode::kUnavailable, 0);
  }
  const SessionTable& sessions = tail_.state().sessions();
  const Session* found = sessions.Find(push.session);
  const Session session = found == nullptr ? Session() : *found;
  const bool opens = found == nullptr || push.incarnation > session.incarnation;
  if (push.incarnation < session.incarnation && !Mutated(CoreMutant::kIncarnationsNotFenced)) {
    return Refuse(push, SegmentCode::kFenced, session.last_seq);
  }
  if (found == nullptr && push.incarnation <= tail_.state().forgotten()) {
    return Refuse(push, SegmentCode::kFenced, 0);
  }
  if (FencedInAnotherLane(push)) return Refuse(push, SegmentCode::kFenced, session.last_seq);
  if (found != nullptr) tail_.state().NoteHeard(push.session, session);
  if (opens && !push.open) return Refuse(push, SegmentCode::kUnknownSession, 0);
  const bool again = push.deletes && Mutated(CoreMutant::kDeleteTakenTwice);
  const bool duplicate = push.seq <= session.last_seq && !again;
  if (duplicate && !opens) return ReplyToDuplicate(push, session.last_seq);
  // A new incarnation does not know what the one before it sent last, and says 0. If that was a
  // part of the same step the new one has to continue there, for it may have cut the step
  // elsewhere.
  const bool fresh_step =
      session.last_seq == 0 || push.seq >> kStepShift != session.last_seq >> kStepShift;
  const bool follows =
      push.prev_seq == session.last_seq || (opens && push.prev_seq == 0 && fresh_step);
  if (!duplicate && !follows && !again && !Mutated(CoreMutant::kGapAccepted)) {
    return Refuse(push, SegmentCode::kGap, session.last_seq);
  }
  if (read_only_) return Refuse(push, SegmentCode::kReadOnly, 0);
  bool sessions_full =
      found == nullptr && (push.no_session_room || sessions.size() >= options_.sessions_max);
  if (sessions_full) sessions_full = !ForgetIdleSessions();
  if (NoRoom() || (push.no_room && !duplicate) || sessions_full) {
    return Refuse(push, SegmentCode::kResourceExhausted, 0);
  }
  // Its step may have been committed without it: then its sender was given up.
  const bool over =
      push.staged && !duplicate && push.seq >> kStepShift <= tail_.state().committed_step();
  const SegmentCode refusal =
      over && push.refusal == SegmentCode::kOk ? SegmentCode::kStepOver : push.refusal;
  CoreEntry entry;
  entry.kind = duplicate                     ? RecordKind::kOpen
               : refusal != SegmentCode::kOk ? RecordKind::kNoop
               : push.deletes                ? RecordKind::kDelete
                                             : RecordKind::kPush;
  entry.staged =
      push.staged && entry.kind == RecordKind::kPush && !Mutated(CoreMutant::kStagedAppliedAtOnce);
  entry.open = opens;
  entry.session = push.session;
  entry.incarnation = push.incarnation;
  entry.seq = duplicate ? 0 : push.seq;
  entry.prev_seq = push.prev_seq;
  entry.payload = push.token;
  AppendEntry(entry, push.token, refusal);
}

// A process that was replaced may be known as such in one lane alone: its successor has pushed
// there first.
bool ShardCore::FencedInAnotherLane(const CorePush& push) const {
  return std::any_of(record_->lanes.begin(), record_->lanes.end(), [&](const ShardLane& lane) {
    const Session* const session =
        tail_.state().sessions().Find(SessionOfLane(ClientSessionOf(push.session), lane.tag));
    return session != nullptr && session->incarnation > push.incarnation;
  });
}

bool ShardCore::TakesPushesAlone() const {
  return CheckEpoch(epoch_) == SegmentCode::kOk && followers_.empty() && tail_unneeded_ &&
         !options_.keep_tail && !read_only_ && duplicates_.empty() && !following_.left_out &&
         record_->lanes.empty() && tail_.last() == tail_.applied();
}

bool ShardCore::MayPushAlone(const CorePush& push) const {
  HOTBED_DCHECK(TakesPushesAlone() && push.epoch == epoch_) << push.epoch;
  if (AnyMutant()) return false;
  const Session* const session = tail_.state().sessions().Find(push.session);
  return session != nullptr && session->incarnation == push.incarnation &&
         session->last_seq == push.prev_seq && push.seq > push.prev_seq;
}

void ShardCore::PushedAlone(const CorePush& push) { tail_.AppendApplied(EntryOf(push)); }

void ShardCore::PushLogged(const CorePush& push) {
  HOTBED_DCHECK(MayPushAlone(push)) << push.seq;
  CoreEntry entry = EntryOf(push);
  entry.payload = push.token;
  AppendEntry(entry, push.token, SegmentCode::kOk);
}

CoreEntry ShardCore::EntryOf(const CorePush& push) const {
  CoreEntry entry;
  entry.kind = RecordKind::kPush;
  entry.epoch = push.epoch;
  entry.lsn = tail_.last() + 1;
  entry.session = push.session;
  entry.incarnation = push.incarnation;
  entry.seq = push.seq;
  entry.prev_seq = push.prev_seq;
  return entry;
}

bool ShardCore::Delete(PushToken payload) {
  if (CheckEpoch(epoch_) != SegmentCode::kOk || read_only_ || NoRoom()) return false;
  CoreEntry entry;
  entry.kind = RecordKind::kDelete;
  entry.payload = payload;
  AppendEntry(entry, 0, SegmentCode::kOk);
  return true;
}

bool ShardCore::ForgetIdleSessions() {
  const size_t before = session_count();
  for (const SessionId session :
       tail_.state().IdleSessions(options_.session_idle_ns_min, kForgetBatch)) {
    if (NoRoom()) break;
    CoreEntry entry;
    entry.kind = RecordKind::kForget;
    entry.session = session;
    entry.incarnation = tail_.state().sessions().Find(session)->incarnation;
    AppendEntry(entry, 0, SegmentCode::kOk);
  }
  return session_count() < before;
}

void ShardCore::Commit(const CoreCommit& commit) {
  SegmentCode code = CheckEpoch(commit.epoch);
  const bool repeated = commit.step <= committed_step() && !Mutated(CoreMutant::kCommitTakenTwice);
  if (code == SegmentCode::kOk && repeated) return ReplyToRepeatedCommit(commit);
  if (code == SegmentCode::kOk && !StepGiven(commit.step)) code = SegmentCode::kUnavailable;
  if (code == SegmentCode::kOk && read_only_) code = SegmentCode::kReadOnly;
  if (code == SegmentCode::kOk && NoRoom()) code = SegmentCode::kResourceExhausted;
  if (code != SegmentCode::kOk) {
    return Reply(commit.token, code, epoch_, tail_.applied(), 0);
  }
  CoreEntry entry;
  entry.kind = RecordKind::kStepCommit;
  entry.seq = commit.step << kStepShift;
  entry.payload = commit.token;
  AppendEntry(entry, commit.token, SegmentCode::kOk);
}

// A commit in the log is not yet in the rows: the reply waits for the entry that carries it out.
void ShardCore::ReplyToRepeatedCommit(const CoreCommit& commit) {
  SegmentCode code = SegmentCode::kOk;
  for (Lsn lsn = tail_.applied() + 1; lsn <= tail_.last(); ++lsn) {
    const CoreEntry& entry = tail_.At(lsn).entry;
    if (entry.kind != RecordKind::kStepCommit || entry.seq >> kStepShift < commit.step) continue;
    if (AddDuplicate({commit.epoch, lsn, commit.token, SegmentCode::kOk, 0})) return;
    code = SegmentCode::kResourceExhausted;
    break;
  }
  Reply(commit.token, code, epoch_, tail_.applied(), 0);
}

void ShardCore::AppendEntry(const CoreEntry& entry, PushToken waiter, SegmentCode answer) {
  LogTail::Slot& slot = tail_.Append(entry, epoch_);
  slot.waiter = waiter;
  slot.answer = answer;
  ready_.appends.push_back(slot.entry);
  if (Mutated(CoreMutant::kSentBeforeHeld)) PumpAll();
  if (Mutated(CoreMutant::kAckBeforeAppend)) {
    const Session* const session = tail_.state().sessions().Find(entry.session);
    Reply(std::exchange(slot.waiter, 0), answer, epoch_, tail_.last(),
          session == nullptr ? 0 : session->last_seq);
  }
}

// --- append, commit, apply

void ShardCore::Appended(Lsn lsn, uint64_t ticket) {
  if (!tail_.Hold(lsn, ticket)) return;
  if (!primary_ && !leads_) return FollowCommit();
  AdvanceCommit();
  if (!active_) TryActivate();
  if (!followers_.empty()) PumpAll();
}

void ShardCore::AdvanceCommit() {
  if (!leads_ && !Mutated(CoreMutant::kCommitsBeforeActive)) return;
  Lsn held = tail_.held();
  for (const Follower& follower : followers_) {
    if (!follower.acknowledges() || Mutated(CoreMutant::kAckBeforeBackups)) continue;
    held = std::min(held, follower.acknowledged());
  }
  CommitUpTo(held);
}

void ShardCore::CommitUpTo(Lsn lsn) {
  while (tail_.commit() < lsn) ready_.applies.push_back(tail_.CommitNext());
}

void ShardCore::CutTail(Lsn lsn, SegmentCode answer) {
  while (tail_.last() >= lsn) {
    LogTail::Slot& slot = tail_.CutLast();
    if (Mutated(CoreMutant::kRepliesKeptOverStepDown) && !primary_) continue;
    Reply(std::exchange(slot.waiter, 0), answer, epoch_, tail_.applied(), 0);
  }
  for (Follower& follower : followers_) follower.OnCut(tail_.last());
  following_.verified = std::min(following_.verified, tail_.last());
  following_.answer_at = std::min(following_.answer_at, tail_.last());
  retained_ = std::min(retained_, tail_.last());
  auto gone = std::partition(duplicates_.begin(), duplicates_.end(),
                             [lsn](const DuplicateWaiter& w) { return w.lsn < lsn; });
  for (auto it = gone; it != duplicates_.end(); ++it) {
    Reply(it->token, answer, epoch_, tail_.applied(), 0);
  }
  duplicates_.erase(gone, duplicates_.end());
}

void ShardCore::AppendFailed(Lsn lsn, uint64_t ticket, SegmentCode answer) {
  read_only_ = true;
  // It may be cut already, with the entry before it; or for another primary's entry, which is in
  // the log.
  if (!tail_.Awaits(lsn, ticket)) return;
  CutTail(lsn, answer);
  if (primary_) return TryActivate();
  following_.left_out = true;
}

void ShardCore::Applied(Lsn lsn) {
  LogTail::Slot& slot = tail_.Apply(lsn);
  if (slot.waiter != 0) {
    // An opening push of an old step is answered with how far its session had come.
    const uint64_t last_seq =
        slot.entry.kind == RecordKind::kOpen ? slot.before.session.last_seq : slot.entry.seq;
    Reply(std::exchange(slot.waiter, 0), slot.answer, slot.entry.epoch, lsn, last_seq);
  }
  if (following_.left_out) AskForMore();
  if (duplicates_.empty()) return;
  auto rest = std::partition(duplicates_.begin(), duplicates_.end(),
                             [lsn](const DuplicateWaiter& w) { return w.lsn > lsn; });
  for (auto it = rest; it != duplicates_.end(); ++it) {
    Reply(it->token, it->answer, it->epoch, it->lsn, it->last_seq);
  }
  duplicates_.erase(rest, duplicates_.end());
}

void ShardCore::Resume() {
  read_only_ = false;
  if (following_.left_out) AskForMore();
}

// --- epochs

void ShardCore::LearnRecord(const SharedValue<ShardRecord>& learned) {
  const ShardRecord& record = learned;
  if (!Mutated(CoreMutant::kPromiseIgnored) &&
      (record.epoch < epoch_ || record.epoch < promised_)) {
    return;
  }
  const bool same_epoch = record.epoch == epoch_;
  if (same_epoch && record.revision <= record_->revision) return;
  if (!same_epoch) {
    if (primary_) StepDown();
    leads_ = false;
  }
  record_ = learned;
  epoch_ = record.epoch;
  if (following_.epoch == record.epoch && IsMember(record.epoch)) following_.doubted = false;
  if (same_epoch) {
    if (!primary_ || !promise_held()) return;
    SetFollowers();
    TryActivate();
    for (Follower& follower : followers_) JoinIfCaughtUp(&follower);  // readers no more
    return PumpAll();
  }
  primary_ = record.primary == self_;
  if (!primary_) followers_.clear();
  // Entries kept for others stay kept: an epoch that never becomes active may end in this one's
  // members again, which have to bring each other to the primary's tail.
  if (!record.Holds(self_)) {
    // A fence names no process (docs/protocol.md). Where this log ends decides who goes on, so it
    // must not grow in an earlier epoch any more.
    if (record.primary.incarnation == 0 && record.AsksFor(self_)) AskPromise(record.epoch);
    return;
  }
  tail_.ForgetEpochsBelow(std::min(retained_, tail_.applied()));
  if (promise_held()) BecomePrimary();
  if (std::exchange(speaks_first_, false) && !primary_) asker_ = {record.primary, record.epoch};
  AskPromise(record.epoch);
}

void ShardCore::AskPromise(Epoch epoch) {
  if (epoch <= std::max(promised_, promise_asked_)) return;
  ready_.promise = promise_asked_ = epoch;
}

void ShardCore::PromiseDurable(Epoch epoch) {
  promised_ = std::max(promised_, epoch);
  // Another epoch's primary has asked for it: this epoch is over.
  if (primary_ && promised_ > epoch_ && !Mutated(CoreMutant::kPromiseIgnored)) StepDown();
  if (promise_held()) BecomePrimary();
  if (asker_.epoch == 0 || asker_.epoch != promised_) return;
  if (promised_ == epoch_ && !(asker_.member == record_->primary)) return;
  // Its append was not taken while the promise was in flight: it is told to send again.
  FollowLeader(asker_.member, std::exchange(asker_.epoch, 0));
  AskForMore();
}

bool ShardCore::promise_held() const {
  return promised_ == epoch_ || (promised_ < epoch_ && Mutated(CoreMutant::kPromiseNotAwaited)) ||
         (promised_ > epoch_ && Mutated(CoreMutant::kPromiseIgnored));
}

// Once the promise is durable. Does nothing on a replica that is no primary, or active already.
void ShardCore::BecomePrimary() {
  if (!primary_ || active_) return;
  // After SkipTo no other replica's log agrees with this one: every follower gets a snapshot.
  tail_.AdoptUnknown(epoch_);
  SetFollowers();
  TryActivate();
  PumpAll();
}

bool ShardCore::MembersHoldTail() const {
  // Its own log first: what survives of the tail is part of the new epoch.
  if (tail_.held() != tail_.last()) return false;
  for (const Follower& follower : followers_) {
    if (Contains(record_->members, follower.member()) && !follower.Holds(tail_.last()))
      return false;
  }
  return true;
}

bool ShardCore::wants_activation() const {
  return primary_ && !active_ && !record_->active && promise_held() && MembersHoldTail();
}

// A member whose log is longer than this one, as that of a primary that was replaced may be, holds
// entries that were never acknowledged. One entry of this epoch replaces them. Otherwise they stay
// until the next push: a member that leaves before that finds them in its log when it starts again,
// contradicts every other replica, and is sent all rows.
void ShardCore::EndLongerLogs() {
  const bool may = primary_ && !record_->active && promise_held() && MembersHoldTail();
  if (!may || tail_.last_epoch() == epoch_ || read_only_ || NoRoom()) return;
  const bool longer = std::any_of(followers_.begin(), followers_.end(), [&](const Follower& f) {
    return Contains(record_->members, f.member()) && f.log_last() > tail_.last();
  });
  if (!longer) return;
  CoreEntry entry;
  entry.kind = RecordKind::kNoop;
  AppendEntry(entry, 0, SegmentCode::kOk);
}

void ShardCore::TryActivate() {
  EndLongerLogs();
  if (!primary_ || active_ || !promise_held() || !MembersHoldTail()) return;
  if (record_->active || Mutated(CoreMutant::kActivationNotRecorded)) return Activate();
}

void ShardCore::Activate() {
  active_ = leads_ = true;
  unproven_ = false;  // the record says that the state here is the shard's
  // The commit advances before any learner joins: all members hold the entries that the epoch
  // inherited, and some of these were acknowledged before. A learner that joined below them would
  // hold back the commit, and strict pulls would return older rows than were acknowledged.
  AdvanceCommit();
  inherited_ = tail_.commit();
  if (followers_.empty()) tail_unneeded_ = true;
  for (Follower& follower : followers_) JoinIfCaughtUp(&follower);
}

void ShardCore::StepDown() {
  FailWaiters(SegmentCode::kWrongEpoch);
  leads_ = false;
}

// Every request that waits for an entry is told that it is not known to be done; the entries stay.
void ShardCore::FailWaiters(SegmentCode answer) {
  primary_ = false;
  active_ = false;
  ready_.stepped_down = true;
  if (Mutated(CoreMutant::kRepliesKeptOverStepDown)) return;
  for (Lsn lsn = tail_.applied() + 1; lsn <= tail_.last(); ++lsn) {
    Reply(std::exchange(tail_.At(lsn).waiter, 0), answer, epoch_, tail_.applied(), 0);
  }
  for (const DuplicateWaiter& waiter : duplicates_) {
    Reply(waiter.token, answer, epoch_, tail_.applied(), 0);
  }
  duplicates_.clear();
}

SegmentCode ShardCore::CheckEpoch(Epoch epoch) const {
  if (epoch_ == 0) return SegmentCode::kUnavailable;
  if (epoch != epoch_ || !primary_) return SegmentCode::kWrongEpoch;
  return active_ ? SegmentCode::kOk : SegmentCode::kUnavailable;
}

void ShardCore::Tick() {
  TryActivate();
  if (promise_asked_ > promised_) ready_.promise = promise_asked_;
  const Follower::Primary primary = AsPrimary();
  for (Follower& follower : followers_) follower.Tick(primary, active_);
}

// --- followers

Follower::Primary ShardCore::AsPrimary() {
  return {tail_, epoch_, retained_, KnownCommit(), primary_ && promise_held(), ready_.sends};
}

Follower* ShardCore::FindFollower(const Member& member) {
  for (Follower& follower : followers_) {
    if (follower.member() == member) return &follower;
  }
  return nullptr;
}

// Sets the followers that the record names. Those known in this epoch stay as they are, and none
// leaves the acknowledging set; from an earlier epoch only snapshot transfers continue.
void ShardCore::SetFollowers() {
  const auto before = std::exchange(followers_, {});
  const bool same_epoch = std::exchange(followers_epoch_, epoch_) == epoch_;
  if (tail_unneeded_ && !options_.keep_tail) retained_ = std::max(retained_, tail_.last());
  const auto add = [&](const Member& member, bool acknowledges) {
    if (member == self_ || FindFollower(member) != nullptr) return;
    const auto known = std::find_if(before.begin(), before.end(),
                                    [&](const Follower& f) { return f.member() == member; });
    if (known != before.end() && same_epoch) return followers_.push_back(*known);
    Follower& follower = followers_.emplace_back(member, acknowledges, tail_.held());
    if (known != before.end()) follower.ContinueSnapshot(*known);
  };
  for (const Member& member : record_->members) add(member, true);
  for (const Member& member : record_->learners) add(member, false);
  for (const Follower& follower : before) {
    if (same_epoch && follower.acknowledges()) add(follower.member(), true);
  }
  // Alone, but not active yet, nothing is logged, and this replica may follow another one next.
  if (!followers_.empty()) tail_unneeded_ = false;
  if (followers_.empty() && active_) tail_unneeded_ = true;
}

size_t ShardCore::backup_count() const {
  return std::count_if(followers_.begin(), followers_.end(),
                       [](const Follower& follower) { return follower.acknowledges(); });
}

// The state that a process found on its disk may have been committed nowhere. An epoch that never
// becomes active may end in the members of the epoch before, which may lack it: no follower is to
// apply it before.
Lsn ShardCore::KnownCommit() const { return unproven_ ? 0 : tail_.commit(); }

void ShardCore::PumpAll() {
  const Follower::Primary primary = AsPrimary();
  for (Follower& follower : followers_) follower.Pump(primary);
}

void ShardCore::OnPeerLost(const Member& peer) {
  if (Follower* const follower = FindFollower(peer)) follower->OnLost(tail_);
}

void ShardCore::OnAppendReply(const Member& from, const CoreAppendReply& reply) {
  if (!(primary_ || leads_) || reply.epoch != epoch_) return;
  Follower* const follower = FindFollower(from);
  if (follower == nullptr || !follower->OnReply(AsPrimary(), reply)) return;
  JoinIfCaughtUp(follower);
  AdvanceCommit();
  TryActivate();
  UpdateRetained();
  PumpAll();
}

void ShardCore::JoinIfCaughtUp(Follower* follower) {
  if (!active_ || Contains(record_->readers, follower->member().server)) return;
  follower->JoinIfCaughtUp(tail_.commit());
}

std::vector<Member> ShardCore::SilentMembers() const {
  std::vector<Member> silent;
  if (!primary_) return silent;
  for (const Follower& follower : followers_) {
    const bool waited_for =
        follower.acknowledges() || Contains(record_->members, follower.member());
    if (waited_for && follower.silent()) silent.push_back(follower.member());
  }
  return silent;
}

std::vector<Member> ShardCore::JoinReady() const {
  std::vector<Member> ready;
  if (!active_) return ready;
  for (const Follower& follower : followers_) {
    if (follower.joined(tail_.commit()) && Contains(record_->learners, follower.member())) {
      ready.push_back(follower.member());
    }
  }
  return ready;
}

// --- snapshots and what is kept for followers

void ShardCore::SnapshotTaken(const Member& to, Lsn lsn) {
  Follower* const follower = FindFollower(to);
  if (follower == nullptr || !follower->SnapshotTaken(lsn)) return;
  UpdateRetained();
}

void ShardCore::SnapshotDone(const Member& to, Lsn lsn, bool installed) {
  if (Follower* const follower = FindFollower(to)) {
    follower->SnapshotDone(AsPrimary(), lsn, installed);
  }
}

Lsn ShardCore::retained_lsn() const {
  return tail_unneeded_ && !options_.keep_tail ? tail_.last() : std::min(retained_, tail_.last());
}

Lsn ShardCore::needed_lsn() const {
  Lsn needed = tail_.commit();
  for (const Follower& follower : followers_) {
    needed = std::min(needed, follower.NeededLsn(retained_, tail_.applied()));
  }
  return std::max(needed, std::min(retained_, tail_.commit()));
}

void ShardCore::UpdateRetained() {
  if (options_.keep_tail || tail_unneeded_) return;
  retained_ = std::max(retained_, needed_lsn());
}

void ShardCore::DropRetained(Lsn lsn) {
  retained_ = std::max(retained_, std::min(lsn, tail_.applied()));
  const Follower::Primary primary = AsPrimary();
  for (Follower& follower : followers_) follower.OnDropped(primary);
}

// --- invariants

std::string ShardCore::BrokenInvariant() const {
  if (std::string wrong = tail_.BrokenInvariant(); !wrong.empty()) return wrong;
  if (std::string wrong = BrokenRole(); !wrong.empty()) return wrong;
  const Lsn last = tail_.last();
  if (retained_ > last || following_.verified > last || following_.answer_at > last) {
    return absl::StrCat("retained ", retained_, ", verified ", following_.verified,
                        " or to be answered ", following_.answer_at,
                        " is above the end of the log, ", last);
  }
  for (const DuplicateWaiter& waiter : duplicates_) {
    if (waiter.lsn <= tail_.applied() || waiter.lsn > last) {
      return absl::StrCat("a duplicate waits for LSN ", waiter.lsn, ", which is not in flight");
    }
  }
  for (size_t i = 0; i < followers_.size(); ++i) {
    const Member& member = followers_[i].member();
    const std::string wrong = followers_[i].BrokenInvariant(tail_);
    if (!wrong.empty()) return absl::StrCat("follower ", member.server, ": ", wrong);
    for (size_t j = 0; j < i; ++j) {
      if (member == followers_[j].member() || member == self_) {
        return absl::StrCat("follower ", member.server, " is there twice, or is this member");
      }
    }
  }
  return "";
}

// The violations among primary_, active_ and leads_.
std::string ShardCore::BrokenRole() const {
  if (active_ && (!primary_ || !leads_ || promised_ != epoch_)) {
    return absl::StrCat("active in epoch ", epoch_, ", promised is ", promised_);
  }
  if (leads_ && (!record_->active || unproven_)) {
    return absl::StrCat("epoch ", epoch_, " commits and is not recorded active");
  }
  if (primary_) return "";
  // Stepping down has failed every request that waited.
  bool waits = !duplicates_.empty();
  for (Lsn lsn = tail_.applied() + 1; lsn <= tail_.last() && !waits; ++lsn) {
    waits = tail_.At(lsn).waiter != 0;
  }
  return waits ? "a request waits here, and this is not the primary" : "";
}

}  // namespace hotbed
