// Opening, recovery, control and status of a shard. The data plane is in shard_pull.cc and
// shard_push.cc.
#include "server/shard.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/segment_result.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {

Shard::Shard(Options options, Epoch promised)
    : options_(std::move(options)),
      dim_(options_.range.column_limit - options_.range.column_first),
      synchronous_(IsSynchronous(options_.table)),
      strand_(options_.pool, options_.clock, options_.strand),
      table_(options_.table),
      core_(options_.core),
      staged_(options_.staged_bytes) {
  TierHost::ShardParams params;
  params.table = options_.table;
  params.shard = options_.id;
  params.range = options_.range;
  params.executor = &strand_;
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
  core_.Recover(promised, meta.ok() ? *std::move(meta) : ShardMeta());
  store_->SetAppliedLsn(core_.applied_lsn());
  if (!PlantedBug("row_lsn_guard_off")) store_->BeginReplay();
  PublishState();
}

Shard::~Shard() = default;

template <typename Fn>
void Shard::RunAndWait(Fn fn) {
  absl::Notification done;
  strand_.Run([&] {
    fn();
    done.Notify();
  });
  done.WaitForNotification();
}

// --- recovery

// A record on its way from the log's file into the rows. Owns its bytes: the reader goes on while
// rows are fetched.
struct Shard::ReplayItem {
  RecordHeader header;
  std::vector<uint64_t> ids;
  std::unique_ptr<uint8_t[]> gradients;
  std::vector<const uint8_t*> rows;
  std::vector<Lsn> staged;  // a commit: what it applies
  bool taken = false;       // by the core: what is left is to bring it into the rows
  absl::AnyInvocable<void()> done;
};

void Shard::Replay(const RecordView& record, absl::AnyInvocable<void()> done) {
  auto item = std::make_unique<ReplayItem>();
  item->header = record.header;
  item->done = std::move(done);
  if (record.header.kind == RecordKind::kPush) {
    const uint64_t row_bytes = RowWireBytes(record.header.gradient_type, record.header.dim);
    const uint32_t count = record.header.id_count;
    item->ids.assign(record.ids, record.ids + count);
    item->gradients.reset(new uint8_t[count * row_bytes]);
    std::memcpy(item->gradients.get(), record.gradients, count * row_bytes);
    item->rows.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      item->rows.push_back(item->gradients.get() + i * row_bytes);
    }
  } else if (record.header.kind == RecordKind::kStepCommit) {
    item->ids.assign(record.ids, record.ids + record.header.id_count);
  }
  strand_.Run([this, item = item.release()] {
    replay_queue_.emplace_back(item);
    RunReplay();
  });
}

void Shard::RetryReplay() {
  strand_.Run([this] {
    if (!apply_blocked_) return;
    apply_blocked_ = false;
    {
      absl::MutexLock lock(&mu_);
      error_.clear();
    }
    RunReplay();
  });
}

void Shard::RunReplay() {
  while (!applying_ && !apply_blocked_ && !replay_queue_.empty()) {
    if (ReplayNext()) EndReplayItem();
  }
}

void Shard::EndReplayItem() {
  std::unique_ptr<ReplayItem> item = std::move(replay_queue_.front());
  replay_queue_.pop_front();
  const RecordHeader& h = item->header;
  if (h.kind == RecordKind::kStepCommit) staged_.DropThrough(h.scalars.step, h.lsn);
  if (error_state_.ok()) store_->SetAppliedLsn(core_.applied_lsn());
  item->done();
}

bool Shard::ReplayNext() {
  if (!error_state_.ok()) return true;
  ReplayItem& item = *replay_queue_.front();
  if (std::exchange(item.taken, true)) return ApplyReplayed(item);
  const RecordHeader& header = item.header;
  CoreEntry entry;
  entry.kind = header.kind;
  entry.open = header.open;
  entry.staged = header.staged;
  entry.epoch = header.epoch;
  entry.lsn = header.lsn;
  entry.session = PlantedBug("forget_sessions_on_restart") ? 0 : header.session;
  entry.incarnation = header.incarnation;
  entry.seq = header.seq;
  entry.prev_seq = header.prev_seq;
  const bool commits = header.kind == RecordKind::kStepCommit;
  if (commits) item.staged = core_.StagedOf(header.scalars.step, item.ids);
  absl::StatusOr<bool> applies = core_.Replay(entry);
  if (!applies.ok()) {
    FailEverything(applies.status());
    return true;
  }
  if (*applies && commits) return ApplyReplayed(item);
  if (!*applies || header.kind != RecordKind::kPush || header.id_count == 0) return true;
  if (header.dim != dim_) {
    FailEverything(absl::DataLossError(absl::StrCat("log record ", header.lsn, " has rows of dim ",
                                                    header.dim, ", the shard of dim ", dim_)));
    return true;
  }
  if (header.staged) {
    staged_.Add(header, item.ids.data(), item.rows.data());
    return true;
  }
  return ApplyReplayed(item);
}

bool Shard::ApplyReplayed(const ReplayItem& item) {
  const RecordHeader& header = item.header;
  auto after = [this](absl::Status status) {
    applying_ = false;
    if (AfterReplayed(status)) EndReplayItem();
    RunReplay();
  };
  applying_ = true;
  if (header.kind == RecordKind::kStepCommit) {
    if (!ApplyCommit(header, item.staged, after)) return false;
    applying_ = false;
    return true;
  }
  RowUpdates updates;
  updates.ids = item.ids.data();
  updates.count = header.id_count;
  updates.gradient_type = header.gradient_type;
  updates.gradients = item.rows.data();
  updates.scalars = header.scalars;
  updates.assign = header.assign;
  updates.lsn = header.lsn;
  if (!store_->Apply(updates, after)) return false;
  applying_ = false;
  return true;
}

// What passes (no room in the spill tier) is waited for: the record is in the log, and a shard that
// lacked it would have lost what it acknowledged.
bool Shard::AfterReplayed(const absl::Status& status) {
  if (status.ok()) return true;
  if (status.code() == absl::StatusCode::kDataLoss) {
    FailEverything(status);
    return true;
  }
  apply_blocked_ = true;
  absl::MutexLock lock(&mu_);
  error_ = absl::StrCat(Name(), ": waits to apply its log: ", status.message());
  return false;
}

bool Shard::FinishReplay() {
  bool behind = false;
  RunAndWait([this, &behind] {
    if (store_ == nullptr) return;
    store_->EndReplay();
    behind = store_->highest_lsn() > core_.applied_lsn();
    core_.SkipTo(store_->highest_lsn());
    store_->SetAppliedLsn(core_.applied_lsn());
    PublishState();
  });
  return behind;
}

void Shard::Refuse(const absl::Status& error) {
  RunAndWait([this, &error] {
    FailEverything(error);
    Drain();
  });
}

// --- control

void Shard::LearnChanges(const std::vector<TableChange>& changes) {
  RunAndWait([&] { table_.changes = changes; });
}

Epoch Shard::LearnRecord(const Member& self, const ShardRecord& record) {
  Epoch promise = 0;
  RunAndWait([&] {
    core_.SetSelf(self);
    core_.LearnRecord(record);
    Drain();
    promise = promise_wanted_;
  });
  return promise;
}

void Shard::PromiseDurable(Epoch epoch) {
  RunAndWait([this, epoch] {
    if (promise_wanted_ <= epoch) promise_wanted_ = 0;
    core_.PromiseDurable(epoch);
    Drain();
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
  struct Result {
    absl::Notification done;
    absl::Status status;
    Lsn lsn = 0;
  } result;
  strand_.Run([this, &result] {
    if (store_ == nullptr || !error_state_.ok()) {
      result.status = absl::FailedPreconditionError(absl::StrCat(Name(), " is not served"));
      result.done.Notify();
      return;
    }
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    result.lsn = core_.applied_lsn();
    ShardMeta meta = core_.AppliedMeta();  // with what is staged: the log need not be kept
    for (StagedPush& push : meta.staged) push.payload = staged_.Serialize(push.lsn);
    store_->Sweep(result.lsn, meta.Serialize(), [this, &result](absl::Status s) {
      result.status = std::move(s);
      in_flight_.fetch_sub(1, std::memory_order_release);
      result.done.Notify();
    });
  });
  result.done.WaitForNotification();
  if (!result.status.ok()) return result.status;
  return result.lsn;
}

void Shard::SetDurable(Lsn lsn) {
  durable_lsn_.store(lsn, std::memory_order_relaxed);
  if (logged()) options_.log->SetLeastNeeded(options_.id, lsn + 1);
}

void Shard::Close() {
  RunAndWait([this] {
    closed_ = true;
    core_.Abandon(SegmentCode::kUnavailable);
    RunParkedPulls();
    Drain();
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
  });
}

void Shard::FailEverything(const absl::Status& error) {
  error_state_ = error;
  apply_blocked_ = false;
  refused_.store(true, std::memory_order_relaxed);
  {
    absl::MutexLock lock(&mu_);
    error_ = absl::StrCat(Name(), " is not served: ", error.message());
  }
  // What was let in may be in the log already, and a repaired shard may apply it: its senders must
  // not take it for failed.
  core_.Abandon(SegmentCode::kUnavailable);
  RunParkedPulls();
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
  wants_activation_.store(served && core_.wants_activation(), kRelaxed);
  read_only_.store(core_.read_only(), kRelaxed);
  sessions_.store(core_.session_count(), kRelaxed);
  committed_step_.store(core_.committed_step(), kRelaxed);
  staged_bytes_.store(staged_.bytes(), kRelaxed);
  applied_lsn_.store(core_.applied_lsn(), std::memory_order_release);
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
  absl::MutexLock lock(&mu_);
  if (stats_of_ == nullptr) return status;
  const StoreStats stats = stats_of_->Stats();
  status.rows_resident = stats.rows_resident;
  status.hot_bytes = stats.hot_bytes;
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
