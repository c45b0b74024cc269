// The shard host of a server: a thin face over the parts in this folder.
//
// Locks, in the order in which one thread may take them; each line may be held while those below
// are taken. No part calls another with a lock of its own held except where this list says so.
//
//   Shutdown              waits for everything that follows
//   Assignments           one change of the shard map and of the catalog at a time; held while
//                         shards' strands run, which call ReplicaOutlet
//   PromiseKeeper batch   one write of promises at a time; held while shards' strands run
//   DataDirectory         catalog, identity: held while their files are written
//   ShardDirectory, PromiseKeeper, ShardTicker, TransferRate, SnapshotSender, SnapshotReceiver,
//   HostReports, WatchedShards, TierRenewal: leaves, held for a few instructions
#include "server/host/shard_host.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/tables/shard_memory.h"
#include "common/threads/thread_pool.h"
#include "server/host/assignments.h"
#include "server/host/copy_memory.h"
#include "server/host/data_directory.h"
#include "server/host/host_budget.h"
#include "server/host/host_reports.h"
#include "server/host/mark_sweeper.h"
#include "server/host/promise_keeper.h"
#include "server/host/recovery.h"
#include "server/host/row_sweeper.h"
#include "server/host/shard_copy.h"
#include "server/host/shard_cuts.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_factory.h"
#include "server/host/shard_restorer.h"
#include "server/host/shard_ticker.h"
#include "server/host/shard_write_back.h"
#include "server/host/snapshot_installer.h"
#include "server/host/table_checkpoints.h"
#include "server/host/tier_renewal.h"
#include "server/host/transfer/snapshot_receiver.h"
#include "server/host/transfer/snapshot_sender.h"
#include "server/host/transfer/transfer_rate.h"
#include "server/host/upkeep.h"
#include "server/host/watched_shards.h"
#include "server/shard/replica/replica_budget.h"
#include "server/shard/replica/replica_outlet.h"
#include "server/shard/request/pull_latency.h"
#include "server/shard/request/segment_result.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr uint64_t kLogSegmentsMin = 8;  // segments that log_bytes_max holds at least
constexpr uint64_t kLogFullCheckMessages = 8;
constexpr uint32_t kPullsPerTimedOne = 8;
constexpr size_t kSizedPart = 5;  // one in this many shards is sized per second, where rows changed
constexpr size_t kSizedSeldom = 32;  // and the others in one of so many turns

// Every value that the options leave open.
ShardHostOptions Completed(ShardHostOptions options) {
  const HostBudget budget = CarveHostBytes(options.host_bytes);
  if (options.files == nullptr) options.files = FileSystem::Real();
  if (options.hot_bytes == 0) options.hot_bytes = budget.hot_bytes;
  if (options.staged_bytes_max == 0) options.staged_bytes_max = budget.staged_bytes;
  if (options.session_bytes_max == 0) options.session_bytes_max = budget.session_bytes;
  if (options.copy_bytes_max == 0) options.copy_bytes_max = budget.export_bytes / 3 * 2;
  if (options.replica_tail_bytes == 0) options.replica_tail_bytes = budget.replica_tail_bytes;
  return options;
}

// Segments of many shards are short: each would wait for the memory of its shard, and the kernels
// cannot prefetch rows far enough ahead in it. So the state of a shard comes to the cache while
// segments before it are worked on, and then its rows: those of the next segment, or of several
// short ones.
template <typename Work>
class SegmentPrefetch {
 public:
  explicit SegmentPrefetch(const Work& work) : work_(work) {}

  // To be called with the number of each segment, before it is worked on.
  void Before(size_t segment) {
    const size_t count = work_.segments.size();
    for (; state_ < std::min(segment + kStateAhead, count); ++state_) {
      const auto& ahead = work_.segments[state_];
      if (ahead.shard != nullptr) ahead.shard->FetchState(ahead);
    }
    if (segment > 0) ids_ -= work_.segments[segment - 1].count;
    for (; rows_ < std::min(segment + kRowsAhead, count) && (rows_ <= segment + 1 || ids_ < kIds);
         ++rows_) {
      const auto& ahead = work_.segments[rows_];
      if (ahead.shard != nullptr) ahead.shard->FetchRows(ahead);
      ids_ += ahead.count;
    }
  }

 private:
  static constexpr size_t kStateAhead = 12;  // segments
  static constexpr size_t kRowsAhead = 6;    // segments
  static constexpr uint64_t kIds = 32;

  const Work& work_;
  size_t state_ = 0;  // segments before this one are fetched
  size_t rows_ = 0;
  uint64_t ids_ = 0;  // of the present segment and those before rows_
};

class ShardHostImpl : public ShardHost, private ReplicaOutlet {
 public:
  ShardHostImpl(const ShardHostOptions& options, const Clock* clock);
  // Without Shutdown before, the data directory is left as after a kill: nothing is written back.
  ~ShardHostImpl() override;
  absl::Status Start();
  void SetGaveUp(const std::string& what) { gave_up_ = what; }

  std::shared_ptr<Shard> Find(ShardId shard) const override { return directory_.Find(shard); }
  std::shared_ptr<const void> FindAll(absl::Span<const ShardId> ids,
                                      std::vector<Shard*>* shards) const override {
    return directory_.FindAll(ids, shards);
  }
  void Pull(PullWork* work) override;
  void Push(PushWork* work) override;
  std::optional<ShardRecord> RecordOf(ShardId shard) const override {
    return directory_.RecordOf(shard);
  }

  Identity identity() const override {
    Identity identity = data_->identity();
    identity.gave_up = gave_up_;
    return identity;
  }
  absl::Status SetIdentity(const Identity& identity) override {
    return data_->SetIdentity(identity);
  }
  void SetIncarnation(Incarnation incarnation) override { data_->SetIncarnation(incarnation); }
  absl::Status ApplyAssignment(const std::vector<TableSpec>& tables,
                               const std::vector<ShardRecord>& records,
                               const std::vector<TableId>& tables_dropped) override;
  std::vector<ShardEpoch> ShardsToActivate() const override { return reports_->ShardsToActivate(); }
  void SetActivationListener(std::function<void()> listener) override {
    reports_->SetListener(std::move(listener));
  }

  void SetReplicaNetwork(ReplicaNetwork* network) override {
    network_.store(network, std::memory_order_release);
  }
  void OnReplicaMessage(const Member& from, ReplicaMessage message) override;
  void OnPeerLost(const Member& peer) override;
  std::vector<JoinReady> JoinsReady() const override { return reports_->JoinsReady(); }
  std::vector<JoinReady> SilentMembers() const override { return reports_->SilentMembers(); }
  std::vector<LostReplica> LostReplicas() const override { return reports_->LostReplicas(); }
  std::vector<HeldReplica> HeldReplicas(bool asked_for) const override {
    return reports_->HeldReplicas(asked_for);
  }
  Recollection Recollect() const override { return reports_->Recollect(); }
  void LearnServers(const std::map<ServerId, std::string>& servers) override {
    data_->LearnServers(servers);
  }
  std::string UndecidedText() const override { return reports_->UndecidedText(); }
  std::vector<TransferProgress> Transfers() const override { return sender_->Progress(); }
  void SetTransferLimits(const TransferLimits& limits) override { rate_.SetLimits(limits); }
  absl::StatusOr<CopiedShard> Copy(ShardId shard, const CopyOptions& options,
                                   RowSink* sink) override;
  absl::StatusOr<TakenRows> Take(ShardId shard, const ChangePosition& above) override;
  absl::StatusOr<Snapshot> StillRows(const std::shared_ptr<Shard>& shard) override {
    return hotbed::StillRows(shard, checkpoints_.get(), /*above=*/0);
  }
  RestoreProgress Restores(TableId table) const override { return restorer_->Progress(table); }
  absl::StatusOr<Epoch> PrepareCut(ShardId shard) override { return cuts_->Prepare(shard); }
  absl::StatusOr<MergeReady> PrepareMerge(ShardId lower, ShardId upper) override {
    return cuts_->PrepareMerge(lower, upper);
  }
  void GiveUpCut(ShardId shard) override { cuts_->GiveUp(shard); }
  std::vector<ShardId> Held() const override;
  std::vector<ShardId> PartsWanted() const override { return assignments_->PartsWanted(); }
  void LearnGivenOut(uint64_t session, const std::vector<GivenOut::TableStep>& steps) override;
  void SetLease(int64_t until_ns) override {
    replica_budget_.lease_until_ns.store(until_ns, std::memory_order_release);
  }

  HostStatus Status() const override;
  Primaries CountPrimaries() const override { return reports_->CountPrimaries(); }
  std::string DeviceError() const override { return tiers_->DeviceError(); }
  std::shared_ptr<MemoryPinner> answer_pinner() const override { return tiers_->answer_pinner(); }
  absl::Status Shutdown() override;

 private:
  // ReplicaOutlet: what shards ask for.
  void Send(ReplicaMessage message) override;
  void StartSnapshot(ShardId shard, const Member& to) override { sender_->Start(shard, to); }
  void PromiseWanted(ShardId shard, Epoch epoch) override;
  void HasNews() override { ticker_->HasNews(); }
  void Watch(ShardId shard) override { watched_.Add(shard); }
  void WaitsUntil(int64_t ns) override { ticker_->WaitsUntil(ns); }

  absl::Status OpenTiers();
  absl::Status OpenLog();
  void MakeParts(std::unique_ptr<PromiseFile> promises);
  absl::Status Recover();
  void MakeTransfers();
  std::vector<Upkeep::Chore> Chores();
  void CheckTroubles(int64_t now_ns);
  void SizeSomeShards(size_t turn);
  template <typename Segment>
  void RefuseUnknown(Segment* segment) const;
  void StopThreads();
  void CloseShards();
  absl::Status WriteAllBack();

  const ShardHostOptions options_;
  const Clock* const clock_;
  ReplicaBudget replica_budget_;
  CopyMemory copy_memory_;
  std::string gave_up_;  // what was missing, where the data was given up at the start
  std::unique_ptr<DataDirectory> data_;
  std::unique_ptr<TierHost> tiers_;
  std::unique_ptr<ShardLog> log_;
  std::unique_ptr<ThreadPool> pool_;
  ShardDirectory directory_;
  WatchedShards watched_;
  std::unique_ptr<HostReports> reports_;
  std::unique_ptr<PromiseKeeper> promises_;
  std::unique_ptr<ShardTicker> ticker_;
  std::unique_ptr<ShardWriteBack> write_back_;
  std::unique_ptr<ShardFactory> factory_;
  std::unique_ptr<Assignments> assignments_;
  std::unique_ptr<TableCheckpoints> checkpoints_;
  std::unique_ptr<ShardCuts> cuts_;
  std::unique_ptr<TierRenewal> renewal_;
  std::atomic<ReplicaNetwork*> network_{nullptr};
  TransferRate rate_;
  std::unique_ptr<SnapshotSender> sender_;
  std::unique_ptr<SnapshotInstaller> installer_;
  std::unique_ptr<SnapshotReceiver> receiver_;
  std::unique_ptr<ShardRestorer> restorer_;
  std::unique_ptr<Upkeep> upkeep_;
  std::unique_ptr<RowSweeper> sweeper_;
  std::unique_ptr<MarkSweeper> mark_sweeper_;
  PullLatency pull_latency_;
  absl::Mutex shutdown_mu_;
  std::optional<absl::Status> shut_down_
      ABSL_GUARDED_BY(shutdown_mu_);  // its result, once it ended
};

// --- opening

ShardHostImpl::ShardHostImpl(const ShardHostOptions& options, const Clock* clock)
    : options_(Completed(options)),
      clock_(clock),
      copy_memory_(options_.copy_bytes_max),
      pull_latency_(clock) {
  replica_budget_.tail_bytes_max = options_.replica_tail_bytes;
}

absl::Status ShardHostImpl::Start() {
  HOTBED_ASSIGN_OR_RETURN(data_, DataDirectory::Open(options_.data_dir, options_.files));
  HOTBED_ASSIGN_OR_RETURN(auto promises,
                          PromiseFile::Open(KeptFile(data_->PathOf("PROMISES"), options_.files,
                                                     data_->ProofOf(Marks::kPromises)),
                                            /*make=*/!data_->was_made()));
  HOTBED_RETURN_IF_ERROR(OpenLog());
  HOTBED_RETURN_IF_ERROR(OpenTiers());
  MakeParts(std::move(promises));
  HOTBED_RETURN_IF_ERROR(Recover());
  MakeTransfers();
  upkeep_ = std::make_unique<Upkeep>(Chores(), clock_);
  upkeep_->Start();
  ticker_->Start();
  sweeper_ = std::make_unique<RowSweeper>(&directory_, tiers_.get(), clock_);
  sweeper_->Start();
  mark_sweeper_ = std::make_unique<MarkSweeper>(
      &directory_, tiers_.get(), options_.keep_deletions_ms * kMillisecondNs, clock_);
  mark_sweeper_->Start();
  return absl::OkStatus();
}

absl::Status ShardHostImpl::OpenTiers() {
  TierOptions options;
  options.open_device = options_.open_device;
  options.spill_dir = data_->PathOf("spill");
  options.marks = data_->marks();
  options.run = data_->identity().run;
  options.must_exist = data_->was_made();
  const HostBudget budget = CarveHostBytes(options_.host_bytes);
  options.hot_bytes = options_.hot_bytes;
  options.shard_bytes = kShardBytes;
  options.block_cache_bytes = budget.block_cache_bytes;
  options.memtable_bytes = budget.memtable_bytes;
  options.spill_bytes_max = options_.spill_bytes_max;
  if (options_.snapshot_file_bytes_min != 0) {
    options.snapshot_file_bytes_min = options_.snapshot_file_bytes_min;
  }
  options.io_threads = std::max(1, options_.pool_threads);
  options.clock = clock_;
  HOTBED_ASSIGN_OR_RETURN(tiers_, TierHost::Open(options));
  return absl::OkStatus();
}

absl::Status ShardHostImpl::OpenLog() {
  ShardLogOptions options;
  options.dir = data_->PathOf("log");
  options.segment_bytes =
      std::min(options_.log_segment_bytes,
               std::max<uint64_t>(options_.log_bytes_max / kLogSegmentsMin, 64 << 10));
  options.sync_interval_ms = options_.log_sync_interval_ms;
  options.queue_bytes_max = CarveHostBytes(options_.host_bytes).message_bytes;
  options.rebooted = data_->rebooted();
  options.marks = data_->marks();
  options.run = data_->identity().run;
  HOTBED_ASSIGN_OR_RETURN(log_, ShardLog::Open(options, options_.files, clock_));
  const ShardLog::Usage usage = log_->GetUsage();
  if (!usage.torn_message.empty()) {
    HOTBED_LOG(Warning) << "log: " << usage.torn_bytes << " bytes cut: " << usage.torn_message;
  }
  return absl::OkStatus();
}

void ShardHostImpl::MakeParts(std::unique_ptr<PromiseFile> promises) {
  pool_ = std::make_unique<ThreadPool>("shard-pool", std::max(1, options_.pool_threads));
  reports_ = std::make_unique<HostReports>(data_.get(), &directory_, &watched_, promises.get());
  promises_ = std::make_unique<PromiseKeeper>(std::move(promises), &directory_, log_.get());
  ticker_ = std::make_unique<ShardTicker>(ShardTicker::Wiring{.directory = &directory_,
                                                              .reports = reports_.get(),
                                                              .watched = &watched_,
                                                              .promises = promises_.get(),
                                                              .log = log_.get(),
                                                              .clock = clock_});
  write_back_ = std::make_unique<ShardWriteBack>(&directory_, tiers_.get(), log_.get(),
                                                 options_.log_bytes_max);
  factory_ =
      std::make_unique<ShardFactory>(ShardFactory::Wiring{.options = &options_,
                                                          .tiers = tiers_.get(),
                                                          .log = log_.get(),
                                                          .pool = pool_.get(),
                                                          .promises = promises_.get(),
                                                          .outlet = this,
                                                          .replica_budget = &replica_budget_,
                                                          .log_full = write_back_->log_full(),
                                                          .clock = clock_});
  assignments_ = std::make_unique<Assignments>(
      Assignments::Wiring{.data = data_.get(),
                          .directory = &directory_,
                          .factory = factory_.get(),
                          .promises = promises_.get(),
                          .tiers = tiers_.get(),
                          .log = log_.get(),
                          .clock = clock_,
                          .keep_left_ns = options_.keep_left_ms * kMillisecondNs,
                          .restore = [this](const TableSpec& table, std::shared_ptr<Shard> shard) {
                            restorer_->Start(table, std::move(shard));
                          }});
  checkpoints_ = std::make_unique<TableCheckpoints>(
      TableCheckpoints::Wiring{.directory = &directory_,
                               .write_back = write_back_.get(),
                               .tiers = tiers_.get(),
                               .clock = clock_,
                               .interval_ns = options_.checkpoint_interval_ms * kMillisecondNs});
  cuts_ = std::make_unique<ShardCuts>(ShardCuts::Wiring{.directory = &directory_,
                                                        .assignments = assignments_.get(),
                                                        .write_back = write_back_.get(),
                                                        .checkpoints = checkpoints_.get(),
                                                        .clock = clock_});
  renewal_ = std::make_unique<TierRenewal>(TierRenewal::Wiring{.data = data_.get(),
                                                               .directory = &directory_,
                                                               .assignments = assignments_.get(),
                                                               .tiers = tiers_.get(),
                                                               .clock = clock_,
                                                               .has_news = [this] { HasNews(); }});
}

absl::Status ShardHostImpl::Recover() {
  Recovery recovery({.data = data_.get(),
                     .directory = &directory_,
                     .factory = factory_.get(),
                     .tiers = tiers_.get(),
                     .log = log_.get()});
  HOTBED_RETURN_IF_ERROR(recovery.Run());
  return data_->MarkRecovered();
}

void ShardHostImpl::MakeTransfers() {
  SnapshotSender::Wiring out;
  out.find = [this](ShardId shard) { return Find(shard); };
  out.send = [this](ReplicaMessage message) { Send(std::move(message)); };
  out.queued_bytes = [this](const Member& to) -> uint64_t {
    ReplicaNetwork* const network = network_.load(std::memory_order_acquire);
    return network == nullptr ? 0 : network->QueuedBytes(to);
  };
  out.rate = &rate_;
  out.clock = clock_;
  sender_ = std::make_unique<SnapshotSender>(std::move(out));
  installer_ = std::make_unique<SnapshotInstaller>(SnapshotInstaller::Wiring{
      .data = data_.get(),
      .directory = &directory_,
      .assignments = assignments_.get(),
      .factory = factory_.get(),
      .promises = promises_.get(),
      .checkpoints = checkpoints_.get(),
      .tiers = tiers_.get(),
      .log = log_.get(),
      .clock = clock_,
      .send = [this](ReplicaMessage message) { Send(std::move(message)); }});
  receiver_ = std::make_unique<SnapshotReceiver>(installer_.get(), clock_);
  restorer_ =
      std::make_unique<ShardRestorer>(ShardRestorer::Wiring{.data = data_.get(),
                                                            .directory = &directory_,
                                                            .assignments = assignments_.get(),
                                                            .installer = installer_.get(),
                                                            .checkpoints = checkpoints_.get(),
                                                            .memory = &copy_memory_,
                                                            .source = options_.restores});
}

std::vector<Upkeep::Chore> ShardHostImpl::Chores() {
  return {
      {kSecondNs,
       [this](int64_t) {
         if (const absl::Status s = write_back_->WriteBackWhereLogIsLost(); !s.ok()) {
           HOTBED_LOG_EVERY_S(Error, 10) << "write-back failed: " << s;
         }
       }},
      {kSecondNs, [this](int64_t) { receiver_->Check(); }},
      {kSecondNs, [this](int64_t now_ns) { assignments_->DropKeptLeft(now_ns); }},
      {kSecondNs, [this](int64_t) { rate_.OnSecond(pull_latency_.TakeP99()); }},
      {kSecondNs, [this](int64_t) { reports_->TellListener(); }},
      {kSecondNs, [this, turn = size_t{0}](int64_t) mutable { SizeSomeShards(turn++); }},
      {0, [this](int64_t now_ns) { CheckTroubles(now_ns); }},
      {0, [this](int64_t) { assignments_->FinishDrops(); }},
      {kSecondNs, [this](int64_t) { cuts_->FinishCuts(); }},
      {0, [this](int64_t now_ns) { write_back_->WriteBackDue(now_ns); }},
      {0, [this](int64_t now_ns) { checkpoints_->KeepWhereDue(now_ns); }},
  };
}

void ShardHostImpl::CheckTroubles(int64_t now_ns) {
  const TierHost::Health health = tiers_->GetHealth();
  ResumeWrites(log_.get(), tiers_.get(), health);
  renewal_->RenewWhereDamaged(health, now_ns);
}

// A part of the shards at a time: it costs some microseconds per shard.
void ShardHostImpl::SizeSomeShards(size_t turn) {
  const auto shards = directory_.Shards();
  const size_t round = turn / kSizedPart;
  for (size_t i = turn % kSizedPart; i < shards->size(); i += kSizedPart) {
    Shard& shard = *(*shards)[i];
    const Lsn durable = shard.durable_lsn();
    if (shard.sized_at() == durable && (i / kSizedPart + round) % kSizedSeldom != 0) continue;
    shard.SetSpilledBytes(durable, tiers_->SpilledBytes(shard.spilled()));
  }
}

// --- data plane

template <typename Segment>
void ShardHostImpl::RefuseUnknown(Segment* segment) const {
  const std::optional<ShardRecord> record = RecordOf(segment->shard_id);
  if (!record.has_value()) {
    RefuseSegment(segment, SegmentCode::kUnknownShard,
                  absl::StrCat(segment->shard_id.ToString(),
                               " is not held here; its table was dropped, or the map is stale"));
    return;
  }
  segment->result.epoch = record->epoch;
  RefuseSegment(segment, SegmentCode::kWrongEpoch,
                absl::StrCat(segment->shard_id.ToString(), ": epoch ", segment->epoch,
                             " asked for, current is ", record->epoch, " on server ",
                             record->primary.server));
}

void ShardHostImpl::Pull(PullWork* work) {
  // One more than the segments: the work ends here at the earliest, on no strand.
  work->pending.store(static_cast<int32_t>(work->segments.size()) + 1, std::memory_order_relaxed);
  thread_local uint32_t pulls = 0;
  const bool timed = pulls++ % kPullsPerTimedOne == 0;
  work->latency = timed ? &pull_latency_ : nullptr;
  if (timed) work->begun_ns = pull_latency_.NowNs();
  const bool late = work->deadline_ns != 0 && clock_->NowNs() >= work->deadline_ns;
  SegmentPrefetch<PullWork> prefetch(*work);
  int32_t finished = 1;
  for (size_t i = 0; i < work->segments.size(); ++i) {
    PullSegment& segment = work->segments[i];
    prefetch.Before(i);
    if (segment.shard == nullptr) {
      RefuseUnknown(&segment);
      ++finished;
    } else if (!late && segment.shard->PullAtOnce(*work, &segment)) {
      ++finished;
    } else {
      segment.shard->Pull(work, &segment);
    }
  }
  FinishSegments(work, finished);
}

void ShardHostImpl::Push(PushWork* work) {
  work->pending.store(static_cast<int32_t>(work->segments.size()) + 1, std::memory_order_relaxed);
  work->now_ns = clock_->NowNs();
  const bool late = work->deadline_ns != 0 && work->now_ns >= work->deadline_ns;
  SegmentPrefetch<PushWork> prefetch(*work);
  int32_t finished = 1;
  for (size_t i = 0; i < work->segments.size(); ++i) {
    PushSegment& segment = work->segments[i];
    prefetch.Before(i);
    if (segment.shard == nullptr) {
      RefuseUnknown(&segment);
      ++finished;
    } else if (!late && segment.shard->PushAtOnce(*work, &segment)) {
      ++finished;
    } else {
      segment.shard->Push(work, &segment);
    }
  }
  // Everything that this message appended goes out in one write.
  log_->Commit();
  // The upkeep may be in a long write-back just when the limit is reached.
  thread_local uint64_t messages = 0;
  if (messages++ % kLogFullCheckMessages == 0) write_back_->NoteLogFull();
  FinishSegments(work, finished);
}

// --- control

absl::Status ShardHostImpl::ApplyAssignment(const std::vector<TableSpec>& tables,
                                            const std::vector<ShardRecord>& records,
                                            const std::vector<TableId>& tables_dropped) {
  HOTBED_RETURN_IF_ERROR(assignments_->Apply(tables, records, tables_dropped));
  HOTBED_RETURN_IF_ERROR(write_back_->WriteBackWhereLogIsLost());
  reports_->TellListener();
  return absl::OkStatus();
}

absl::StatusOr<CopiedShard> ShardHostImpl::Copy(ShardId id, const CopyOptions& options,
                                                RowSink* sink) {
  const std::shared_ptr<Shard> shard = Find(id);
  if (shard == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(id.ToString(), " is not held here"));
  }
  HOTBED_ASSIGN_OR_RETURN(const CopyMemory::Share share,
                          copy_memory_.Take(kCopyBytes + options.sink_bytes, options.wanted));
  if (options.writes_back_first) HOTBED_RETURN_IF_ERROR(shard->WriteBack().status());
  HOTBED_ASSIGN_OR_RETURN(CopiedShard copied,
                          CopyChanges(shard, options.above, checkpoints_.get(), sink));
  copied.range = shard->range();
  return copied;
}

absl::StatusOr<TakenRows> ShardHostImpl::Take(ShardId id, const ChangePosition& above) {
  const std::shared_ptr<Shard> shard = Find(id);
  if (shard == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(id.ToString(), " is not held here"));
  }
  return TakeRowsOf(shard, above, checkpoints_.get());
}

std::vector<ShardId> ShardHostImpl::Held() const {
  const std::shared_ptr<const Catalog> catalog = data_->catalog();  // it may be replaced meanwhile
  std::vector<ShardId> held;
  held.reserve(catalog->shards.size());
  for (const auto& [shard, range] : catalog->shards) held.push_back(shard);
  return held;
}

// --- other replicas

void ShardHostImpl::OnReplicaMessage(const Member& from, ReplicaMessage message) {
  using Kind = ReplicaMessage::Kind;
  if (!(message.to == data_->self())) return;  // to an earlier incarnation
  switch (message.kind) {
    case Kind::kAppend:
    case Kind::kAppendReply: {
      const bool more = message.more;
      const std::shared_ptr<Shard> shard = Find(message.shard);
      if (shard != nullptr) {
        shard->OnReplicaMessage(from, std::move(message));
      } else if (message.kind == Kind::kAppend && receiver_->in_flight() > 0) {
        receiver_->OnMessage(from, std::move(message));
      }
      if (!more) log_->Commit();
      return;
    }
    case Kind::kSnapshotBegin:
    case Kind::kSnapshotRows:
    case Kind::kSnapshotEnd:
      return receiver_->OnMessage(from, std::move(message));
    case Kind::kSnapshotReply:
      return sender_->OnReply(from, message);
    case Kind::kNone:
      return;
  }
}

void ShardHostImpl::OnPeerLost(const Member& peer) {
  const auto map = directory_.Hold();
  for (const auto& [id, entry] : *map) {
    if (entry.shard != nullptr && entry.record->Holds(peer)) entry.shard->OnPeerLost(peer);
  }
  sender_->OnPeerLost(peer);
  receiver_->OnPeerLost(peer);
}

void ShardHostImpl::LearnGivenOut(uint64_t session, const std::vector<GivenOut::TableStep>& steps) {
  if (!replica_budget_.given.Learn(session, steps)) return;
  const auto shards = directory_.Shards();
  for (const auto& shard : *shards) {
    if (shard->has_waiting()) shard->ExpireWaiting();
  }
}

void ShardHostImpl::Send(ReplicaMessage message) {
  ReplicaNetwork* const network = network_.load(std::memory_order_acquire);
  if (network != nullptr) network->Send(std::move(message));
}

void ShardHostImpl::PromiseWanted(ShardId shard, Epoch epoch) {
  promises_->Want(shard, epoch);
  ticker_->Wake();
}

// --- status

HostStatus ShardHostImpl::Status() const {
  HostStatus status;
  StatusNumbers& numbers = status.numbers;
  numbers.Add("host_bytes_limit", "hotbed_server_host_limit_bytes", "The memory budget.",
              options_.host_bytes);
  tiers_->AddNumbers(&numbers);
  renewal_->AddNumbers(&numbers);
  log_->AddNumbers(&numbers);
  factory_->AddNumbers(&numbers);
  copy_memory_.AddNumbers(&numbers);
  checkpoints_->AddNumbers(&numbers);
  cuts_->AddNumbers(&numbers);
  replica_budget_.AddNumbers(&numbers);
  sender_->AddNumbers(&numbers);
  receiver_->AddNumbers(&numbers);
  rate_.AddNumbers(&numbers);
  status.device = tiers_->DeviceName();
  tiers_->AddDeviceNumbers(&status.device_numbers);
  status.device_error = tiers_->DeviceError();
  const ShardLog::Usage log = log_->GetUsage();
  numbers.Add("data_given_up", "hotbed_server_data_given_up",
              "1 if this start gave up the server's data, by --adopt-incomplete.",
              gave_up_.empty() ? 0 : 1);
  const TierHost::Health tiers = tiers_->GetHealth();
  status.read_only = log.read_only || !tiers.background_error.empty();
  status.read_only_reason = log.read_only ? log.error : tiers.background_error;
  if (const std::string trouble = renewal_->trouble(); tiers.damaged && !trouble.empty()) {
    absl::StrAppend(&status.read_only_reason, "; ", trouble);
  }
  if (const absl::StatusOr<uint64_t> free = data_->FreeBytes(); free.ok()) {
    const uint64_t spilled = numbers["spill_bytes"];
    const uint64_t left =
        options_.spill_bytes_max == 0
            ? *free
            : options_.spill_bytes_max - std::min(options_.spill_bytes_max, spilled);
    status.free_bytes = std::min(*free, left);
  }
  const auto shards = directory_.Shards();
  status.shards.reserve(shards->size());
  for (const auto& shard : *shards) status.shards.push_back(shard->Status());
  return status;
}

// --- the end

void ShardHostImpl::StopThreads() {
  if (sweeper_ != nullptr) sweeper_->Stop();
  if (mark_sweeper_ != nullptr) mark_sweeper_->Stop();
  if (upkeep_ != nullptr) upkeep_->Stop();
  if (sender_ != nullptr) sender_->Stop();
  if (receiver_ != nullptr) receiver_->Stop();
  if (restorer_ != nullptr) restorer_->Stop();
  if (ticker_ != nullptr) ticker_->Stop();
  network_.store(nullptr, std::memory_order_release);
}

void ShardHostImpl::CloseShards() {
  const auto shards = directory_.Shards();
  for (const auto& shard : *shards) shard->Close();
  log_->Commit();
}

absl::Status ShardHostImpl::Shutdown() {
  absl::MutexLock lock(&shutdown_mu_);
  if (!shut_down_.has_value()) shut_down_ = WriteAllBack();
  return *shut_down_;
}

// Class checkpoint first: should the process be killed before the end, their checkpoint is there,
// and the other tables have their log.
absl::Status ShardHostImpl::WriteAllBack() {
  StopThreads();
  assignments_->Close();
  CloseShards();
  const ShardsByClass shards = SplitByClass(*directory_.Shards());
  const absl::Status kept = checkpoints_->KeepLast(shards.checkpointed);
  HOTBED_RETURN_IF_ERROR(AwaitIdle(shards.logged, clock_));
  ShardList whole;
  for (const auto& shard : shards.logged) {
    if (shard->error().empty()) whole.push_back(shard);
  }
  // Rows lost with a failed device are all in the log, even for a shard that discovers the failure
  // only now.
  const absl::Status written = write_back_->WriteBack(whole);
  const bool device_lost = absl::IsAborted(written) && !DeviceError().empty();
  if (!device_lost) HOTBED_RETURN_IF_ERROR(written);
  HOTBED_RETURN_IF_ERROR(log_->Sync());
  HOTBED_RETURN_IF_ERROR(kept);  // unmarked, the next start goes back to the last checkpoint
  return data_->MarkClean();
}

ShardHostImpl::~ShardHostImpl() {
  StopThreads();
  if (pool_ == nullptr) return;
  if (assignments_ != nullptr) assignments_->Close();
  CloseShards();
  const ShardList shards = *directory_.Shards();
  if (const absl::Status idle = AwaitIdle(shards, clock_); !idle.ok()) HOTBED_LOG(Error) << idle;
  for (const auto& shard : shards) shard->ReleaseStore();
  if (assignments_ != nullptr) assignments_->ReleaseDropping();
  receiver_.reset();
  restorer_.reset();
  installer_.reset();  // its row writers end before the tiers
  // Each may still run what the one before it left on a strand; a strand commits to the log when
  // its queue is empty.
  tiers_.reset();
  pool_.reset();
  log_.reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardHost>> ShardHost::Open(const ShardHostOptions& options,
                                                           const Clock* clock) {
  auto host = std::make_unique<ShardHostImpl>(options, clock);
  const absl::Status started = host->Start();
  if (started.ok()) return host;
  if (!absl::IsDataLoss(started)) return started;
  if (!options.adopt_incomplete) {
    return absl::DataLossError(
        absl::StrCat(started.message(),
                     ". Put back what is missing; or look what can be read with 'hotbed "
                     "salvage ",
                     options.data_dir,
                     "'; or, if other servers have replicas, start with --adopt-incomplete, "
                     "which gives up this server's data"));
  }
  host.reset();
  HOTBED_ASSIGN_OR_RETURN(const std::string aside,
                          DataDirectory::GiveUp(options.data_dir, Completed(options).files));
  HOTBED_LOG(Error) << "--adopt-incomplete: the data of this server is given up and moved to "
                    << aside << ", because " << started.message();
  host = std::make_unique<ShardHostImpl>(options, clock);
  HOTBED_RETURN_IF_ERROR(host->Start());
  host->SetGaveUp(std::string(started.message()));
  return host;
}

uint32_t ShardHost::DimOf(const Shard& shard) { return shard.dim(); }

const std::string& ShardHost::TableNameOf(const Shard& shard) { return shard.table().name; }

bool ShardHost::IsHashed(const Shard& shard) { return shard.table().hashed; }

}  // namespace hotbed
