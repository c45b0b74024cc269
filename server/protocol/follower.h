// Another replica as its primary sees it within one epoch: the entries that it was sent, those that
// it is known to hold, and whether acknowledgements depend on it.
//
//   kProbe     asked where its log agrees; no more is sent until it answers
//   kStream    entries are sent as they come, a few appends in flight at a time
//   kSnapshot  a snapshot transfer is in progress; no entries are sent
//
//   kProbe    -> kStream    it answers that its log agrees
//   kStream   -> kProbe     it refuses an append, does not answer, is disconnected, or lacks
//                           entries that were dropped
//   either    -> kSnapshot  it needs entries that are dropped, or contradicts this log; never while
//                           acknowledgements depend on it
//   kSnapshot -> kProbe     the transfer ended, one way or the other
//
// Thread-compatible; owned by the primary's ShardCore, which hands in the state of its log with
// every event.
#ifndef HOTBED_SERVER_PROTOCOL_FOLLOWER_H_
#define HOTBED_SERVER_PROTOCOL_FOLLOWER_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/protocol/core_messages.h"
#include "server/protocol/log_tail.h"

namespace hotbed {

class Follower {
 public:
  // The primary's side of a conversation, at the time of one event.
  struct Primary {
    const LogTail& log;
    Epoch epoch = 0;
    Lsn retained = 0;  // entries above it can be sent
    Lsn commit = 0;    // the commit that followers may be told
    bool may_send = false;
    std::vector<CoreSend>& sends;
  };
  // Ticks without an answer, though it was asked, after which it counts as silent.
  static constexpr uint16_t kSilentTicks = 40;

  Follower(const Member& member, bool acknowledges, Lsn held)
      : member_(member), acknowledges_(acknowledges), sent_(held) {}

  // Takes over the snapshot transfer, if any, that was in progress in the epoch before.
  void ContinueSnapshot(const Follower& before);

  // --- events
  // Sends the message that is due: entries, a probe, or the commit LSN.
  void Pump(const Primary& primary);
  // `joins`: it is a learner whose join is waited for.
  void Tick(const Primary& primary, bool joins);
  // True if the reply told how much of the log the follower holds, which may commit entries.
  bool OnReply(const Primary& primary, const CoreAppendReply& reply);
  // The messages that were sent and not answered are lost.
  void OnLost(const LogTail& log);
  // True if its transfer was waiting for that.
  bool SnapshotTaken(Lsn lsn);
  void SnapshotDone(const Primary& primary, Lsn lsn, bool installed);
  // Entries above `last` are no part of the log. A snapshot was to hold some of them.
  void OnCut(Lsn last) { snapshot_lsn_ = std::min(snapshot_lsn_, last); }
  // Entries up to primary.retained are gone.
  void OnDropped(const Primary& primary);
  // Puts a learner into the acknowledging set if it has caught up with `commit`. It joins first and
  // the coordinator is told afterwards (ShardCore::JoinReady): otherwise a push could be
  // acknowledged without a member of the next epoch.
  void JoinIfCaughtUp(Lsn commit);

  // --- state
  const Member& member() const { return member_; }
  bool acknowledges() const { return acknowledges_; }
  // The LSN up to which its log is known to agree in this epoch; 0: nothing is known.
  Lsn acknowledged() const { return answered_ ? match_ : 0; }
  bool Holds(Lsn lsn) const { return answered_ && match_ >= lsn; }
  // Where its log ended when it answered last; 0: unknown.
  Lsn log_last() const { return log_last_; }
  bool silent() const { return silent_ticks_ >= kSilentTicks; }
  // To be reported to the coordinator.
  bool joined(Lsn commit) const;
  // Entries above this are, or may be, lacking there.
  Lsn NeededLsn(Lsn retained, Lsn applied) const;
  // The broken invariant; empty: none.
  std::string BrokenInvariant(const LogTail& log) const;

 private:
  enum class State : uint8_t { kProbe, kStream, kSnapshot };

  void SendAppend(const Primary& primary, Lsn last);
  // Asks whether the log agrees at `at`, and sends up to `entries_max` of the entries behind it.
  void Probe(const Primary& primary, Lsn at, Lsn entries_max);
  void BeginSnapshot(const Primary& primary);
  void OnRefusal(const Primary& primary, const CoreAppendReply& reply);
  void OnHeld(const Primary& primary, const CoreAppendReply& reply);

  Member member_;
  bool acknowledges_ = false;  // in the acknowledging set: a member, or a joiner
  State state_ = State::kProbe;
  bool answered_ = false;               // its log was seen to agree up to match_
  bool asked_ = false;                  // kProbe: the probe is sent
  Lsn match_ = 0;                       // its log agrees up to here
  Lsn applied_ = 0;                     // its rows are at least of this LSN
  Lsn log_last_ = 0;                    // see log_last()
  Lsn sent_ = 0;                        // kProbe: the LSN asked about; kStream: sent up to here
  Lsn commit_sent_ = 0;                 // the commit that it was told last
  absl::InlinedVector<Lsn, 4> flying_;  // the last LSNs of the appends in flight
  Lsn snapshot_lsn_ = 0;                // of its last snapshot transfer
  bool snapshot_taken_ = false;         // kSnapshot: entries above snapshot_lsn_ are needed
  bool snapshot_failed_ = false;        // the last transfer was not installed
  uint8_t quiet_ticks_ = 0;             // since it answered, or was sent something
  uint8_t join_ticks_ = 0;              // in kStream without being in the acknowledging set
  uint16_t silent_ticks_ = 0;           // since it answered
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_FOLLOWER_H_
