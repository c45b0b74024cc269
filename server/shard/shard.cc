// Opening, recovery, control and status of a shard. The data plane is in shard_pull.cc and
// shard_push.cc.
#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/segment_result.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {

Shard::Shard(Options options, Epoch promised)
    : options_(std::move(options)),
      dim_(options_.range.column_limit - options_.range.column_first),
      synchronous_(IsSynchronous(options_.table)),
      strand_(options_.pool, options_.clock, options_.strand),
      table_(options_.table),
      core_(options_.core),
      staged_(options_.staged_bytes),
      tail_(options_.outlet == nullptr ? nullptr : &options_.replica_budget->tail_bytes) {
  TierHost::ShardParams params;
  params.table = options_.table;
  params.shard = options_.id;
  params.range = options_.range;
  params.executor = &strand_;
  params.hint = &fetch_hint_;
  // The log holds what was completed, and rows hold only that (DECISIONS L3).
  if (logged()) params.before_write_back = [log = options_.log](Lsn) { return log->Sync(); };
  auto store = options_.tiers->OpenShard(std::move(params));
  if (!store.ok()) {
    FailEverything(store.status());
    core_.Recover(promised, ShardMeta());
    return;
  }
  store_ = *std::move(store);
  {
    absl::MutexLock lock(&mu_);
    stats_of_ = store_.get();
  }
  absl::StatusOr<ShardMeta> meta = ShardMeta::Parse(store_->meta());
  if (!meta.ok()) FailEverything(meta.status());
  if (meta.ok()) RestoreMeta(*meta);
  if (meta.ok() && PlantedBug("forget_sessions_on_restart")) meta->sessions = SessionTable();
  core_.Recover(promised, meta.ok() ? *std::move(meta) : ShardMeta(), options_.installed);
  store_->SetAppliedLsn(core_.applied_lsn());
  if (!PlantedBug("row_lsn_guard_off")) store_->BeginReplay();
  PublishState();
}

Shard::~Shard() = default;

// --- control

void Shard::Refuse(const absl::Status& error) {
  RunAndWait([this, &error] {
    FailEverything(error);
    Drain();
  });
}

void Shard::LearnChanges(const std::vector<TableChange>& changes) {
  RunAndWait([&] { table_.changes = changes; });
}

Epoch Shard::LearnRecord(const Member& self, const ShardRecord& record) {
  absl::Notification done;
  Epoch promise = 0;
  LearnRecord(self, record, [&](Epoch wanted) {
    promise = wanted;
    done.Notify();
  });
  done.WaitForNotification();
  return promise;
}

void Shard::LearnRecord(const Member& self, const ShardRecord& record,
                        absl::AnyInvocable<void(Epoch promise)> done) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  strand_.Run([this, self, record, done = std::move(done)]() mutable {
    if (record.epoch > core_.epoch()) heard_ns_ = 0;
    if (guard_lsn_ > core_.last_lsn() && record.primary == self && error_state_.ok()) {
      // Nobody has what is lost: the log goes on above all that the rows may carry. (Where the log
      // reaches so far, the guard stays until what it has is applied.)
      sweep_wanted_.store(guard_lsn_, std::memory_order_release);
      core_.SkipTo(guard_lsn_);
      store_->SetAppliedLsn(guard_lsn_);
      EndGuard();
    }
    self_ = self;
    core_.SetSelf(self);
    core_.LearnRecord(record);
    {
      absl::MutexLock lock(&mu_);
      others_ = core_.record().members;
      others_.insert(others_.end(), core_.record().learners.begin(), core_.record().learners.end());
    }
    if (!keeps_records_ && options_.outlet != nullptr && core_.has_followers()) BeginKeeping();
    Drain();
    RunParkedPulls();
    RunParkedPushes();
    done(promise_wanted_);
    in_flight_.fetch_sub(1, std::memory_order_release);
  });
}

void Shard::PromiseDurable(Epoch epoch) {
  absl::Notification done;
  PromiseDurable(epoch, [&done] { done.Notify(); });
  done.WaitForNotification();
}

void Shard::PromiseDurable(Epoch epoch, absl::AnyInvocable<void()> done) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  strand_.Run([this, epoch, done = std::move(done)]() mutable {
    if (promise_wanted_ <= epoch) promise_wanted_ = 0;
    core_.PromiseDurable(epoch);
    if (!keeps_records_ && options_.outlet != nullptr && core_.has_followers()) BeginKeeping();
    Drain();
    RunParkedPushes();
    done();
    in_flight_.fetch_sub(1, std::memory_order_release);
  });
}

void Shard::Tick() {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  strand_.Run([this] {
    if (apply_blocked_) {
      apply_blocked_ = false;
      absl::MutexLock lock(&mu_);
      error_.clear();
    }
    MaybeResume();
    RunParkedPulls();
    RunParkedPushes();
    core_.SetNow(options_.clock->NowNs());
    core_.Tick();
    Drain();
    in_flight_.fetch_sub(1, std::memory_order_release);
  });
}

bool Shard::Pause(bool paused) {
  bool settled = false;
  RunAndWait([&] {
    paused_ = paused;
    settled = core_.applied_lsn() == core_.last_lsn() && !applying_;
  });
  return settled;
}

absl::StatusOr<Lsn> Shard::Sweep() {
  absl::StatusOr<SnapshotBase> swept = SweepNow(nullptr, false);
  if (!swept.ok()) return swept.status();
  return swept->lsn;
}

absl::StatusOr<SnapshotBase> Shard::SweepNow(const Member* to, bool holds) {
  struct Result {
    absl::Notification done;
    absl::Status status;
    SnapshotBase base;
  } result;
  absl::MutexLock one_at_a_time(&sweep_mu_);
  strand_.Run([this, to, holds, &result] {
    absl::StatusOr<SnapshotBase> base = TakeBase(to, holds);
    result.status = base.status();
    if (!base.ok()) return result.done.Notify();
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    result.base = *std::move(base);
    store_->Sweep(result.base.lsn, result.base.meta, [this, &result](absl::Status s) {
      result.status = std::move(s);
      in_flight_.fetch_sub(1, std::memory_order_release);
      result.done.Notify();
    });
    Drain();
  });
  result.done.WaitForNotification();
  if (!result.status.ok()) return result.status;
  return std::move(result.base);
}

absl::StatusOr<SnapshotBase> Shard::TakeBase(const Member* to, bool holds) {
  if (store_ == nullptr || !error_state_.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(Name(), " is not served"));
  }
  if (to != nullptr && (closed_ || !core_.primary())) {
    return absl::FailedPreconditionError(
        absl::StrCat(Name(), ": its primary is another server by now"));
  }
  SnapshotBase base;
  base.epoch = core_.epoch();
  base.lsn = core_.applied_lsn();
  if (to != nullptr) core_.SnapshotTaken(*to, base.lsn);
  if (holds) Hold(*to);
  ShardMeta meta = core_.AppliedMeta();  // with what is staged: the log need not be kept
  for (StagedPush& push : meta.staged) push.payload = staged_.Serialize(push.lsn);
  base.meta = meta.Serialize();
  return base;
}

void Shard::SetDurable(Lsn lsn) {
  durable_lsn_.store(lsn, std::memory_order_relaxed);
  if (logged()) options_.log->SetLeastNeeded(options_.id, lsn + 1);
  // One that began before the shard wanted it does not count.
  Lsn wanted = sweep_wanted_.load(std::memory_order_acquire);
  if (wanted == 0 || lsn < wanted || !sweep_wanted_.compare_exchange_strong(wanted, 0)) return;
  RunAndWait([this] { PublishState(); });
}

void Shard::Close() {
  RunAndWait([this] {
    closed_ = true;
    core_.Abandon(SegmentCode::kUnavailable);
    RunParkedPulls();
    RunParkedPushes();
    Drain();
    // What other copies have to say about these will not be heard here; its log has them, and its
    // next life asks.
    CutFrom(core_.commit_lsn() + 1);
    tail_.Clear();
  });
}

void Shard::ReleaseStore() {
  RunAndWait([this] {
    {
      absl::MutexLock lock(&mu_);
      stats_of_ = nullptr;
    }
    store_.reset();
    staged_.Clear();
    tail_.Clear();
  });
}

void Shard::FailEverything(const absl::Status& error) {
  error_state_ = error;
  apply_blocked_ = false;
  refused_promise_.store(core_.promised(), std::memory_order_relaxed);
  refused_.store(true, std::memory_order_relaxed);
  {
    absl::MutexLock lock(&mu_);
    error_ = absl::StrCat(Name(), " is not served: ", error.message());
  }
  // What was let in may be in the log already, and a repaired shard may apply it: its senders must
  // not take it for failed.
  core_.Abandon(SegmentCode::kUnavailable);
  RunParkedPulls();
  RunParkedPushes();
}

// Where others have copies the shard goes on with them in a moment: senders are to come again.
SegmentCode Shard::RefusalCode() const {
  const std::vector<Member>& members = core_.record().members;
  const bool others = std::any_of(members.begin(), members.end(),
                                  [this](const Member& member) { return !(member == self_); });
  return closed_ || others ? SegmentCode::kUnavailable : CodeOf(error_state_);
}

void Shard::MaybeResume() {
  if (core_.read_only() && appends_in_flight_ == 0 && !options_.log->GetUsage().read_only) {
    core_.Resume();
  }
}

// --- status

void Shard::PublishState() {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const bool served = error_state_.ok() && !closed_;
  epoch_.store(core_.epoch(), kRelaxed);
  primary_.store(core_.primary(), kRelaxed);
  active_.store(served && core_.active(), kRelaxed);
  const bool wants_activation = served && core_.wants_activation() && !wants_sweep();
  const bool news = wants_activation && !wants_activation_.load(kRelaxed);
  wants_activation_.store(wants_activation, kRelaxed);
  read_only_.store(core_.read_only(), kRelaxed);
  sessions_.store(core_.session_count(), kRelaxed);
  committed_step_.store(core_.committed_step(), kRelaxed);
  staged_bytes_.store(staged_.bytes(), kRelaxed);
  applied_lsn_.store(core_.applied_lsn(), std::memory_order_release);
  if (options_.outlet != nullptr) PublishReplicaState(served, news);
}

std::string Shard::error() const {
  absl::MutexLock lock(&mu_);
  return error_;
}

ShardStatus Shard::Status() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  ShardStatus status;
  status.shard = options_.id;
  status.table = options_.table.name;
  status.epoch = epoch();
  status.active = active();
  status.read_only = read_only();
  status.error = error();
  status.refused = refused();
  status.applied_lsn = applied_lsn();
  status.durable_row_lsn = durable_lsn();
  status.sessions = sessions_.load(kRelaxed);
  status.committed_step = committed_step_.load(kRelaxed);
  status.staged_bytes = staged_bytes_.load(kRelaxed);
  status.rows_pulled = rows_pulled_.load(kRelaxed);
  status.rows_pushed = rows_pushed_.load(kRelaxed);
  status.primary = primary();
  status.copies = backups_.load(kRelaxed);
  status.commit_lsn = commit_lsn_.load(kRelaxed);
  status.tail_bytes = tail_bytes_.load(kRelaxed);
  absl::MutexLock lock(&mu_);
  if (stats_of_ == nullptr) return status;
  const StoreStats stats = stats_of_->Stats();
  status.rows_resident = stats.rows_resident;
  status.hot_bytes = stats.hot_bytes;
  status.device_rows = stats.device_rows;
  status.device_bytes = stats.device_bytes;
  status.device_hits = stats.device_hits;
  status.bytes = std::max(stats.hot_bytes + stats.device_bytes, spilled_bytes_.load(kRelaxed));
  status.hot_hits = stats.hits;
  status.hot_misses = stats.misses;
  status.evictions = stats.evictions;
  status.writebacks = stats.writebacks;
  return status;
}

std::string Shard::Name() const {
  return absl::StrCat("table ", options_.table.name, ", ", options_.id.ToString());
}

}  // namespace hotbed
