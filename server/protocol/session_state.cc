#include "server/protocol/session_state.h"

#include <algorithm>
#include <utility>

#include "server/protocol/core_mutant.h"

namespace hotbed {

void SessionState::Recover(ShardMeta meta, bool installed) {
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

SessionState::Before SessionState::StateBefore(const CoreEntry& entry) const {
  Before before;
  const Session* const session = entry.session == 0 ? nullptr : sessions_.Find(entry.session);
  before.existed = session != nullptr;
  if (session != nullptr) before.session = *session;
  before.forgotten = forgotten_;
  before.committed_step = committed_step_;
  return before;
}

void SessionState::Fold(const CoreEntry& entry, const Before& before) {
  if (entry.kind == RecordKind::kForget) {
    sessions_.Erase(entry.session);
    forgotten_ = std::max(forgotten_, entry.incarnation);
  } else if (entry.session != 0) {
    const uint64_t seq = std::max(before.session.last_seq, entry.seq);
    sessions_.Set(entry.session, {entry.incarnation, seq, now_ns_});
  }
  if (entry.staged) staged_.push_back({entry.lsn, entry.session, entry.seq, ""});
  if (entry.kind == RecordKind::kStepCommit) committed_step_ = entry.seq >> kStepShift;
}

void UndoSession(const CoreEntry& entry, const SessionState::Before& before,
                 SessionTable* sessions) {
  if (before.existed) {
    sessions->Set(entry.session, before.session);
  } else {
    sessions->Erase(entry.session);
  }
}

void SessionState::Undo(const CoreEntry& entry, const Before& before) {
  if (!Mutated(CoreMutant::kSessionsKeptOverTruncation)) UndoSession(entry, before, &sessions_);
  forgotten_ = before.forgotten;
  committed_step_ = before.committed_step;
  if (entry.staged) staged_.pop_back();
}

void SessionState::DropStaged(uint64_t step, Lsn lsn) {
  if (Mutated(CoreMutant::kCommitTakenTwice)) return;
  const auto dropped = std::remove_if(staged_.begin(), staged_.end(), [&](const StagedPush& push) {
    return push.lsn < lsn && push.seq >> kStepShift <= step;
  });
  staged_.erase(dropped, staged_.end());
}

std::vector<Lsn> SessionState::StagedOf(uint64_t step, absl::Span<const SessionId> sessions) const {
  std::vector<Lsn> lsns;
  const auto take = [&](SessionId session) {
    for (const StagedPush& push : staged_) {
      if (push.session == session && push.seq >> kStepShift == step) lsns.push_back(push.lsn);
    }
  };
  for (const SessionId session : sessions) take(session);
  if (Mutated(CoreMutant::kOthersCommitted)) {
    for (const StagedPush& push : staged_) {
      const bool named = std::count(sessions.begin(), sessions.end(), push.session) != 0;
      if (!named && push.seq >> kStepShift == step) lsns.push_back(push.lsn);
    }
  }
  return lsns;
}

// --- idle sessions

void SessionState::SetNow(int64_t now_ns) {
  if (now_ns_ == 0) first_now_ns_ = now_ns;
  now_ns_ = std::max(now_ns_, now_ns);
}

void SessionState::NoteHeard(SessionId session, const Session& known) {
  if (known.heard_ns != now_ns_) sessions_.SetHeard(session, now_ns_);
}

std::vector<SessionId> SessionState::IdleSessions(int64_t idle_ns_min, size_t count_max) {
  std::vector<SessionId> ids;
  if (now_ns_ < idle_not_until_ns_) return ids;
  std::vector<std::pair<int64_t, SessionId>> idle;
  int64_t oldest_ns = now_ns_;
  sessions_.ForEach([&](SessionId id, const Session& session) {
    const int64_t heard_ns = std::max(session.heard_ns, first_now_ns_);
    oldest_ns = std::min(oldest_ns, heard_ns);
    if (now_ns_ - heard_ns >= idle_ns_min) idle.emplace_back(heard_ns, id);
  });
  if (idle.empty()) idle_not_until_ns_ = oldest_ns + idle_ns_min;
  const size_t count = std::min(idle.size(), count_max);
  std::partial_sort(idle.begin(), idle.begin() + count, idle.end());
  for (size_t i = 0; i < count; ++i) ids.push_back(idle[i].second);
  return ids;
}

}  // namespace hotbed
