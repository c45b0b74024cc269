// Recovery of a shard: the records of its log, brought into the rows.
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "server/shard/shard.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

constexpr uint64_t kWarmBlockBytes = 1ull << 20;  // read and brought in at a time

}  // namespace

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
  if (absl::IsDataLoss(status) || IsDeviceLost(status)) {
    FailEverything(status);
    return true;
  }
  apply_blocked_ = true;
  absl::MutexLock lock(&mu_);
  error_ = absl::StrCat(Name(), ": waits to apply its log: ", status.message());
  return false;
}

void Shard::Warm(int64_t ns_max) {
  if (store_ == nullptr || refused()) return;
  const int64_t end_ns = options_.clock->NowNs() + ns_max;
  auto reader = options_.tiers->ReadShard(options_.table, options_.range, options_.id, /*above=*/0);
  absl::Status status = reader.status();
  for (bool more = status.ok(); more && options_.clock->NowNs() < end_ns;) {
    const absl::StatusOr<std::string> block = (*reader)->Next(kWarmBlockBytes);
    status = block.status();
    if (!status.ok()) break;
    if (block->empty()) {
      RunAndWait([&] { store_->WarmedAll(); });
      break;
    }
    RunAndWait([&] {
      const absl::StatusOr<bool> warmed = store_->Warm(*block);
      status = warmed.status();
      more = warmed.ok() && *warmed;
    });
  }
  // Whoever needs the row that cannot be read is told.
  if (!status.ok()) HOTBED_LOG(Warning) << Name() << ": its rows stay where they are: " << status;
}

bool Shard::FinishReplay() {
  bool behind = false;
  RunAndWait([this, &behind] {
    if (store_ == nullptr) return;
    guard_lsn_ = store_->highest_lsn();
    behind = guard_lsn_ > core_.applied_lsn();
    if (!behind) EndGuard();
    PublishState();
  });
  return behind;
}

// The log has passed all that the rows carry: they are as of applied_lsn() from now on.
void Shard::EndGuard() {
  guard_lsn_ = 0;
  store_->EndReplay();
}

}  // namespace hotbed
