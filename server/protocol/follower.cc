#include "server/protocol/follower.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/protocol/core_mutant.h"

namespace hotbed {
namespace {

// Appends in flight to one follower. More than a few small appends gain nothing: entries that wait
// meanwhile leave together as one append.
constexpr size_t kAppendsInFlightMax = 4;
constexpr Lsn kEntriesPerAppendMax = 256;
// Ticks without an answer until the messages sent count as lost, and ticks without sending anything
// until an idle follower is told that its primary lives.
constexpr uint8_t kQuietTicks = 2;
// A learner joins with at most this many committed entries that it has not applied, or after this
// many ticks with any number: a replica that never gets there must not keep a move from ending.
constexpr Lsn kJoinUnappliedMax = 64;
constexpr uint8_t kJoinTicksMax = 100;

}  // namespace

void Follower::ContinueSnapshot(const Follower& before) {
  if (before.state_ != State::kSnapshot) return;
  state_ = State::kSnapshot;
  snapshot_lsn_ = before.snapshot_lsn_;
  snapshot_taken_ = before.snapshot_taken_;
}

// --- sending

void Follower::SendAppend(const Primary& primary, Lsn last) {
  CoreSend& send = primary.sends.emplace_back();
  send.kind = CoreSend::Kind::kAppend;
  send.to = member_;
  send.epoch = primary.epoch;
  send.prev_lsn = sent_;
  send.prev_epoch = primary.log.EpochAt(send.prev_lsn);
  send.last_lsn = last;
  send.commit = commit_sent_ = primary.commit;
  quiet_ticks_ = 0;
}

void Follower::Probe(const Primary& primary, Lsn at, Lsn entries_max) {
  const Lsn held = primary.log.held();
  state_ = State::kProbe;
  asked_ = true;
  sent_ = std::max({std::min(at, held), primary.retained, match_});
  const Lsn last = std::min(held, sent_ + entries_max);
  flying_.assign(1, last);
  SendAppend(primary, last);
}

void Follower::Pump(const Primary& primary) {
  if (!primary.may_send || state_ == State::kSnapshot) return;
  if (state_ == State::kProbe) {
    if (!asked_) Probe(primary, sent_, kEntriesPerAppendMax);
    return;
  }
  const Lsn limit = Mutated(CoreMutant::kSentBeforeHeld) ? primary.log.last() : primary.log.held();
  while (sent_ < limit && flying_.size() < kAppendsInFlightMax) {
    const Lsn last = std::min(limit, sent_ + kEntriesPerAppendMax);
    SendAppend(primary, last);
    sent_ = last;
    flying_.push_back(last);
  }
  // Followers learn the commit LSN from the next append; if none is in flight, send an empty one.
  if (flying_.empty() && commit_sent_ < primary.commit) {
    SendAppend(primary, sent_);
    flying_.push_back(sent_);
  }
}

void Follower::Tick(const Primary& primary, bool joins) {
  if (state_ == State::kSnapshot || !primary.may_send) return;
  if (silent_ticks_ < kSilentTicks) ++silent_ticks_;
  if (state_ == State::kProbe) return Probe(primary, sent_, 0);
  if (joins && !acknowledges_ && join_ticks_ < kJoinTicksMax) ++join_ticks_;
  if (++quiet_ticks_ < kQuietTicks) return Pump(primary);
  if (!flying_.empty()) return Probe(primary, match_, 0);
  SendAppend(primary, sent_);  // says that the primary lives, and where its log ends
  flying_.push_back(sent_);
}

void Follower::OnLost(const LogTail& log) {
  if (state_ == State::kSnapshot) return;
  // The next tick asks, not this event: a peer that refuses connections would be asked in a loop.
  state_ = State::kProbe;
  asked_ = true;
  flying_.clear();
  sent_ = log.held();
}

void Follower::OnDropped(const Primary& primary) {
  // It would be sent entries that are gone. Asked again, it gets a snapshot.
  if (state_ != State::kStream || sent_ >= primary.retained) return;
  state_ = State::kProbe;
  asked_ = false;
  flying_.clear();
  sent_ = primary.retained;
  Pump(primary);
}

// --- answers

bool Follower::OnReply(const Primary& primary, const CoreAppendReply& reply) {
  quiet_ticks_ = 0;
  silent_ticks_ = 0;
  if (!reply.ok) {
    OnRefusal(primary, reply);
    Pump(primary);
    return false;
  }
  if (state_ == State::kSnapshot) return false;
  if (reply.lsn < snapshot_lsn_) {
    // Sent before a snapshot transfer began to replace the follower's log: none of it may be left.
    if (snapshot_failed_ && !acknowledges_) BeginSnapshot(primary);
    return false;
  }
  OnHeld(primary, reply);
  return true;
}

void Follower::OnHeld(const Primary& primary, const CoreAppendReply& reply) {
  answered_ = true;
  log_last_ = reply.last;
  applied_ = std::max(applied_, std::min(reply.applied, primary.log.held()));
  match_ = std::max(match_, std::min(reply.lsn, primary.log.held()));
  flying_.erase(
      std::remove_if(flying_.begin(), flying_.end(), [this](Lsn lsn) { return lsn <= match_; }),
      flying_.end());
  if (state_ == State::kProbe) {
    state_ = State::kStream;
    sent_ = flying_.empty() ? match_ : flying_.back();
  }
  if (sent_ < primary.retained) {
    // The entries that it needs next were dropped since it was asked.
    state_ = State::kProbe;
    asked_ = false;
    flying_.clear();
    sent_ = primary.retained;
  }
}

void Follower::OnRefusal(const Primary& primary, const CoreAppendReply& reply) {
  if (state_ == State::kSnapshot) return;
  // A follower that acknowledgements depend on never gets a snapshot: it holds all that is
  // committed. If it says otherwise it is asked again, and the coordinator takes it out if it is
  // lost.
  const bool may_replace = !acknowledges_;
  if (reply.needs_snapshot) {
    if (may_replace) return BeginSnapshot(primary);
    state_ = State::kProbe;
    asked_ = true;
    return;
  }
  const bool asked = reply.prev_lsn != CoreAppendReply::kUnasked;
  // A hint below match_ is of an earlier time, unless the follower lacks an entry above match_:
  // hints go back by whole epochs, and so below the LSN up to which the logs agree.
  const bool above = asked && reply.prev_lsn > match_;
  if (reply.lsn < match_ && (!above || Mutated(CoreMutant::kHintBehindMatchIgnored))) return;
  if (asked && state_ == State::kProbe && reply.prev_lsn != sent_) return;
  // The follower lacks the lowest retained entry: the log does not reach back far enough.
  if (asked && reply.prev_lsn <= primary.retained && may_replace) return BeginSnapshot(primary);
  state_ = State::kProbe;
  flying_.clear();
  sent_ = std::max({std::min(reply.lsn, primary.log.held()), primary.retained, match_});
  asked_ = asked && reply.prev_lsn == sent_;  // asked this before: the next tick does it again
}

// The applied LSN counts too: where the shard moves, the learner is primary a moment later, and
// then pushes wait for all that it has not applied. The backlog can grow again afterwards, but not
// by the duration of a snapshot transfer.
void Follower::JoinIfCaughtUp(Lsn commit) {
  if (acknowledges_ || state_ != State::kStream || !Holds(commit)) return;
  const bool applied = applied_ + kJoinUnappliedMax >= commit;
  if (!applied && join_ticks_ < kJoinTicksMax) return;
  if (!Mutated(CoreMutant::kJoinsTooEarly)) acknowledges_ = true;
}

bool Follower::joined(Lsn commit) const {
  return Mutated(CoreMutant::kJoinsTooEarly) ? answered_ && match_ + 2 >= commit : acknowledges_;
}

// --- snapshots

void Follower::BeginSnapshot(const Primary& primary) {
  state_ = State::kSnapshot;
  flying_.clear();
  // If the transfer breaks off, nothing is left of what the follower held.
  match_ = applied_ = log_last_ = 0;
  join_ticks_ = 0;
  answered_ = false;
  // The rows that are to be written back for it are of this LSN or a later one.
  snapshot_lsn_ = std::max(primary.log.applied(), primary.retained);
  snapshot_taken_ = false;
  CoreSend& send = primary.sends.emplace_back();
  send.kind = CoreSend::Kind::kSnapshot;
  send.to = member_;
  send.epoch = primary.epoch;
  send.last_lsn = snapshot_lsn_;
}

bool Follower::SnapshotTaken(Lsn lsn) {
  if (state_ != State::kSnapshot) return false;
  snapshot_lsn_ = std::max(snapshot_lsn_, lsn);
  snapshot_taken_ = true;
  return true;
}

void Follower::SnapshotDone(const Primary& primary, Lsn lsn, bool installed) {
  if (state_ != State::kSnapshot) return;
  const Lsn held = primary.log.held();
  state_ = State::kProbe;
  snapshot_failed_ = !installed;
  asked_ = !installed;  // after a failure the next tick asks
  sent_ = installed ? std::max(std::min(lsn, held), primary.retained) : held;
  Pump(primary);
}

// --- state

Lsn Follower::NeededLsn(Lsn retained, Lsn applied) const {
  switch (state_) {
    case State::kProbe:
      return retained;  // not known yet
    case State::kStream:
      return match_;
    case State::kSnapshot:
      // Until its transfer begins, it needs no entries: the transfer will be of a later LSN.
      return snapshot_taken_ ? snapshot_lsn_ : applied;
  }
  return retained;
}

std::string Follower::BrokenInvariant(const LogTail& log) const {
  if (match_ > log.held()) {
    return absl::StrCat("it holds up to ", match_, ", the primary's own log up to ", log.held());
  }
  if (state_ == State::kStream && sent_ > log.held()) {
    return absl::StrCat("it was sent up to ", sent_, ", the primary's own log holds up to ",
                        log.held());
  }
  if (flying_.size() > kAppendsInFlightMax) {
    return absl::StrCat(flying_.size(), " appends are in flight");
  }
  if (state_ == State::kSnapshot && (answered_ || !flying_.empty())) {
    return "entries are in flight during its snapshot transfer";
  }
  return "";
}

}  // namespace hotbed
