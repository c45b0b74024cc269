// The state that the entries of one shard's log add up to, apart from the rows: sessions, steps of
// a synchronous table, and pushes that are staged for the commit of their step.
//
// A function of the log: Fold takes one entry after the other, and Undo takes the last one back as
// if it had never been logged. Only the time at which a session was last heard of is no part of
// the log. Thread-compatible; owned by the shard's LogTail.
#ifndef HOTBED_SERVER_PROTOCOL_SESSION_STATE_H_
#define HOTBED_SERVER_PROTOCOL_SESSION_STATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "server/protocol/core_messages.h"
#include "server/protocol/session_table.h"

namespace hotbed {

class SessionState {
 public:
  // The state before one entry, as far as the entry can change it.
  struct Before {
    bool existed = false;  // the entry's session
    Session session;
    Incarnation forgotten = 0;
    uint64_t committed_step = 0;
  };

  // The bytes at its begin that Fold of a push touches, besides the entry in the table.
  static constexpr size_t kFoldBytes = sizeof(SessionTable) + 4 * sizeof(uint64_t);

  // Takes the state that was stored with the rows. `installed`: it came with a snapshot transfer.
  void Recover(ShardMeta meta, bool installed);
  Before StateBefore(const CoreEntry& entry) const;
  // Takes the next entry. `before`: StateBefore(entry).
  void Fold(const CoreEntry& entry, const Before& before);
  // Takes back `entry`, the last one that was folded.
  void Undo(const CoreEntry& entry, const Before& before);
  // The commit of `step` at `lsn` is applied: pushes staged before it are needed no more.
  void DropStaged(uint64_t step, Lsn lsn);

  const SessionTable& sessions() const { return sessions_; }
  // The highest incarnation of any session that was forgotten (ShardMeta::forgotten).
  Incarnation forgotten() const { return forgotten_; }
  uint64_t committed_step() const { return committed_step_; }  // 0: none
  // Staged pushes without their payloads, ascending by LSN.
  const std::vector<StagedPush>& staged() const { return staged_; }
  // The LSNs of what `sessions` staged for `step`, in the order of `sessions` and, within one of
  // them, of its parts.
  std::vector<Lsn> StagedOf(uint64_t step, absl::Span<const SessionId> sessions) const;

  // The time for the events that follow; an earlier one changes nothing. Without it no session is
  // ever idle.
  void SetNow(int64_t now_ns);
  // `session`, which exists, has sent a push now.
  void NoteHeard(SessionId session, const Session& known);
  // Sessions that have been silent for at least `idle_ns_min`, longest first, at most `count_max`.
  std::vector<SessionId> IdleSessions(int64_t idle_ns_min, size_t count_max);

 private:
  SessionTable sessions_;  // kFoldBytes begin here
  Incarnation forgotten_ = 0;
  uint64_t committed_step_ = 0;
  int64_t now_ns_ = 0;
  int64_t first_now_ns_ = 0;  // recovered sessions count as heard of at this time
  std::vector<StagedPush> staged_;
  int64_t idle_not_until_ns_ = 0;  // no session is idle for long enough before this time
};

// Puts the session of `entry` in `sessions` back to its state before the entry.
void UndoSession(const CoreEntry& entry, const SessionState::Before& before,
                 SessionTable* sessions);

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_SESSION_STATE_H_
