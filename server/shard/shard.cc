// Opening, recovery, control and status of a shard. Its data plane is in shard_requests.cc.
#include "server/shard/shard.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "server/shard/request_checks.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {

Shard::Shard(Options options, Epoch promised)
    : gate_(options.range, options.table->hashed),
      fetch_hint_(options.range.column_limit - options.range.column_first),
      strand_(options.pool, options.clock, options.strand),
      options_(std::move(options)),
      push_gate_(options_.log != nullptr),
      core_(options_.core),
      waiting_(
          &options_, &core_, &in_flight_,
          [this](PullWork* work, PullSegment* segment) { RestartPull(work, segment); },
          [this](PushState* state) { PushNow(state); }),
      serving_(&options_, &core_, &waiting_, &gate_, &push_gate_),
      context_{options_, core_, strand_,    in_flight_,        serving_,
               gauges_,  gate_, push_gate_, fetch_hint_.dim(), IsSynchronous(options_.table)},
      steps_(&context_),
      tail_(&core_, options_.replica_budget, options_.clock),
      comparison_(&context_),
      replay_(&context_, &steps_),
      exchange_(&context_, &tail_, &comparison_, &replay_, &pipeline_),
      feed_(options_.change_memory),
      pipeline_(&context_,
                {&waiting_, &steps_, &tail_, &replay_, &comparison_, &exchange_, &feed_}),
      snapshots_(&context_, &steps_, &tail_, &pipeline_),
      sweep_(options_.table->optimizer.touches ? std::make_unique<RowSweep>(&context_, &pipeline_)
                                               : nullptr),
      table_(options_.table) {
  push_gate_.SetTable(table_);
  TierHost::ShardParams params;
  params.table = options_.table;
  params.shard = options_.id;
  params.range = options_.range;
  params.executor = &strand_;
  params.hint = &fetch_hint_;
  // Rows are written back only when the log holds them: after a crash no row is ahead of its log.
  if (logged()) params.before_write_back = [log = options_.log](Lsn) { return log->Sync(); };
  auto store = options_.tiers->OpenShard(std::move(params));
  if (!store.ok()) {
    serving_.Refuse(store.status());
    core_.Recover(promised, ShardMeta());
    return;
  }
  store_ = *std::move(store);
  context_.store = store_.get();
  {
    absl::MutexLock lock(&mu_);
    stats_of_ = store_.get();
  }
  absl::StatusOr<ShardMeta> meta = ShardMeta::Parse(store_->meta());
  absl::Status restored = meta.status();
  if (meta.ok()) {
    gauges_.SetDurable(options_.continued.has_value() ? options_.continued->durable_lsn
                                                      : meta->applied_lsn);
    restored = steps_.Restore(*meta);
    restored.Update(store_->RestoreTouchFilter(meta->touch_filter));
    meta->touch_filter.clear();
    snapshots_.marks()->Restore(*meta);
  }
  if (!restored.ok()) serving_.Refuse(restored);
  if (meta.ok() && PlantedBug("forget_sessions_on_restart")) meta->sessions = SessionTable();
  core_.Recover(promised, meta.ok() ? *std::move(meta) : ShardMeta(), options_.installed);
  if (options_.continued.has_value()) core_.ContinueAnother(options_.continued->proven);
  store_->SetAppliedLsn(core_.applied_lsn());
  if (!PlantedBug("row_lsn_guard_off")) store_->BeginReplay();
  pipeline_.Publish();
}

Shard::~Shard() {
  static_assert(sizeof(PullGate) + sizeof(FetchHint) + 2 * sizeof(void*) <= kPullStateBytes,
                "the state of the strand follows");
  static_assert(sizeof(push_gate_) + sizeof(store_) <= 64, "one cache line");
  store_.reset();  // before the parts that its last work may name
}

// --- control

bool Shard::FinishReplay() {
  bool ahead = false;
  context_.RunAndWait([&] {
    ahead = replay_.Finish();
    if (ahead && !options_.installed) core_.LostTail();
    if (store_ != nullptr) pipeline_.Publish();
  });
  return ahead;
}

void Shard::Refuse(const absl::Status& error) {
  context_.RunAndWait([&] {
    serving_.Refuse(error);
    pipeline_.Drain();
  });
}

void Shard::LearnChanges(const std::vector<TableChange>& changes) {
  MemoryShare share;
  context_.RunAndWait([&] {
    TableSpec changed = table_;
    changed.changes = changes;
    table_ = std::move(changed);
    push_gate_.SetTable(table_);
    share = MemoryShareOf(table_);
    if (sweep_ != nullptr) sweep_->SetLife(LifeOf(table_));
    if (store_ != nullptr) pipeline_.Publish();  // pushes at once may not suffice any more
  });
  options_.tiers->SetMemoryShare(options_.id.table, share.min, share.max);
}

Epoch Shard::LearnRecord(const Member& self, const SharedValue<ShardRecord>& record) {
  absl::Notification done;
  Epoch promise = 0;
  LearnRecord(self, record, [&](Epoch wanted) {
    promise = wanted;
    done.Notify();
  });
  done.WaitForNotification();
  return promise;
}

void Shard::LearnRecord(const Member& self, const SharedValue<ShardRecord>& learned,
                        absl::AnyInvocable<void(Epoch promise)> done) {
  context_.Post([this, self, learned, done = std::move(done)]() mutable {
    const ShardRecord& record = learned;
    exchange_.BeginEpoch(record.epoch);
    // An old record may arrive late: of an epoch before this replica was made again as a learner.
    const bool old = record.epoch < std::max(core_.epoch(), core_.promised());
    if (record.primary == self && !old) replay_.SkipLostTail();
    core_.SetSelf(self);
    core_.LearnRecord(learned);
    exchange_.SetRecord(core_.shared_record());
    pipeline_.KeepRecordsIfFollowed();
    pipeline_.Drain();
    RunWaiting();
    // The map of shards has it by now: it may have been watched, and forgotten, before.
    if (gauges_.watched() && options_.outlet != nullptr) options_.outlet->Watch(options_.id);
    done(pipeline_.promise_wanted());
  });
}

Shard::ReplicaEnd Shard::End() {
  ReplicaEnd end;
  context_.RunAndWait([&] {
    end.log = core_.log_end();
    end.behind = replay_.rows_ahead_of_log_lsn() > end.log.lsn;
    end.member_of = core_.member_of();
    end.promised = core_.promised();
    end.committed_step = core_.committed_step();
  });
  return end;
}

void Shard::PromiseDurable(Epoch epoch) {
  absl::Notification done;
  PromiseDurable(epoch, [&done] { done.Notify(); });
  done.WaitForNotification();
}

void Shard::PromiseDurable(Epoch epoch, absl::AnyInvocable<void()> done) {
  context_.Post([this, epoch, done = std::move(done)]() mutable {
    pipeline_.PromiseKept(epoch);
    core_.PromiseDurable(epoch);
    pipeline_.KeepRecordsIfFollowed();
    pipeline_.Drain();
    waiting_.RunPushes();
    done();
  });
}

void Shard::ExpireWaiting() {
  context_.Post([this] { RunWaiting(); });
}

void Shard::RunWaiting() {
  waiting_.RunPulls();
  waiting_.RunPushes();
}

void Shard::Tick() {
  context_.Post([this] {
    TakeOpenedStore();
    serving_.EndStall();
    pipeline_.ResumeLog();
    RunWaiting();
    core_.SetNow(options_.clock->NowNs());
    core_.Tick();
    pipeline_.Drain();
  });
}

void Shard::TakeOpenedStore() {
  if (store_ == nullptr) return;
  std::unique_ptr<TieredStore> opened;
  absl::MutexLock lock(&mu_);  // no Stats in between
  opened = store_->TakeReplacement();
  if (opened == nullptr) return;
  store_.swap(opened);
  context_.store = store_.get();
  stats_of_ = store_.get();
}

bool Shard::Pause(bool paused, PauseFor what) {
  bool settled = false;
  context_.RunAndWait([&] {
    serving_.SetPaused(what, paused);
    if (store_ != nullptr) pipeline_.Publish();
    settled = core_.applied_lsn() == core_.last_lsn() && !pipeline_.applying() &&
              replay_.rows_ahead_of_log_lsn() == 0;
    // Its rows may be in the hands of its parts by now.
    if (what == PauseFor::kCheckpoint) settled = settled && !serving_.paused(PauseFor::kDivision);
  });
  return settled;
}

bool Shard::SettleForCut() {
  bool settled = false;
  context_.RunAndWait([&] {
    serving_.SetPaused(PauseFor::kCut, true);
    core_.CommitForCut();
    pipeline_.Drain();
    settled = core_.applied_lsn() == core_.last_lsn() && !pipeline_.applying() &&
              !serving_.paused(PauseFor::kCheckpoint);
    if (settled) serving_.SetPaused(PauseFor::kDivision, true);
  });
  return settled;
}

bool Shard::divided() {
  bool divided = false;
  context_.RunAndWait([&] { divided = serving_.paused(PauseFor::kDivision); });
  return divided;
}

ShardOptions::Continued Shard::ContinuedState() {
  ShardOptions::Continued state;
  context_.RunAndWait([&] { state.proven = !core_.unproven(); });
  state.durable_lsn = durable_lsn();
  return state;
}

void Shard::SetDurable(Lsn lsn) {
  gauges_.SetDurable(lsn);
  if (logged()) options_.log->SetLeastNeeded(options_.id, lsn + 1);
  if (replay_.WrittenBack(lsn)) context_.RunAndWait([this] { pipeline_.Publish(); });
}

void Shard::Close() {
  context_.RunAndWait([this] {
    serving_.Close();
    core_.Abandon(SegmentCode::kUnavailable);
    RunWaiting();
    pipeline_.Drain();
    pipeline_.Close();
    tail_.Clear();
    feed_.Close();
  });
}

void Shard::ReleaseStore() {
  // The shard was idle a moment ago. A write-back may have begun since, and without the rows its
  // end would never be told.
  absl::MutexLock none_writes_back(snapshots_.writing_back());
  context_.RunAndWait([this] {
    {
      absl::MutexLock lock(&mu_);
      stats_of_ = nullptr;
    }
    context_.store = nullptr;
    store_.reset();
    steps_.Clear();
    tail_.Clear();
  });
}

// --- snapshot transfers

void Shard::EndSnapshot(const Member& to, Lsn lsn, bool installed) {
  context_.Post([this, to, lsn, installed] { snapshots_.End(to, lsn, installed); });
}

absl::Status Shard::KeepSnapshot() { return logged() ? options_.log->Sync() : absl::OkStatus(); }

bool Shard::HoldFor(const Member& to, Lsn lsn) {
  bool held = false;
  context_.RunAndWait([&] { held = tail_.HoldIfSmall(to, lsn); });
  return held;
}

bool Shard::EndCopy(Epoch epoch) {
  context_.RunAndWait([&] { snapshots_.EndCopy(); });
  return PrimarySince(epoch);
}

bool Shard::PrimarySince(Epoch epoch) {
  bool still_here = false;
  context_.RunAndWait(
      [&] { still_here = !serving_.closed() && core_.primary() && core_.epoch() == epoch; });
  return still_here;
}

// --- those who follow the shard

Shard::FollowFrom Shard::BeginFollowing(const ReadPosition& from, bool opens_feed) {
  FollowFrom begin;
  context_.RunAndWait([&] {
    const Lsn applied = core_.applied_lsn();
    if (serving_.closed() || !serving_.error().ok() || !core_.primary() || !core_.active() ||
        applied < std::max(core_.inherited_lsn(), replay_.rows_ahead_of_log_lsn())) {
      begin.status = absl::UnavailableError(
          absl::StrCat(options_.Name(), ": its primary is another server, or not ready yet"));
      return;
    }
    begin.epoch = core_.epoch();
    const auto here = [this](const ChangePosition& place) {
      return place.lsn == 0 || (place.epoch != 0 && core_.AppliedEpochAt(place.lsn) == place.epoch);
    };
    const bool marks_gone =
        from.through.lsn != 0 && from.through.lsn < snapshots_.marks()->gone_through();
    begin.lost = !here(from.through) || !here(from.seen) || marks_gone;
    begin.at_end = !begin.lost && from.through.lsn == applied;
    begin.applied = {core_.AppliedEpochAt(applied), applied};
    if (opens_feed && !begin.lost) {
      push_gate_.NoteFollowed();
      feed_.Open(begin.applied, options_.clock->NowNs());
    }
  });
  return begin;
}

ChangePosition Shard::PositionAt(Lsn lsn) {
  ChangePosition position;
  context_.RunAndWait([&] { position = {core_.AppliedEpochAt(lsn), lsn}; });
  return position;
}

ChangePosition Shard::AppliedPosition() {
  ChangePosition position;
  context_.RunAndWait([&] {
    position.lsn = core_.applied_lsn();
    position.epoch = core_.AppliedEpochAt(position.lsn);
  });
  return position;
}

bool Shard::MayLackPushes() {
  const ReplicaBudget* const budget = options_.replica_budget;
  if (budget != nullptr &&
      options_.clock->NowNs() < budget->lease_until_ns.load(std::memory_order_acquire)) {
    return false;
  }
  bool may = true;
  context_.RunAndWait([&] { may = serving_.closed() || !core_.primary() || LacksLease(context_); });
  return may;
}

void Shard::ReadRows(const RowReads* reads, RowsDone done) {
  context_.Post([this, reads, done = std::move(done)]() mutable {
    absl::Status may = serving_.error();
    if (may.ok() && (serving_.closed() || store_ == nullptr)) {
      may = absl::UnavailableError(absl::StrCat(options_.Name(), " has left this server"));
    }
    if (!may.ok()) return done(may);
    auto end = [this, done = std::move(done)](const absl::Status& status) mutable {
      const Lsn applied = core_.applied_lsn();
      if (!status.ok()) return done(status);
      done(ChangePosition{core_.AppliedEpochAt(applied), applied});
    };
    auto shared = std::make_shared<decltype(end)>(std::move(end));
    InFlight::Token running = in_flight_.Begin();
    if (!store_->Pull(*reads, [this, shared](const absl::Status& status) {
          InFlight::Token adopted = in_flight_.Adopt();
          (*shared)(status);
          adopted.End();
        })) {
      return running.Detach();
    }
    (*shared)(absl::OkStatus());
    running.End();
  });
}

bool Shard::MayInstall(const Member& from, Epoch epoch, Lsn lsn) {
  bool may = false;
  context_.RunAndWait([&] {
    if (serving_.closed() || !(core_.record().primary == from)) return;
    may = refused() ? serving_.MayBeReplaced(epoch) : core_.MayInstall(epoch, lsn);
  });
  return may;
}

// --- marks of deleted rows

namespace {

// So many marks stay in any case, and beyond that as many as there are rows.
constexpr uint64_t kMarksMin = 65536;

}  // namespace

uint64_t Shard::CountMarks() const {
  absl::MutexLock lock(&mu_);
  return stats_of_ == nullptr ? 0 : snapshots_.marks()->Count(stats_of_->Stats().rows_deleted);
}

absl::StatusOr<uint64_t> Shard::DropMarks(int64_t keep_ns,
                                          absl::FunctionRef<absl::Status()> go_on) {
  DeleteMarks::Moment moment;
  moment.now_ns = options_.clock->NowNs();
  moment.applied = applied_lsn();
  uint64_t rows = 0;
  {
    absl::MutexLock lock(&mu_);
    if (stats_of_ == nullptr) return 0;
    const StoreStats stats = stats_of_->Stats();
    moment.deleted = stats.rows_deleted;
    rows = stats.rows_resident;
  }
  if (snapshots_.marks()->Count(moment.deleted) == 0) return 0;
  const SpillShard shard = options_.Spilled();
  rows = std::max(rows, options_.tiers->SpilledBytes(shard) / shard.record_bytes());
  return snapshots_.DropMarks({keep_ns, std::max(rows, kMarksMin)}, moment, go_on);
}

// --- status

bool Shard::EstimateRows(uint64_t* rows) const {
  absl::MutexLock lock(&mu_);
  return stats_of_ != nullptr && sweep_ != nullptr && sweep_->Estimate(stats_of_->Stats(), rows);
}

ShardStatus Shard::Status() const {
  ShardStatus status;
  status.shard = options_.id;
  status.table = options_.table->name;
  status.error = error();
  status.refused = refused();
  gauges_.Read(&status);
  absl::MutexLock lock(&mu_);
  if (stats_of_ == nullptr) return status;
  status.store = stats_of_->Stats();
  status.delete_marks = snapshots_.marks()->Count(status.store.rows_deleted);
  if (sweep_ != nullptr) {
    status.rows_counted = sweep_->Estimate(status.store, &status.rows);
    status.rows_expired = sweep_->expired();
    status.rows_evicted = sweep_->evicted();
  }
  status.bytes =
      std::max(status.store.hot_bytes + status.store.device_bytes, gauges_.spilled_bytes());
  return status;
}

}  // namespace hotbed
