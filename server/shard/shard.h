// One shard as it lives in a server: its strand, its state machine (shard_core), its rows (tiers)
// and its place in the log.
//
//   push: checks -> strand -> core -> log (class log) -> committed -> rows -> reply
//   pull: checks -> strand -> rows -> reply
//
// A push to a synchronous table is staged: committed in the log and kept aside (staged_rows) until
// its step's commit comes, which is an entry of the log like any other.
//
// Where the shard has other copies an entry is a whole record of the log in memory (replica_tail),
// encoded once by the primary: it goes to the other copies as it is, they append these very bytes
// to their own logs and apply from them. Of a copy that was just installed the rows may be ahead of
// the log, as after a crash: until its log has passed them it is not read.
//
// Thread-safe: everything below the strand is confined to it. A push that misses the hot tier holds
// back later pushes of this shard, and nothing else (DECISIONS C2). The host keeps a shard alive
// until idle() and closes it before it lets go.
#ifndef HOTBED_SERVER_SHARD_SHARD_H_
#define HOTBED_SERVER_SHARD_SHARD_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "common/strand.h"
#include "common/table_spec.h"
#include "server/protocol/shard_core.h"
#include "server/shard/replica_budget.h"
#include "server/shard/replica_message.h"
#include "server/shard/replica_outlet.h"
#include "server/shard/replica_tail.h"
#include "server/shard/requests.h"
#include "server/shard/rolling_hash.h"
#include "server/shard/shard_snapshot.h"
#include "server/shard/shard_status.h"
#include "server/shard/staged_rows.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

struct PushState;

class Shard {
 public:
  struct Options {
    TableSpec table;
    ShardId id;
    ShardRange range;
    TierHost* tiers = nullptr;
    ShardLog* log = nullptr;  // null: class checkpoint
    ThreadPool* pool = nullptr;
    const Clock* clock = nullptr;
    uint32_t ids_max = 1u << 20;  // of one segment
    uint32_t parked_max = 1024;   // pulls that wait for an LSN
    Strand::Options strand;
    CoreOptions core;
    // Set by the host while the log is over its limit: pushes are refused until the sweeper has
    // made room. Null: never.
    const std::atomic<bool>* log_full = nullptr;
    // What all shards of the server keep staged; beyond the limit pushes to synchronous tables get
    // RESOURCE_EXHAUSTED. Null: no limit.
    std::shared_ptr<std::atomic<int64_t>> staged_bytes;
    uint64_t staged_bytes_max = 0;
    // The way to other replicas; outlives the shard's work. Null: it has none, ever.
    ReplicaOutlet* outlet = nullptr;
    ReplicaBudget* replica_budget = nullptr;  // with `outlet`
    bool installed = false;                   // the rows came with a snapshot, just now
  };

  // Opens the rows and reads the state that was stored with them. A shard that cannot be opened is
  // still made: it answers every request with the reason.
  Shard(Options options, Epoch promised);
  ~Shard();

  // --- data plane; any thread. Finish the segment, perhaps before they return.
  void Pull(PullWork* work, PullSegment* segment);
  void Push(PushWork* work, PushSegment* segment);
  // Has the rows of a pull that comes next brought to the cache. Any thread; waits for nothing.
  void FetchAhead(const PullSegment& segment) const {
    fetch_hint_.Fetch(segment.ids, segment.count, /*with_state=*/false);
  }

  // --- recovery: between construction and FinishReplay nothing else is called. Any one thread;
  // `done` runs once the record was applied or skipped (or the shard refused), perhaps on another.
  void Replay(const RecordView& record, absl::AnyInvocable<void()> done);
  // Does not block: tries again the record that the rows could not take (the spill tier is full,
  // say), if there is one. `done` of it and of those behind it waits until then.
  void RetryReplay();
  // Blocks. True: the log ends before what the rows carry. Either they are those of a copy that had
  // not caught up, which then goes on from other copies' logs; or an unsynced tail of the log is
  // lost: if the shard becomes its own primary, it wants a sweep (wants_sweep).
  bool FinishReplay();
  // From now on every request is answered CORRUPT (DataLoss) or UNAVAILABLE with this reason;
  // UNAVAILABLE too where others have copies. Blocks.
  void Refuse(const absl::Status& error);

  // --- control; block until done on the strand
  // What the table's options have become (TableSpec::changes; the rest never differs). Pushes that
  // come later are resolved by them; those that are in the log already carry what they were
  // resolved to.
  void LearnChanges(const std::vector<TableChange>& changes);
  // The epoch to promise durably, 0: none; then PromiseDurable. With `done` neither blocks: it runs
  // on the strand, perhaps before they return.
  Epoch LearnRecord(const Member& self, const ShardRecord& record);
  void LearnRecord(const Member& self, const ShardRecord& record,
                   absl::AnyInvocable<void(Epoch promise)> done);
  void PromiseDurable(Epoch epoch);
  void PromiseDurable(Epoch epoch, absl::AnyInvocable<void()> done);
  // --- other copies; these do not block
  // An append or the answer to one; damaged records are not taken.
  void OnReplicaMessage(const Member& from, ReplicaMessage message);
  void OnPeerLost(const Member& peer);
  // Requests that have waited for the shard's record or its activation until now are answered.
  void ExpireWaiting();
  // How the copying of all rows to `to` ended.
  void EndSnapshot(const Member& to, Lsn lsn, bool installed);
  // --- copies; block
  // The rows as of some LSN or later, those stamped above `above` (0: all), which is the LSN of the
  // last snapshot for `to`. Sweeps where memory cannot be read. From its LSN on entries are kept
  // for `to`, as far as there is room; with `holds`, whatever comes (HoldFor). FailedPrecondition:
  // the shard's record, as it is known here, does not want that copy.
  absl::StatusOr<Snapshot> BeginSnapshot(const Member& to, bool holds, Lsn above);
  // What its rows have is in the log then, as what is in the spill tier: before it is called whole.
  absl::Status KeepSnapshot();
  // Whether all entries above `lsn` are kept for `to`, and take little room. Then they stay: until
  // it has joined, its copy is off, or kHoldNsMax have passed, none is dropped, and where that
  // leaves too little room pushes here are refused for a moment (RESOURCE_EXHAUSTED).
  bool HoldFor(const Member& to, Lsn lsn);
  // Whether a snapshot of `lsn` that `from` sends in `epoch` may take the place of what is here.
  bool MayInstall(const Member& from, Epoch epoch, Lsn lsn);
  // Does not block: retries what waits (an apply that failed, the activation), lets parked pulls
  // expire.
  void Tick();
  // Refuses pushes with UNAVAILABLE from now on, or lets them in again. True: nothing that was let
  // in is on its way any more, so the rows stand at applied_lsn(). Blocks.
  bool Pause(bool paused);
  // Writes back all rows dirty now and the state, blocks until the spill tier has it in memory; the
  // LSN that it covers.
  absl::StatusOr<Lsn> Sweep();
  // Nothing is applied here before a sweep is durable (FinishReplay).
  bool wants_sweep() const { return sweep_wanted_.load(std::memory_order_acquire) != 0; }
  // `lsn`, covered by a sweep, has been flushed to disk: the log below is not needed.
  void SetDurable(Lsn lsn);
  // Of a copy that was just installed, before FinishReplay and before anybody else knows of it:
  // brings its rows into the hot tier, in order, as far as there is memory that nobody uses.
  // Blocks, for at most `ns_max`; what is not brought in comes with its first use.
  void Warm(int64_t ns_max);
  // Refuses all requests from now on. When idle() the rows can be let go by ReleaseStore, which
  // blocks.
  void Close();
  bool idle() const { return in_flight_.load(std::memory_order_acquire) == 0; }
  void ReleaseStore();

  // --- any thread
  ShardId id() const { return options_.id; }
  const TableSpec& table() const { return options_.table; }  // but for its changes
  const ShardRange& range() const { return options_.range; }
  uint32_t dim() const { return dim_; }
  bool logged() const { return options_.log != nullptr; }
  Epoch epoch() const { return epoch_.load(std::memory_order_relaxed); }
  Lsn applied_lsn() const { return applied_lsn_.load(std::memory_order_acquire); }
  Lsn durable_lsn() const { return durable_lsn_.load(std::memory_order_relaxed); }
  bool active() const { return active_.load(std::memory_order_relaxed); }
  bool wants_activation() const { return wants_activation_.load(std::memory_order_relaxed); }
  bool read_only() const { return read_only_.load(std::memory_order_relaxed); }
  uint64_t rows_pushed() const { return rows_pushed_.load(std::memory_order_relaxed); }
  bool primary() const { return primary_.load(std::memory_order_relaxed); }
  // A request waits that ExpireWaiting may have to end.
  bool has_waiting() const { return waiting_.load(std::memory_order_relaxed) != 0; }
  // Tick is wanted some ten times a second.
  bool ticks_often() const { return ticks_often_.load(std::memory_order_relaxed); }
  // Whether the record names `to` as another copy.
  bool WantsCopy(const Member& to) const;
  // What the primary, if it is here, is to tell the coordinator of other copies. One value: what
  // was true of an epoch, and told of the next one, would make members of those that lack
  // something.
  struct OthersHeard {
    Epoch epoch = 0;
    std::vector<Member> joined;  // learners in the acknowledging set
    std::vector<Member> silent;  // ShardCore::SilentMembers
  };
  OthersHeard Heard() const;
  // Not served until a restart, for damage or another error that does not pass; error() says why.
  bool refused() const { return refused_.load(std::memory_order_relaxed); }
  // Whether the coordinator has to take this copy, `self`, out of `record`, since it is refused:
  // where it is a member, and where it learns and may have been counted on in that epoch. A learner
  // of a later one gets all rows anew.
  bool CopyLost(const ShardRecord& record, const Member& self) const;
  std::string error() const;
  void SetSpilledBytes(uint64_t bytes) { spilled_bytes_.store(bytes, std::memory_order_relaxed); }
  ShardStatus Status() const;

 private:
  struct ParkedPull {
    PullWork* work;
    PullSegment* segment;
  };
  // An entry of the log that is not applied yet. `state` is null where nobody needs one: an entry
  // of the shard's own without a log.
  struct Unapplied {
    Lsn lsn;
    PushState* state;
  };
  struct Incoming;

  // A record on its way from the log's file into the rows. Owns its bytes: the reader goes on while
  // rows are fetched.
  struct ReplayItem {
    RecordHeader header;
    std::vector<uint64_t> ids;
    std::unique_ptr<uint8_t[]> gradients;
    std::vector<const uint8_t*> rows;
    std::vector<Lsn> staged;  // a commit: what it applies
    bool taken = false;       // by the core: what is left is to bring it into the rows
    absl::AnyInvocable<void()> done;
  };

  template <typename Fn>
  void RunAndWait(Fn fn);

  // On the strand from here on.
  bool PullNow(PullWork* work, PullSegment* segment);  // false: finishes later
  SegmentCode CheckPull(const PullWork& work, const PullSegment& segment, std::string* detail);
  void FillPullResult(const PullWork& work, PullSegment* segment, const absl::Status& status);
  // Of a copy that is not the primary.
  SegmentCode CheckReplicaPull(const PullWork& work, const PullSegment& segment,
                               std::string* detail) const;
  bool LeaseHolds() const;
  bool NeedsLease(const PullWork& work) const;
  Lsn LsnToSee(const PullWork& work, PullSegment* segment) const;
  bool Park(PullWork* work, PullSegment* segment, std::string* detail, SegmentCode* code);
  void RunParkedPulls();
  void PushNow(PushState* state);
  bool ParkPush(PushState* state);
  void RunParkedPushes();
  void CommitNow(PushState* state);
  // Why a push or a commit is refused before the core sees it; `detail` says it in words.
  SegmentCode RefusalNow(const PushState& state, std::string* detail) const;
  void CheckCommit(PushState* state);
  void CheckStaged(PushState* state, bool* no_room);
  void CheckPush(PushState* state);
  void DropNonFiniteRows(PushState* state);
  void Drain();
  void StartAppend(const CoreEntry& entry);
  void AfterAppend(PushState* state);
  void FillRecord(const CoreEntry& entry, PushState* state);
  // From `lsn` on what was handed to the log is no part of it.
  void CutFrom(Lsn lsn);
  void LeaveCore(PushState* state);
  void ApplyNext();
  bool ApplyCommit(const RecordHeader& header, absl::Span<const Lsn> staged,
                   absl::AnyInvocable<void(absl::Status)> done);
  void AfterApply(const absl::Status& status);
  void DeliverReply(const CoreReply& reply);
  void DeliverIfFree(PushState* state);
  void FailEverything(const absl::Status& error);
  void MaybeResume();
  void PublishState();
  void PublishReplicaState(bool served, bool wants_activation_now);
  // shard_replica.cc
  void KeepRecord(const CoreEntry& entry, PushState* state);
  void BeginKeeping();
  void EncodeUnapplied();
  void SendNow(const CoreSend& send);
  void SendAppends(const CoreSend& send);
  void TakeIncoming(Incoming* incoming);
  void TakeAppend(Incoming* incoming);
  std::string CheckRecord(const RecordHeader& header, const PushState& state) const;
  void EndGuard();
  // The entry was applied: what copies compare goes on.
  void HashApplied(const CoreEntry& entry, const PushState* state);
  void CompareHash(const ReplicaMessage& message);
  void OnVerdict(RollingHash::Verdict verdict, Lsn lsn);
  // Of a shard that is closed or refused.
  SegmentCode RefusalCode() const;
  // Whether what is here is refused, and another copy may take its place in this epoch.
  bool MayBeReplaced(Epoch epoch) const;
  void AskForCopy(const Member& from, const ReplicaMessage& message);
  // The record behind the first `taken` of the message is not taken, for `error`.
  void RefuseRecord(const Member& from, const ReplicaMessage& message, size_t taken,
                    const std::string& error);
  absl::StatusOr<SnapshotBase> SweepNow(const Member* to, bool holds);
  absl::StatusOr<SnapshotBase> TakeBase(const Member* to, bool holds);
  // Of rows that need no sweep; without rows: they do.
  absl::StatusOr<Snapshot> BeginLive(const Member& to, bool holds, Lsn above);
  // shard_copies.cc
  void TrimTail();
  void FreeTail(Lsn limit, uint64_t room);
  void Hold(const Member& to);
  bool HoldsTail();
  // shard_replay.cc
  void RunReplay();
  void EndReplayItem();
  bool ReplayNext();  // false: finishes later
  bool ApplyReplayed(const ReplayItem& item);
  bool AfterReplayed(const absl::Status& status);
  void RestoreMeta(const ShardMeta& meta);
  std::string Explain(SegmentCode code, Epoch epoch, uint64_t seq, uint64_t prev_seq,
                      uint64_t last_seq) const;
  std::string Name() const;

  const Options options_;
  const uint32_t dim_;
  const bool synchronous_;
  Strand strand_;
  TableSpec table_;  // as options_.table, with the changes learned since
  ShardCore core_;
  FetchHint fetch_hint_;  // of store_, for any thread
  std::unique_ptr<TieredStore> store_;
  absl::Status error_state_;  // not OK: refused
  bool closed_ = false;
  bool paused_ = false;
  bool applying_ = false;       // the store has an Apply in flight
  bool apply_blocked_ = false;  // the last one failed; tried again by Tick or RetryReplay
  std::deque<CoreEntry> apply_queue_;
  std::deque<Unapplied> unapplied_;  // (applied, last]
  bool keeps_records_ = false;       // tail_ gets every entry
  bool heard_told_ = false;          // heard_ names somebody
  RollingHash hash_;                 // of what was applied since keeps_records_
  Epoch hash_epoch_ = 0;             // whose primary it was compared with
  // Not all that was applied in that epoch is in hash_: as its primary, nothing is sent of it.
  Epoch hash_unseen_in_ = 0;
  std::vector<uint8_t> hash_row_;
  Lsn untaken_lsn_ = 0;  // the record that was not taken last, and how often
  int untaken_times_ = 0;
  std::vector<PushState*> parked_pushes_;
  Lsn guard_lsn_ = 0;     // rows may carry LSNs up to here; 0: none above applied_lsn()
  int64_t heard_ns_ = 0;  // from the primary, in this epoch
  StagedRows staged_;     // as of the core's last LSN
  ReplicaTail tail_;
  std::vector<TailHold> held_for_;
  std::optional<Member> live_copy_;  // for which the rows' marks of change are
  SummedRows commit_rows_;           // while a commit is applied
  std::vector<CoreEntry> append_scratch_;
  std::vector<CoreReply> reply_scratch_;
  std::vector<CoreSend> send_scratch_;
  std::vector<ParkedPull> parked_;
  std::deque<std::unique_ptr<ReplayItem>> replay_queue_;
  uint32_t appends_in_flight_ = 0;
  Epoch promise_wanted_ = 0;
  Member self_;
  absl::Mutex sweep_mu_;  // one sweep at a time

  // What other threads may read.
  std::atomic<int64_t> in_flight_{0};  // appends, applies, pulls and sweeps begun and not ended
  std::atomic<Epoch> epoch_{0};
  std::atomic<Lsn> applied_lsn_{0};
  std::atomic<Lsn> durable_lsn_{0};
  std::atomic<bool> primary_{false};
  std::atomic<bool> active_{false};
  std::atomic<bool> wants_activation_{false};
  std::atomic<bool> read_only_{false};
  std::atomic<bool> refused_{false};
  std::atomic<Epoch> refused_promise_{0};  // what was promised then
  std::atomic<Lsn> sweep_wanted_{0};       // of this LSN or a later one; 0: none
  std::atomic<uint32_t> waiting_{0};       // parked_ and parked_pushes_
  std::atomic<Lsn> commit_lsn_{0};
  std::atomic<uint64_t> tail_bytes_{0};
  std::atomic<uint64_t> spilled_bytes_{0};  // about, and a while ago
  std::atomic<uint64_t> backups_{0};
  std::atomic<bool> ticks_often_{false};
  std::atomic<uint64_t> sessions_{0};
  std::atomic<uint64_t> committed_step_{0};
  std::atomic<uint64_t> staged_bytes_{0};
  std::atomic<uint64_t> rows_pulled_{0};
  std::atomic<uint64_t> rows_pushed_{0};
  mutable absl::Mutex mu_;
  const TieredStore* stats_of_ ABSL_GUARDED_BY(mu_) = nullptr;  // store_, while it lives
  std::string error_ ABSL_GUARDED_BY(mu_);
  OthersHeard heard_ ABSL_GUARDED_BY(mu_);
  std::vector<Member> others_ ABSL_GUARDED_BY(mu_);  // members and learners of the record
};

template <typename Fn>
void Shard::RunAndWait(Fn fn) {
  absl::Notification done;
  strand_.Run([&] {
    fn();
    done.Notify();
  });
  done.WaitForNotification();
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SHARD_H_
