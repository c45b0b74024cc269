// The live end of one shard's log, as its core sees it: the four positions, the entries above the
// applied one with the data to answer and to undo each, and the state that all entries add up to.
//
//   applied <= commit <= held <= last
//
// `last` is the newest entry handed to the log, `held` the newest that this server's own log has
// completed, `commit` the newest that is committed, `applied` the newest that is in the rows. A
// tail that is cut leaves the state as if it had never been logged. Memory: one slot per entry
// above `applied`, in a ring that doubles when it is full. Thread-compatible; owned by the shard's
// core.
#ifndef HOTBED_SERVER_PROTOCOL_LOG_TAIL_H_
#define HOTBED_SERVER_PROTOCOL_LOG_TAIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/protocol/core_messages.h"
#include "server/protocol/session_state.h"
#include "server/shard_log/epoch_runs.h"

namespace hotbed {

class LogTail {
 public:
  struct Slot {
    CoreEntry entry;
    PushToken waiter = 0;  // answered when the entry is applied or cut; 0: nobody waits
    SegmentCode answer = SegmentCode::kOk;
    SessionState::Before before;
  };

  // The bytes at its begin that AppendApplied touches.
  static constexpr size_t kAppendBytes = 5 * sizeof(uint64_t) + SessionState::kFoldBytes;

  // --- recovery: all four positions are the same
  void Recover(ShardMeta meta, bool installed);
  void Replay(const CoreEntry& entry);  // of LSN last() + 1
  // The log continues above `lsn`, and the epoch of the entry at `lsn` is not known.
  void SkipTo(Lsn lsn);

  // --- the log grows
  // Appends an entry of LSN last() + 1 that is held, committed and applied with it. Nothing is in
  // flight.
  void AppendApplied(const CoreEntry& entry);
  // Appends `entry` as the next one, of `epoch`, with a ticket of its own. The slot is valid until
  // the next Append.
  Slot& Append(const CoreEntry& entry, Epoch epoch);
  // The log has completed everything up to `lsn`, handed over under `ticket`. False: known before,
  // or that entry was cut since.
  bool Hold(Lsn lsn, uint64_t ticket);
  // True if `lsn` of the hand-over `ticket` is in the log and not completed.
  bool Awaits(Lsn lsn, uint64_t ticket) const;
  const CoreEntry& CommitNext();
  // The entry after applied() is in the rows now.
  Slot& Apply(Lsn lsn);

  // --- the log is cut
  // Takes back the newest entry, which is not committed; its slot is valid until the next Append.
  Slot& CutLast();
  // The epochs of entries below `lsn` are asked for no more.
  void ForgetEpochsBelow(Lsn lsn) { runs_.ForgetBelow(lsn); }
  // The end of the log is of an unknown epoch (SkipTo): from now on it belongs to `epoch`, and so
  // agrees with no other replica's log.
  void AdoptUnknown(Epoch epoch);

  // --- state
  Lsn applied() const { return applied_; }
  Lsn commit() const { return commit_; }
  Lsn held() const { return held_; }
  Lsn last() const { return last_; }
  Lsn unapplied() const { return last_ - applied_; }
  // 0: not known.
  Epoch EpochAt(Lsn lsn) const { return runs_.At(lsn); }
  // The epoch of an entry up to applied(), over the last kHistoryRunsMax changes; 0: not known.
  Epoch AppliedEpochAt(Lsn lsn) const { return lsn > applied_ ? 0 : history_.At(lsn); }
  Lsn FirstOfEpochAt(Lsn lsn) const { return runs_.FirstOfRun(lsn); }
  Epoch last_epoch() const { return runs_.last(); }
  // The last entry that this server's own log holds. LSNs that SkipTo left out are not in it.
  LogEnd end() const {
    return skipped_to_ != 0 && held_ <= skipped_to_ ? before_skip_ : LogEnd{runs_.At(held_), held_};
  }
  // An entry of (applied(), last()].
  Slot& At(Lsn lsn) { return ring_[lsn & (ring_.size() - 1)]; }
  const Slot& At(Lsn lsn) const { return ring_[lsn & (ring_.size() - 1)]; }

  // At last().
  SessionState& state() { return state_; }
  const SessionState& state() const { return state_; }
  // The session's last sequence at applied().
  uint64_t AppliedSeq(SessionId session) const;
  // The state at applied(), which is stored with the rows.
  ShardMeta AppliedMeta() const;

  // The broken invariant of the positions, the slots or the staged pushes; empty: none. Takes time
  // for each entry above applied().
  std::string BrokenInvariant() const;

 private:
  void Grow();
  void NoteApplied(Lsn lsn, Epoch epoch);

  // kAppendBytes begin here.
  Lsn applied_ = 0;
  Epoch applied_epoch_ = 0;
  Lsn commit_ = 0;
  Lsn held_ = 0;
  Lsn last_ = 0;
  SessionState state_;
  Lsn skipped_to_ = 0;  // 0: no LSN was left out
  LogEnd before_skip_;
  uint64_t ticket_ = 0;
  EpochRuns runs_;
  EpochRuns history_;       // of (0, applied_]; entries of it are never cut
  std::vector<Slot> ring_;  // its size is a power of two, or 0: most shards of a server are idle
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_LOG_TAIL_H_
