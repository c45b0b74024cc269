// The core's view of its followers while it is the primary: what they are sent, how far they are,
// who is in the acknowledging set (docs/protocol.md).
#include <algorithm>
#include <utility>

#include "server/protocol/core_mutant.h"
#include "server/protocol/shard_core.h"

namespace hotbed {
namespace {

// On their way to one follower and not answered: more than a few small ones bring nothing, and what
// is held back meanwhile goes as one.
constexpr size_t kAppendsOnTheWayMax = 4;
constexpr Lsn kEntriesPerAppendMax = 256;
// Ticks without an answer, until what was sent counts as lost; and without anything sent, until an
// idle follower hears that its primary lives.
constexpr uint8_t kQuietTicks = 2;
// A learner joins with at most so many committed entries that it has not applied, or after so many
// ticks with any number: a copy that never gets there must not keep a move from ending.
constexpr Lsn kJoinUnappliedMax = 64;
constexpr uint8_t kJoinTicksMax = 100;

}  // namespace

ShardCore::Follower* ShardCore::FindFollower(const Member& member) {
  for (Follower& follower : followers_) {
    if (follower.member == member) return &follower;
  }
  return nullptr;
}

// As the record has them. Those that were known in this epoch stay as they are, and nobody leaves
// the acknowledging set; of an epoch before, only a copy that is on its way goes on.
void ShardCore::SetFollowers() {
  const auto before = std::exchange(followers_, {});
  const bool same_epoch = std::exchange(followers_epoch_, record_.epoch) == record_.epoch;
  if (tail_not_kept_ && !options_.keep_tail) retained_ = std::max(retained_, last_);
  const auto add = [&](const Member& member, bool acknowledges) {
    if (member == self_ || FindFollower(member) != nullptr) return;
    const auto known = std::find_if(before.begin(), before.end(),
                                    [&](const Follower& f) { return f.member == member; });
    if (known != before.end() && same_epoch) return followers_.push_back(*known);
    Follower& follower = followers_.emplace_back();
    follower.member = member;
    follower.acknowledges = acknowledges;
    follower.sent = held_;
    if (known == before.end() || known->state != Follower::State::kSnapshot) return;
    follower.state = Follower::State::kSnapshot;
    follower.hold = known->hold;
    follower.taken = known->taken;
  };
  for (const Member& member : record_.members) add(member, true);
  for (const Member& member : record_.learners) add(member, false);
  for (const Follower& follower : before) {
    if (same_epoch && follower.acknowledges) add(follower.member, true);
  }
  // Alone, but not active yet, nothing is logged, and this copy may follow another one next.
  if (!followers_.empty()) tail_not_kept_ = false;
  if (followers_.empty() && active_) tail_not_kept_ = true;
}

size_t ShardCore::backup_count() const {
  return std::count_if(followers_.begin(), followers_.end(),
                       [](const Follower& follower) { return follower.acknowledges; });
}

// --- sending

void ShardCore::SendAppend(Follower* follower, Lsn last) {
  CoreSend& send = ready_.sends.emplace_back();
  send.kind = CoreSend::Kind::kAppend;
  send.to = follower->member;
  send.epoch = record_.epoch;
  send.prev_lsn = follower->sent;
  send.prev_epoch = runs_.At(send.prev_lsn);
  send.last_lsn = last;
  send.commit = follower->told = KnownCommit();
  follower->quiet_ticks = 0;
}

// Asks whether the log agrees at `at`, and sends up to `entries_max` of what follows it.
void ShardCore::Probe(Follower* follower, Lsn at, Lsn entries_max) {
  follower->state = Follower::State::kProbe;
  follower->waits = true;
  follower->sent = std::max({std::min(at, held_), retained_, follower->match});
  const Lsn last = std::min(held_, follower->sent + entries_max);
  follower->ways.assign(1, last);
  SendAppend(follower, last);
}

// What a process found on its disk may have been committed nowhere. An epoch that never becomes
// active may end in the members of the one before it, who may lack it: nobody is to apply it before
// (the simulation's seed 123482).
Lsn ShardCore::KnownCommit() const { return old_ ? 0 : commit_; }

void ShardCore::Pump(Follower* follower) {
  if (!primary_ || !promise_held() || follower->state == Follower::State::kSnapshot) return;
  if (follower->state == Follower::State::kProbe) {
    if (!follower->waits) Probe(follower, follower->sent, kEntriesPerAppendMax);
    return;
  }
  const Lsn limit = Mutated(CoreMutant::kSentBeforeHeld) ? last_ : held_;
  while (follower->sent < limit && follower->ways.size() < kAppendsOnTheWayMax) {
    const Lsn last = std::min(limit, follower->sent + kEntriesPerAppendMax);
    SendAppend(follower, last);
    follower->sent = last;
    follower->ways.push_back(last);
  }
  // Of a commit a follower hears with the next entries, or at once where none are on their way.
  if (follower->ways.empty() && follower->told < KnownCommit()) {
    SendAppend(follower, follower->sent);
    follower->ways.push_back(follower->sent);
  }
}

std::vector<Member> ShardCore::SilentMembers() const {
  std::vector<Member> silent;
  if (!primary_) return silent;
  for (const Follower& follower : followers_) {
    const bool waited_for = follower.acknowledges || Contains(record_.members, follower.member);
    if (waited_for && follower.silent_ticks >= kSilentTicks) silent.push_back(follower.member);
  }
  return silent;
}

void ShardCore::PumpAll() {
  for (Follower& follower : followers_) Pump(&follower);
}

void ShardCore::TickFollower(Follower* follower) {
  if (follower->state == Follower::State::kSnapshot || !primary_ || !promise_held()) return;
  if (follower->silent_ticks < kSilentTicks) ++follower->silent_ticks;
  if (follower->state == Follower::State::kProbe) return Probe(follower, follower->sent, 0);
  if (active_ && !follower->acknowledges && follower->join_ticks < kJoinTicksMax) {
    ++follower->join_ticks;
  }
  if (++follower->quiet_ticks < kQuietTicks) return Pump(follower);
  if (!follower->ways.empty()) return Probe(follower, follower->match, 0);
  SendAppend(follower, follower->sent);  // that it is alive, and where its log ends
  follower->ways.push_back(follower->sent);
}

void ShardCore::OnPeerLost(const Member& peer) {
  Follower* const follower = FindFollower(peer);
  if (follower == nullptr || follower->state == Follower::State::kSnapshot) return;
  // By the next tick, not at once: a peer that refuses connections would be asked without end.
  follower->state = Follower::State::kProbe;
  follower->waits = true;
  follower->ways.clear();
  follower->sent = held_;
}

// --- answers

void ShardCore::OnAppendReply(const Member& from, const CoreAppendReply& reply) {
  if (!(primary_ || leads_) || reply.epoch != record_.epoch) return;
  Follower* const follower = FindFollower(from);
  if (follower == nullptr) return;
  follower->quiet_ticks = 0;
  follower->silent_ticks = 0;
  if (!reply.ok) {
    OnRefusal(follower, reply);
    return Pump(follower);
  }
  if (follower->state == Follower::State::kSnapshot) return;
  if (reply.lsn < follower->hold) {
    // Said before a copy began to replace what it held, of which nothing may be left.
    if (follower->broken_off && !follower->acknowledges) BeginSnapshot(follower);
    return;
  }
  follower->answered = true;
  follower->applied = std::max(follower->applied, reply.applied);
  follower->match = std::max(follower->match, std::min(reply.lsn, held_));
  auto& ways = follower->ways;
  ways.erase(
      std::remove_if(ways.begin(), ways.end(), [&](Lsn lsn) { return lsn <= follower->match; }),
      ways.end());
  if (follower->state == Follower::State::kProbe) {
    follower->state = Follower::State::kStream;
    follower->sent = ways.empty() ? follower->match : ways.back();
  }
  if (follower->state == Follower::State::kStream && follower->sent < retained_) {
    // What it needs next was dropped since it was asked (DropRetained).
    follower->state = Follower::State::kProbe;
    follower->waits = false;
    ways.clear();
    follower->sent = retained_;
  }
  JoinIfCaughtUp(follower);
  AdvanceCommit();
  TryActivate();
  UpdateRetained();
  PumpAll();
}

void ShardCore::OnRefusal(Follower* follower, const CoreAppendReply& reply) {
  using State = Follower::State;
  if (follower->state == State::kSnapshot) return;
  // Whom an acknowledgement depends on never gets a snapshot: it holds all that is committed. If it
  // says otherwise it is asked again, and the coordinator takes it out if it is lost.
  const bool may_copy = !follower->acknowledges;
  if (reply.needs_snapshot) {
    if (may_copy) return BeginSnapshot(follower);
    follower->state = State::kProbe;
    follower->waits = true;
    return;
  }
  const bool asked = reply.prev_lsn != CoreAppendReply::kUnasked;
  // An earlier one, unless it lacks something above `match`: hints go back by whole epochs, and so
  // below what is known to agree (the simulation's seed 60980).
  const bool above = asked && reply.prev_lsn > follower->match;
  if (reply.lsn < follower->match && (!above || Mutated(CoreMutant::kHintBehindMatchIgnored))) {
    return;
  }
  if (asked && follower->state == State::kProbe && reply.prev_lsn != follower->sent) return;
  // It has not what stands at the end of what is retained: the log does not reach back to it.
  if (asked && reply.prev_lsn <= retained_ && may_copy) return BeginSnapshot(follower);
  follower->state = State::kProbe;
  follower->ways.clear();
  follower->sent = std::max({std::min(reply.lsn, held_), retained_, follower->match});
  follower->waits = asked && reply.prev_lsn == follower->sent;  // again by the next tick
}

// Into the acknowledging set first, then the coordinator is told (JoinReady): otherwise a push
// could be acknowledged without a member of the next epoch.
//
// Its rows are looked at too: where the shard moves it is primary a moment later, and then pushes
// wait for all that it has not applied. From here on that can grow again, but not by what the copy
// of the rows took.
void ShardCore::JoinIfCaughtUp(Follower* follower) {
  if (!active_ || follower->acknowledges || !follower->answered) return;
  if (Contains(record_.readers, follower->member.server)) return;
  if (follower->state != Follower::State::kStream || follower->match < commit_) return;
  const bool applied = follower->applied + kJoinUnappliedMax >= commit_;
  if (!applied && follower->join_ticks < kJoinTicksMax) return;
  if (!Mutated(CoreMutant::kJoinsTooEarly)) follower->acknowledges = true;
}

std::vector<Member> ShardCore::JoinReady() const {
  std::vector<Member> ready;
  if (!active_) return ready;
  for (const Follower& follower : followers_) {
    const bool joined = Mutated(CoreMutant::kJoinsTooEarly)
                            ? follower.answered && follower.match + 2 >= commit_
                            : follower.acknowledges;
    if (joined && Contains(record_.learners, follower.member)) ready.push_back(follower.member);
  }
  return ready;
}

// --- snapshots and what is kept for followers

void ShardCore::BeginSnapshot(Follower* follower) {
  follower->state = Follower::State::kSnapshot;
  follower->ways.clear();
  // Where the copy breaks off nothing is left of what it held.
  follower->match = follower->applied = 0;
  follower->join_ticks = 0;
  follower->answered = false;
  // The sweep that is to come is of this LSN or a later one.
  follower->hold = std::max(applied_, retained_);
  follower->taken = false;
  CoreSend& send = ready_.sends.emplace_back();
  send.kind = CoreSend::Kind::kSnapshot;
  send.to = follower->member;
  send.epoch = record_.epoch;
  send.last_lsn = follower->hold;
}

void ShardCore::SnapshotTaken(const Member& to, Lsn lsn) {
  Follower* const follower = FindFollower(to);
  if (follower == nullptr || follower->state != Follower::State::kSnapshot) return;
  follower->hold = std::max(follower->hold, lsn);
  follower->taken = true;
  UpdateRetained();
}

void ShardCore::SnapshotDone(const Member& to, Lsn lsn, bool installed) {
  Follower* const follower = FindFollower(to);
  if (follower == nullptr || follower->state != Follower::State::kSnapshot) return;
  follower->state = Follower::State::kProbe;
  follower->broken_off = !installed;
  follower->waits = !installed;  // asked by the next tick
  follower->sent = installed ? std::max(std::min(lsn, held_), retained_) : held_;
  Pump(follower);
}

Lsn ShardCore::retained_lsn() const {
  return tail_not_kept_ && !options_.keep_tail ? last_ : std::min(retained_, last_);
}

Lsn ShardCore::needed_lsn() const {
  Lsn needed = commit_;
  for (const Follower& follower : followers_) {
    switch (follower.state) {
      case Follower::State::kProbe:
        needed = std::min(needed, retained_);  // not known yet
        break;
      case Follower::State::kStream:
        needed = std::min(needed, follower.match);
        break;
      case Follower::State::kSnapshot:
        // While it waits for its turn it needs nothing yet: it will be as of a later LSN.
        needed = std::min(needed, follower.taken ? follower.hold : applied_);
        break;
    }
  }
  return std::max(needed, std::min(retained_, commit_));
}

void ShardCore::UpdateRetained() {
  if (options_.keep_tail || tail_not_kept_) return;
  retained_ = std::max(retained_, needed_lsn());
}

void ShardCore::DropRetained(Lsn lsn) {
  retained_ = std::max(retained_, std::min({lsn, commit_, applied_}));
  for (Follower& follower : followers_) {
    // It would be sent what is gone: asked again, it gets a snapshot.
    if (follower.state != Follower::State::kStream || follower.sent >= retained_) continue;
    follower.state = Follower::State::kProbe;
    follower.waits = false;
    follower.ways.clear();
    follower.sent = retained_;
    Pump(&follower);
  }
}

}  // namespace hotbed
