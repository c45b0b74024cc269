#include "server/protocol/shard_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/protocol/core_mutant.h"

namespace hotbed {
namespace {

constexpr size_t kRingInitial = 16;
constexpr size_t kForgetBatch = 64;  // sessions forgotten in one search among all

}  // namespace

void CoreReady::Clear() {
  promise = 0;
  activate = 0;
  stepped_down = false;
  cut_from = 0;
  appends.clear();
  sends.clear();
  applies.clear();
  replies.clear();
}

ShardCore::ShardCore(const CoreOptions& options) : options_(options), ring_(kRingInitial) {}

// --- pushes

void ShardCore::Reply(PushToken token, SegmentCode code, Epoch epoch, Lsn lsn, uint64_t last_seq) {
  if (token != 0) ready_.replies.push_back({token, code, epoch, lsn, last_seq});
}

void ShardCore::Refuse(const CorePush& push, SegmentCode code, uint64_t last_seq) {
  Reply(push.token, code, record_.epoch, applied_, last_seq);
}

uint64_t ShardCore::AppliedSeq(SessionId session) const {
  for (Lsn lsn = applied_ + 1; lsn <= last_; ++lsn) {
    const Slot& slot = At(lsn);
    if (slot.entry.session == session) return slot.session_before.last_seq;
  }
  const Session* found = sessions_.Find(session);
  return found == nullptr ? 0 : found->last_seq;
}

void ShardCore::ReplyToDuplicate(const CorePush& push, uint64_t last_seq) {
  // What waits: the entry of this sequence, if it is still in flight. One that opens is answered
  // with all that its session has in the log, the lives before it included, so it waits for the
  // last of that.
  for (Lsn lsn = last_; lsn > applied_; --lsn) {
    const CoreEntry& entry = At(lsn).entry;
    if (entry.session != push.session || (entry.seq != push.seq && !push.open)) continue;
    if (Mutated(CoreMutant::kDuplicateAckedEarly)) break;
    if (duplicates_.size() >= options_.entries_max) {
      Refuse(push, SegmentCode::kResourceExhausted, 0);
    } else {
      duplicates_.push_back(
          {push.epoch, lsn, push.token, push.refusal, push.open ? last_seq : push.seq});
    }
    return;
  }
  Refuse(push, push.refusal, std::max(AppliedSeq(push.session), push.seq));
}

void ShardCore::Push(const CorePush& push) {
  if (const SegmentCode code = CheckEpoch(push.epoch); code != SegmentCode::kOk) {
    return Refuse(push, code, 0);
  }
  const Session* found = sessions_.Find(push.session);
  const Session session = found == nullptr ? Session() : *found;
  const bool opens = found == nullptr || push.incarnation > session.incarnation;
  if (push.incarnation < session.incarnation && !Mutated(CoreMutant::kIncarnationsNotFenced)) {
    return Refuse(push, SegmentCode::kFenced, session.last_seq);
  }
  if (found == nullptr && push.incarnation <= forgotten_) {
    return Refuse(push, SegmentCode::kFenced, 0);
  }
  if (found != nullptr && found->heard_ns != now_ns_) sessions_.SetHeard(push.session, now_ns_);
  if (opens && !push.open) return Refuse(push, SegmentCode::kUnknownSession, 0);
  const bool duplicate = push.seq <= session.last_seq;
  if (duplicate && !opens) return ReplyToDuplicate(push, session.last_seq);
  // A new incarnation does not know what the one before it sent last: it says 0. If that was a part
  // of the same step it has to go on there, for it may have cut the step elsewhere.
  const bool fresh_step =
      session.last_seq == 0 || push.seq >> kStepShift != session.last_seq >> kStepShift;
  const bool follows =
      push.prev_seq == session.last_seq || (opens && push.prev_seq == 0 && fresh_step);
  if (!duplicate && !follows && !Mutated(CoreMutant::kGapAccepted)) {
    return Refuse(push, SegmentCode::kGap, session.last_seq);
  }
  if (read_only_) return Refuse(push, SegmentCode::kReadOnly, 0);
  if (found == nullptr && sessions_.size() >= options_.sessions_max) ForgetIdleSessions();
  if (last_ - applied_ >= options_.entries_max || (push.no_room && !duplicate) ||
      (found == nullptr && sessions_.size() >= options_.sessions_max)) {
    return Refuse(push, SegmentCode::kResourceExhausted, 0);
  }
  // A step that was committed without it: its sender was given up (DECISIONS S5).
  const bool over = push.staged && !duplicate && push.seq >> kStepShift <= committed_step_;
  const SegmentCode refusal =
      over && push.refusal == SegmentCode::kOk ? SegmentCode::kStepOver : push.refusal;
  CoreEntry entry;
  entry.kind = duplicate                     ? RecordKind::kOpen
               : refusal != SegmentCode::kOk ? RecordKind::kNoop
                                             : RecordKind::kPush;
  entry.staged =
      push.staged && entry.kind == RecordKind::kPush && !Mutated(CoreMutant::kStagedAppliedAtOnce);
  entry.open = opens;
  entry.session = push.session;
  entry.incarnation = push.incarnation;
  entry.seq = duplicate ? 0 : push.seq;
  entry.prev_seq = push.prev_seq;
  entry.payload = push.token;
  const Session after{push.incarnation, std::max(session.last_seq, push.seq), now_ns_};
  AppendEntry(entry, push.token, refusal, &after);
}

void ShardCore::Forget(SessionId session) {
  const Session* found = sessions_.Find(session);
  if (found == nullptr || !active_ || read_only_ || last_ - applied_ >= options_.entries_max) {
    return;
  }
  CoreEntry entry;
  entry.kind = RecordKind::kForget;
  entry.session = session;
  entry.incarnation = found->incarnation;
  AppendEntry(entry, 0, SegmentCode::kOk, found);
  sessions_.Erase(session);
  forgotten_ = std::max(forgotten_, entry.incarnation);
}

void ShardCore::ForgetIdleSessions() {
  if (now_ns_ < idle_not_until_ns_) return;
  std::vector<std::pair<int64_t, SessionId>> idle;
  int64_t oldest_ns = now_ns_;
  sessions_.ForEach([&](SessionId id, const Session& session) {
    const int64_t heard_ns = std::max(session.heard_ns, first_now_ns_);
    oldest_ns = std::min(oldest_ns, heard_ns);
    if (now_ns_ - heard_ns >= options_.session_idle_ns_min) idle.emplace_back(heard_ns, id);
  });
  if (idle.empty()) idle_not_until_ns_ = oldest_ns + options_.session_idle_ns_min;
  const size_t count = std::min(idle.size(), kForgetBatch);
  std::partial_sort(idle.begin(), idle.begin() + count, idle.end());
  for (size_t i = 0; i < count; ++i) Forget(idle[i].second);
}

void ShardCore::Grow() {
  std::vector<Slot> old(ring_.size() * 2);
  old.swap(ring_);
  for (Lsn lsn = applied_ + 1; lsn <= last_; ++lsn) At(lsn) = old[lsn & (old.size() - 1)];
}

// Its place in the ring, with what it takes to undo it; nobody waits for it yet.
ShardCore::Slot* ShardCore::NextSlot(const CoreEntry& entry, Epoch epoch) {
  if (last_ - applied_ + 1 >= ring_.size()) Grow();
  Slot& slot = At(++last_);
  slot.entry = entry;
  slot.entry.epoch = epoch;
  slot.entry.lsn = last_;
  slot.entry.ticket = ++ticket_;
  runs_.Append(last_, epoch);
  if (!Mutated(CoreMutant::kRepliesKeptOverStepDown)) slot.waiter = 0;
  slot.answer = SegmentCode::kOk;
  const Session* before = entry.session == 0 ? nullptr : sessions_.Find(entry.session);
  slot.session_existed = before != nullptr;
  slot.session_before = before == nullptr ? Session() : *before;
  slot.forgotten_before = forgotten_;
  slot.committed_before = committed_step_;
  ready_.appends.push_back(slot.entry);
  return &slot;
}

void ShardCore::AppendEntry(const CoreEntry& entry, PushToken waiter, SegmentCode answer,
                            const Session* session) {
  Slot& slot = *NextSlot(entry, record_.epoch);
  slot.waiter = waiter;
  slot.answer = answer;
  const uint64_t last_seq = session == nullptr ? 0 : session->last_seq;
  if (session != nullptr) sessions_.Set(entry.session, Session(*session));
  if (entry.staged) staged_.push_back({last_, entry.session, entry.seq, ""});
  if (Mutated(CoreMutant::kSentBeforeHeld)) PumpAll();
  if (Mutated(CoreMutant::kAckBeforeAppend)) {
    Reply(std::exchange(slot.waiter, 0), answer, record_.epoch, last_, last_seq);
  }
}

// What AppendEntry and its callers do on the primary, from the entry alone.
void ShardCore::Fold(const CoreEntry& entry) {
  if (entry.kind == RecordKind::kForget) {
    sessions_.Erase(entry.session);
    forgotten_ = std::max(forgotten_, entry.incarnation);
  } else if (entry.session != 0) {
    const Session* session = sessions_.Find(entry.session);
    const uint64_t seq = session == nullptr ? 0 : session->last_seq;
    sessions_.Set(entry.session, {entry.incarnation, std::max(seq, entry.seq), now_ns_});
  }
  if (entry.staged) staged_.push_back({entry.lsn, entry.session, entry.seq, ""});
  if (entry.kind == RecordKind::kStepCommit) committed_step_ = entry.seq >> kStepShift;
}

// --- append, commit, apply

void ShardCore::Appended(Lsn lsn, uint64_t ticket) {
  if (lsn > last_ || lsn <= held_) return;  // cut since then, or known
  if (At(lsn).entry.ticket != ticket && !Mutated(CoreMutant::kStaleAppendCounts)) return;
  held_ = lsn;
  if (!primary_ && !leads_) return FollowCommit();
  AdvanceCommit();
  if (!active_) TryActivate();
  if (!followers_.empty()) PumpAll();
}

void ShardCore::AdvanceCommit() {
  if (!leads_ && !Mutated(CoreMutant::kCommitsBeforeActive)) return;
  Lsn held = held_;
  for (const Follower& follower : followers_) {
    if (!follower.acknowledges || Mutated(CoreMutant::kAckBeforeBackups)) continue;
    held = std::min(held, follower.answered ? follower.match : 0);
  }
  CommitUpTo(held);
}

void ShardCore::CommitUpTo(Lsn lsn) {
  for (; commit_ < lsn; ++commit_) ready_.applies.push_back(At(commit_ + 1).entry);
}

void ShardCore::UndoSession(const Slot& slot, SessionTable* sessions) {
  if (slot.session_existed) {
    sessions->Set(slot.entry.session, slot.session_before);
  } else {
    sessions->Erase(slot.entry.session);
  }
}

// `lsn` and what follows is no part of the log, and as if it had never been.
void ShardCore::CutTail(Lsn lsn, SegmentCode answer) {
  HOTBED_CHECK(lsn > commit_) << "entry " << lsn << " is cut, and committed is " << commit_;
  for (Lsn cut = last_; cut >= lsn; --cut) {
    Slot& slot = At(cut);
    if (!Mutated(CoreMutant::kSessionsKeptOverTruncation)) UndoSession(slot, &sessions_);
    forgotten_ = slot.forgotten_before;
    committed_step_ = slot.committed_before;
    if (slot.entry.staged) staged_.pop_back();
    if (Mutated(CoreMutant::kRepliesKeptOverStepDown) && !primary_) continue;
    Reply(std::exchange(slot.waiter, 0), answer, record_.epoch, applied_, 0);
  }
  last_ = lsn - 1;
  held_ = std::min(held_, last_);
  verified_ = std::min(verified_, last_);
  answer_at_ = std::min(answer_at_, last_);
  retained_ = std::min(retained_, last_);
  runs_.CutFrom(lsn);
  auto gone = std::partition(duplicates_.begin(), duplicates_.end(),
                             [lsn](const DuplicateWaiter& w) { return w.lsn < lsn; });
  for (auto it = gone; it != duplicates_.end(); ++it) {
    Reply(it->token, answer, record_.epoch, applied_, 0);
  }
  duplicates_.erase(gone, duplicates_.end());
}

void ShardCore::AppendFailed(Lsn lsn, uint64_t ticket, SegmentCode answer) {
  read_only_ = true;
  // Cut already, with the one before it; or for another primary's entry, which is in the log.
  if (lsn > last_ || lsn <= held_ || At(lsn).entry.ticket != ticket) return;
  CutTail(lsn, answer);
  if (primary_) return TryActivate();
  left_out_ = true;
}

void ShardCore::Applied(Lsn lsn) {
  HOTBED_CHECK(lsn == applied_ + 1 && lsn <= commit_)
      << "applied " << lsn << " after " << applied_ << ", commit " << commit_;
  Slot& slot = At(lsn);
  applied_ = lsn;
  applied_epoch_ = slot.entry.epoch;
  if (slot.entry.kind == RecordKind::kStepCommit) DropStaged(slot.entry.seq >> kStepShift, lsn);
  if (slot.waiter != 0) {
    // An opening push of an old step is answered with how far its session had come.
    const uint64_t last_seq =
        slot.entry.kind == RecordKind::kOpen ? slot.session_before.last_seq : slot.entry.seq;
    Reply(std::exchange(slot.waiter, 0), slot.answer, slot.entry.epoch, lsn, last_seq);
  }
  if (left_out_) AskForMore();
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
  if (left_out_) AskForMore();
}

ShardMeta ShardCore::AppliedMeta() const {
  ShardMeta meta{applied_lsn(), applied_epoch_, forgotten_, sessions_, committed_step_, {}};
  for (Lsn lsn = last_; lsn > applied_; --lsn) {
    UndoSession(At(lsn), &meta.sessions);
    meta.forgotten = At(lsn).forgotten_before;
    meta.committed_step = At(lsn).committed_before;
  }
  for (const StagedPush& push : staged_) {
    if (push.lsn <= applied_) meta.staged.push_back(push);
  }
  return meta;
}

}  // namespace hotbed
