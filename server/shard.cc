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
      strand_(options_.pool, options_.clock, options_.strand),
      core_(options_.core) {
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
  if (meta.ok()) durable_lsn_ = meta->applied_lsn;
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
  }
  strand_.Run([this, item = item.release()] {
    replay_queue_.emplace_back(item);
    RunReplay();
  });
}

void Shard::RunReplay() {
  while (!applying_ && !replay_queue_.empty()) {
    const absl::Status status = ReplayNext();
    if (!status.ok()) FailEverything(status);
    if (applying_) return;
    EndReplayItem();
  }
}

void Shard::EndReplayItem() {
  std::unique_ptr<ReplayItem> item = std::move(replay_queue_.front());
  replay_queue_.pop_front();
  if (error_state_.ok()) store_->SetAppliedLsn(core_.applied_lsn());
  item->done();
}

absl::Status Shard::ReplayNext() {
  if (!error_state_.ok()) return absl::OkStatus();
  const ReplayItem& item = *replay_queue_.front();
  const RecordHeader& header = item.header;
  CoreEntry entry;
  entry.kind = header.kind;
  entry.open = header.open;
  entry.epoch = header.epoch;
  entry.lsn = header.lsn;
  entry.session = PlantedBug("forget_sessions_on_restart") ? 0 : header.session;
  entry.incarnation = header.incarnation;
  entry.seq = header.seq;
  entry.prev_seq = header.prev_seq;
  absl::StatusOr<bool> applies = core_.Replay(entry);
  if (!applies.ok()) return applies.status();
  if (!*applies || header.kind != RecordKind::kPush || header.id_count == 0) {
    return absl::OkStatus();
  }
  if (header.dim != dim_) {
    return absl::DataLossError(absl::StrCat("log record ", header.lsn, " has rows of dim ",
                                            header.dim, ", the shard of dim ", dim_));
  }
  RowUpdates updates;
  updates.ids = item.ids.data();
  updates.count = header.id_count;
  updates.gradient_type = header.gradient_type;
  updates.gradients = item.rows.data();
  updates.scalars = header.scalars;
  updates.lsn = header.lsn;
  applying_ = true;
  if (store_->Apply(updates, [this](absl::Status status) {
        applying_ = false;
        if (!status.ok()) FailEverything(status);
        EndReplayItem();
        RunReplay();
      })) {
    applying_ = false;
  }
  return absl::OkStatus();
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
    store_->Sweep(result.lsn, core_.AppliedMeta().Serialize(), [this, &result](absl::Status s) {
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
  });
}

void Shard::FailEverything(const absl::Status& error) {
  error_state_ = error;
  apply_blocked_ = false;
  {
    absl::MutexLock lock(&mu_);
    error_ = absl::StrCat(Name(), " is not served: ", error.message());
  }
  core_.Abandon(CodeOf(error));
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
  status.applied_lsn = applied_lsn();
  status.durable_row_lsn = durable_lsn();
  status.sessions = sessions_.load(kRelaxed);
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

std::string Shard::Explain(SegmentCode code, Epoch epoch, uint64_t seq, uint64_t prev_seq,
                           uint64_t last_seq) const {
  switch (code) {
    case SegmentCode::kWrongEpoch:
      return absl::StrCat(Name(), ": epoch ", epoch, " asked for, current is ", core_.epoch(),
                          core_.primary() ? "" : ", and another server is its primary");
    case SegmentCode::kUnavailable:
      return absl::StrCat(Name(), ": epoch ", core_.epoch(), " is not active yet");
    case SegmentCode::kUnknownSession:
      return absl::StrCat(Name(), ": sequence ", seq,
                          " of a session that has not opened here; send it with the open flag");
    case SegmentCode::kFenced:
      return absl::StrCat(Name(), ": a later incarnation of this session has opened");
    case SegmentCode::kGap:
      return absl::StrCat(Name(), ": sequence ", seq, " follows ", prev_seq, ", the last here is ",
                          last_seq);
    case SegmentCode::kReadOnly:
      return absl::StrCat(Name(), ": the log takes no appends (disk full or failing); nothing of ",
                          "sequence ", seq, " was applied");
    case SegmentCode::kResourceExhausted:
      return absl::StrCat(Name(), ": ", options_.core.entries_max, " pushes wait, or ",
                          options_.core.sessions_max, " sessions are open");
    case SegmentCode::kCorrupt:
      return error();
    default:
      return absl::StrCat(Name(), ": sequence ", seq, " refused");
  }
}

}  // namespace hotbed
