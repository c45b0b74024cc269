// One shard as it lives in a server: its strand, its state machine (ShardCore), its rows (tiers)
// and its place in the log.
//
//   push: checks -> strand -> core -> log (class log) -> committed -> rows -> reply
//   pull: checks -> strand -> rows -> reply
//
// The class is the face of its parts, each of which holds one idea:
//
//   request_checks      why a request is refused
//   ServingState        whether the shard serves at all
//   WaitingRequests     pulls and pushes that wait
//   CommitPipeline      the way of an entry: log, commit, rows, reply
//   StepCommits         the steps of a synchronous table
//   LogReplay           recovery from the log
//   RecordTail          the end of the log in memory, for other replicas
//   ReplicaExchange     messages to and from other replicas
//   ReplicaComparison   are the replicas still equal
//   SnapshotSource      all rows, or those changed since: write-back, transfers, copies, readers
//   DeleteMarks         how long deletions are known
//   RowSearch           all rows for a top-k
//   RowSweep            deletes the rows that the table's life takes
//   ChangeFeed          which rows have changed lately
//   ShardGauges         what other threads may read
//
// Thread-safe: the parts are confined to the strand, and the face enters it. A push that misses the
// hot tier delays later pushes of this shard, and nothing else. The host keeps a shard alive until
// idle(), and closes it before it releases it.
#ifndef HOTBED_SERVER_SHARD_SHARD_H_
#define HOTBED_SERVER_SHARD_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/fetch_lines.h"
#include "common/ids.h"
#include "common/shared_value.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "common/threads/strand.h"
#include "server/protocol/shard_core.h"
#include "server/shard/change_feed.h"
#include "server/shard/commit_pipeline.h"
#include "server/shard/in_flight.h"
#include "server/shard/log_replay.h"
#include "server/shard/replica/record_tail.h"
#include "server/shard/replica/replica_message.h"
#include "server/shard/replica_comparison.h"
#include "server/shard/replica_exchange.h"
#include "server/shard/request/pull_gate.h"
#include "server/shard/request/push_gate.h"
#include "server/shard/request/requests.h"
#include "server/shard/row_search.h"
#include "server/shard/row_sweep.h"
#include "server/shard/serving_state.h"
#include "server/shard/shard_context.h"
#include "server/shard/shard_gauges.h"
#include "server/shard/shard_options.h"
#include "server/shard/shard_snapshot.h"
#include "server/shard/shard_status.h"
#include "server/shard/snapshot_source.h"
#include "server/shard/step_commits.h"
#include "server/shard/waiting_requests.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/fetch_hint.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

class alignas(64) Shard {
 public:
  using Options = ShardOptions;
  using OthersHeard = ReplicasHeard;

  // Opens the rows and reads the state that was stored with them. A shard that cannot be opened is
  // still made: it answers every request with the reason.
  Shard(Options options, Epoch promised);
  ~Shard();

  // --- data plane; any thread. Finish the segment, perhaps before they return.
  void Pull(PullWork* work, PullSegment* segment);
  // Answers the segment if nothing hinders, which is the usual case; the caller finishes it then.
  // False: it has to go the long way, by Pull. The work's deadline is ahead.
  bool PullAtOnce(const PullWork& work, PullSegment* segment);
  void Push(PushWork* work, PushSegment* segment);
  // As PullAtOnce, for shards without a log; Push finds the short way of the others by itself.
  bool PushAtOnce(const PushWork& work, PushSegment* segment);
  // On the strand: the push in `state`, which LogAtOnce gave to the log, is the core's from now on.
  void TakeLogged(PushState* state);
  // Bring what a segment that comes soon will touch to the cache: the shard's state, then the rows.
  // Any thread; they do not wait.
  void FetchFirst() const { FetchLines(this, kPullStateBytes); }
  void FetchState(const PullSegment& /*segment*/) const { FetchFirst(); }
  void FetchState(const PushSegment& /*segment*/) const {
    FetchFirst();
    FetchLines(&push_gate_, sizeof(push_gate_) + sizeof(store_));
    core_.FetchForPushAlone();
    gauges_.Fetch();
    if (!push_gate_.logged()) return;
    FetchLines(&options_, offsetof(ShardOptions, log) + 1);  // to the line of `log`
    FetchLines(&options_.log_full, 1);
  }
  void FetchRows(const PullSegment& segment) const {
    fetch_hint_.FetchTable();
    fetch_hint_.Fetch(segment.ids, segment.count, /*with_state=*/false);
  }
  void FetchRows(const PushSegment& segment) const {
    // The long way goes through almost every part.
    if (push_gate_.logged() && push_gate_.shut()) FetchLines(this, sizeof(*this));
    fetch_hint_.FetchForUpdate();
    if (segment.commit_step != 0) return;  // the ids are sessions
    fetch_hint_.Fetch(segment.ids, segment.count, /*with_state=*/true);
  }

  // --- recovery: between construction and FinishReplay nothing else is called. Any one thread;
  // `done` runs once the record was applied or skipped (or the shard refused), perhaps on another.
  void Replay(const RecordView& record, absl::AnyInvocable<void()> done) {
    replay_.Add(record, std::move(done));
  }
  // Does not block: tries again the record that the rows could not take (the spill tier is full,
  // say), if there is one. Until then neither its `done` nor that of later records runs.
  void RetryReplay() { replay_.Retry(); }
  // Blocks. True: the log ends below the LSNs of the rows. Either they are those of a replica that
  // had not caught up, which continues from other replicas' logs; or an unsynced tail of the log is
  // lost: if the shard becomes its own primary, it wants a write-back (wants_write_back).
  bool FinishReplay();
  // From now on every request is answered CORRUPT (DataLoss) or UNAVAILABLE with this reason;
  // UNAVAILABLE too where other replicas hold the rows. Blocks.
  void Refuse(const absl::Status& error);

  // --- control; block until done on the strand
  // The changes to the table's options (TableSpec::changes; the rest never differs). They resolve
  // later pushes; a push that is in the log keeps the options that it was resolved with.
  void LearnChanges(const std::vector<TableChange>& changes);
  // The epoch to promise durably, 0: none; then PromiseDurable. With `done` neither blocks: it runs
  // on the strand, perhaps before they return.
  Epoch LearnRecord(const Member& self, const SharedValue<ShardRecord>& record);
  void LearnRecord(const Member& self, const SharedValue<ShardRecord>& learned,
                   absl::AnyInvocable<void(Epoch promise)> done);
  void PromiseDurable(Epoch epoch);
  void PromiseDurable(Epoch epoch, absl::AnyInvocable<void()> done);

  // Where the replica's log ends, for the coordinator when all members are gone.
  struct ReplicaEnd {
    LogEnd log;
    bool behind = false;  // the rows are newer than the log: it has lost its end
    Epoch member_of = 0;  // see ShardCore::member_of
    Epoch promised = 0;
    uint64_t committed_step = 0;  // of a synchronous table
  };
  ReplicaEnd End();

  // --- other replicas; these do not block
  // An append or the answer to one; damaged records are not taken.
  void OnReplicaMessage(const Member& from, ReplicaMessage message) {
    exchange_.OnMessage(from, std::move(message));
  }
  void OnPeerLost(const Member& peer) { exchange_.OnPeerLost(peer); }
  // Answers the requests that have waited too long for an LSN, the shard's record or its
  // activation.
  void ExpireWaiting();
  // How the snapshot transfer to `to` ended.
  void EndSnapshot(const Member& to, Lsn lsn, bool installed);

  // --- snapshot transfers; block
  // See SnapshotSource::Begin.
  absl::StatusOr<Snapshot> BeginSnapshot(const Member& to, bool holds, Lsn above) {
    return snapshots_.Begin(to, holds, above);
  }
  // Makes the log hold the entries that the rows of a snapshot hold, before the snapshot counts as
  // complete.
  absl::Status KeepSnapshot();
  // Whether all entries above `lsn` are in memory for `to`, and are few. Then they stay until `to`
  // has joined or its transfer is over (RecordTail::Hold).
  bool HoldFor(const Member& to, Lsn lsn);
  // Whether a snapshot of `lsn` that `from` sends in `epoch` may replace the rows that are here.
  bool MayInstall(const Member& from, Epoch epoch, Lsn lsn);

  // --- copies into files; block
  // See SnapshotSource.
  absl::StatusOr<CopyPass> BeginCopy(bool further, Lsn above, uint64_t at_once_bytes_max) {
    return snapshots_.BeginCopy(further, above, at_once_bytes_max);
  }
  absl::StatusOr<Snapshot> StillCopy() { return snapshots_.Still(0); }
  // See PrimarySince.
  bool EndCopy(Epoch epoch);
  // True: the shard was here as its primary, in the same epoch, until now.
  bool PrimarySince(Epoch epoch);
  // Held over a copy, from its first BeginCopy to EndCopy: two at a time would take each other's
  // marks of changed rows.
  absl::Mutex* copying() { return &copying_; }

  // --- those who follow the shard; all but ReadRows and feed() block
  struct FollowFrom {
    absl::Status status;  // Unavailable: not served here now
    Epoch epoch = 0;      // of the record
    bool lost = false;    // the shard does not go on from the position: read all rows
    bool at_end = false;  // nothing has changed since
    ChangePosition applied;
  };
  // Whether the rows changed since `from` may be read here; then `opens_feed` opens the feed.
  FollowFrom BeginFollowing(const ReadPosition& from, bool opens_feed);
  ChangePosition PositionAt(Lsn lsn);  // of an entry that is applied
  ChangePosition AppliedPosition();
  // True: another server may have acknowledged pushes that this one has not heard of.
  bool MayLackPushes();
  // See SnapshotSource.
  absl::StatusOr<Snapshot> ChangedRows(Lsn above) { return snapshots_.Changed(above); }
  // Reads rows as they are now, as a pull does; `done` gets the last entry that they may contain.
  // `reads` stays until it runs, perhaps before this returns.
  using RowsDone = absl::AnyInvocable<void(absl::StatusOr<ChangePosition> seen)>;
  void ReadRows(const RowReads* reads, RowsDone done);
  ChangeFeed* feed() { return &feed_; }

  // --- marks of deleted rows; see SnapshotSource and DeleteMarks
  // For whoever reads changes: while the result lives, which is not longer than the shard, no
  // further marks go.
  std::shared_ptr<const void> HoldMarks() { return snapshots_.marks()->Hold(); }
  uint64_t CountMarks() const ABSL_LOCKS_EXCLUDED(mu_);  // at most; any thread
  // Takes those away that are neither younger than `keep_ns` nor few. Blocks.
  absl::StatusOr<uint64_t> DropMarks(int64_t keep_ns, absl::FunctionRef<absl::Status()> go_on);

  // --- top-k; see RowSearch. They block.
  absl::Status RankRows(RowRanking* ranking, RowSearch::GoOn go_on) {
    return RowSearch(&context_, &snapshots_).All(ranking, go_on);
  }
  absl::Status RankRowsAt(absl::Span<const uint64_t> positions, RowRanking* ranking,
                          RowSearch::GoOn go_on) {
    return RowSearch(&context_, &snapshots_).Only(positions, ranking, go_on);
  }

  // --- rows that come and go; null: the table keeps no touches
  RowSweep* row_sweep() { return sweep_.get(); }
  // Any thread. False: the rows have not been counted yet.
  bool EstimateRows(uint64_t* rows) const;

  // Does not block: retries an update that stalled and the activation, lets parked requests expire.
  void Tick();
  // Refuses pushes with UNAVAILABLE from now on, or accepts them again. True: every push that was
  // accepted has been applied and no row is ahead of the log, so the rows stand at applied_lsn().
  // Blocks.
  bool Pause(bool paused, PauseFor what = PauseFor::kCheckpoint);
  // The shard was cut or merged, and a record says so: refuses pushes from now on. True: every
  // entry here has been applied, no checkpoint is being kept, and none will be, so the state may be
  // handed on. Blocks.
  bool SettleForCut();
  // Whether it stands still for a cut or a merge for good.
  bool divided();
  // The parts of a cut go on with this (ShardOptions::continued). Blocks.
  ShardOptions::Continued ContinuedState();
  // Writes back all rows that are dirty now, and the state; the LSN that this covers. Blocks until
  // the spill tier has them in memory.
  absl::StatusOr<Lsn> WriteBack() { return snapshots_.WriteBack(); }
  // Nothing is applied here before a write-back of all rows is durable (FinishReplay).
  bool wants_write_back() const { return replay_.wants_write_back(); }
  // `lsn`, covered by a write-back, has been flushed to disk: the log below is not needed.
  void SetDurable(Lsn lsn);
  // See LogReplay::Warm. Blocks, for at most `ns_max`.
  void Warm(int64_t ns_max) { replay_.Warm(ns_max); }
  // Refuses all requests from now on. When idle(), ReleaseStore lets go of the rows; it blocks.
  void Close();
  bool idle() const { return in_flight_.none(); }
  void ReleaseStore();

  // --- any thread
  ShardId id() const { return options_.id; }
  const TableSpec& table() const { return options_.table; }  // without its changes
  const ShardRange& range() const { return options_.range; }
  bool installed() const { return options_.installed; }
  SpillShard spilled() const { return options_.Spilled(); }
  uint32_t dim() const { return fetch_hint_.dim(); }
  bool logged() const { return context_.logged(); }
  Epoch epoch() const { return gauges_.epoch(); }
  Lsn applied_lsn() const { return gauges_.applied_lsn(); }
  Lsn durable_lsn() const { return gauges_.durable_lsn(); }
  bool active() const { return gauges_.active(); }
  bool wants_activation() const { return gauges_.wants_activation(); }
  bool read_only() const { return gauges_.read_only(); }
  uint64_t rows_pushed() const { return gauges_.rows_pushed(); }
  bool primary() const { return gauges_.primary(); }
  // A request waits that ExpireWaiting may have to end.
  bool has_waiting() const { return waiting_.any(); }
  // Tick is wanted some ten times per second, a request waits, or there is something for the
  // coordinator.
  bool watched() const { return gauges_.watched() || has_waiting(); }
  // Whether the record names `to` as a replica.
  bool WantsSnapshot(const Member& to) const { return exchange_.Wants(to); }
  OthersHeard Heard() const { return exchange_.Heard(); }
  // Not served until a restart, for damage or another error that does not pass; error() says why.
  bool refused() const { return serving_.refused(); }
  // See ServingState::ReplicaLost.
  bool ReplicaLost(const ShardRecord& record, const Member& self) const {
    return serving_.ReplicaLost(record, self);
  }
  std::string error() const { return serving_.reason(); }
  // Its bytes in the spill tier, as of the write-back of `durable`; sized_at() is that of the last.
  void SetSpilledBytes(Lsn durable, uint64_t bytes) { gauges_.SetSpilledBytes(durable, bytes); }
  Lsn sized_at() const { return gauges_.sized_at(); }
  ShardStatus Status() const;

  // On the strand, or while nothing else happens: for the simulation's checks.
  const ShardCore& core() const { return core_; }

 private:
  // All of the shard that PullAtOnce touches: two cache lines, which end within the strand.
  static constexpr size_t kPullStateBytes = 128;

  // On the strand from here on.
  bool ReadAtOnce(const PullWork& work, PullSegment* segment);
  bool ApplyAtOnce(const PushWork& work, PushSegment* segment);
  // Whether the push may take the short way; then the core's view of it, and its scalars.
  bool MayPushAtOnce(const PushWork& work, const PushSegment& segment, CorePush* push,
                     UpdateScalars* scalars);
  // The push was applied, and nothing else has changed.
  void NotePushed(const PushWork& work, const CorePush& push, PushSegment* segment);
  bool LogAtOnce(PushWork* work, PushSegment* segment);
  void AfterLogged(PushState* state);
  // Null: the push goes on the long way; else the work whose segment it has finished.
  PushWork* ApplyLogged(PushState* state);
  bool PullNow(PullWork* work, PullSegment* segment);  // false: finishes later
  void RestartPull(PullWork* work, PullSegment* segment);
  void FillPullResult(const PullWork& work, PullSegment* segment, const absl::Status& status);
  // The LSN that the rows must have reached for the pull.
  Lsn LsnToSee(const PullWork& work, PullSegment* segment) const;
  // The rows were opened since (TieredStore::TakeReplacement).
  void TakeOpenedStore() ABSL_LOCKS_EXCLUDED(mu_);
  void PushNow(PushState* state);
  void CommitNow(PushState* state);
  void RunWaiting();
  void StampTouches(UpdateScalars* scalars) const;

  PullGate gate_;
  FetchHint fetch_hint_;  // of store_, for any thread
  Strand strand_;
  const Options options_;
  InFlight in_flight_;
  // What PushAtOnce touches beside the state of pulls: a line here, two of the core and one of the
  // gauges.
  alignas(64) PushGate push_gate_;
  std::unique_ptr<TieredStore> store_;
  ShardCore core_;
  alignas(64) ShardGauges gauges_;
  WaitingRequests waiting_;
  ServingState serving_;
  ShardContext context_;
  StepCommits steps_;
  RecordTail tail_;
  ReplicaComparison comparison_;
  LogReplay replay_;
  ReplicaExchange exchange_;
  ChangeFeed feed_;
  CommitPipeline pipeline_;
  SnapshotSource snapshots_;
  std::unique_ptr<RowSweep> sweep_;
  SharedValue<TableSpec> table_;  // the strand's: options_.table, with the changes learned since
  mutable absl::Mutex mu_;
  const TieredStore* stats_of_ ABSL_GUARDED_BY(mu_) = nullptr;  // store_, while it lives
  absl::Mutex copying_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SHARD_H_
