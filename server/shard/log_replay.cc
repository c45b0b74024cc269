#include "server/shard/log_replay.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "server/shard/record_mapping.h"
#include "server/shard/request/segment_check.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

constexpr uint64_t kWarmBlockBytes = 1ull << 20;  // read and brought in at a time

}  // namespace

// A record of the time before the shard was cut has rows of the other part too.
void LogReplay::KeepRowsInRange(Item* item) const {
  const ShardRange& range = shard_.options.range;
  const bool hashed = shard_.options.table->hashed;
  const auto count = static_cast<uint32_t>(item->ids.size());
  uint32_t kept = FirstIdOutside(item->ids.data(), count, range, hashed);
  for (uint32_t i = kept; i < count; ++i) {
    if (FirstIdOutside(&item->ids[i], 1, range, hashed) == 0) continue;
    item->ids[kept] = item->ids[i];
    item->rows[kept++] = item->rows[i];
  }
  item->ids.resize(kept);
  item->rows.resize(kept);
  item->header.id_count = kept;
}

void LogReplay::Add(const RecordView& record, absl::AnyInvocable<void()> done) {
  auto item = std::make_unique<Item>();
  item->header = record.header;
  item->done = std::move(done);
  if (ChangesRows(record.header.kind)) {
    const uint64_t row_bytes = GradientRowBytes(record.header);
    const uint32_t count = record.header.id_count;
    item->ids.assign(record.ids, record.ids + count);
    item->gradients.reset(new uint8_t[count * row_bytes]);
    std::memcpy(item->gradients.get(), record.gradients, count * row_bytes);
    item->rows.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      item->rows.push_back(item->gradients.get() + i * row_bytes);
    }
    KeepRowsInRange(item.get());
  } else if (record.header.kind == RecordKind::kStepCommit) {
    item->ids.assign(record.ids, record.ids + record.header.id_count);
  }
  shard_.strand.Run([this, item = item.release()] {
    queue_.push_back(std::unique_ptr<Item>(item));
    Run();
  });
}

void LogReplay::Retry() {
  shard_.strand.Run([this] {
    if (!shard_.serving.stalled()) return;
    shard_.serving.EndStall();
    Run();
  });
}

void LogReplay::Run() {
  while (!applying_ && !shard_.serving.stalled() && !queue_.empty()) {
    if (Next()) EndItem();
  }
}

void LogReplay::EndItem() {
  std::unique_ptr<Item> item = std::move(queue_.front());
  queue_.pop_front();
  const RecordHeader& header = item->header;
  if (item->commits) steps_.Applied(header.seq >> kStepShift, header.lsn);
  if (shard_.serving.error().ok()) shard_.store->SetAppliedLsn(shard_.core.applied_lsn());
  item->done();
}

bool LogReplay::Next() {
  if (!shard_.serving.error().ok()) return true;
  Item& item = *queue_.front();
  if (std::exchange(item.taken, true)) return Apply(item);
  const RecordHeader& header = item.header;
  CoreEntry entry{header};
  if (PlantedBug("forget_sessions_on_restart")) entry.session = 0;
  const bool commits = header.kind == RecordKind::kStepCommit;
  if (commits) item.staged = shard_.core.StagedOf(header.seq >> kStepShift, item.ids);
  const absl::StatusOr<bool> applies = shard_.core.Replay(entry);
  if (!applies.ok()) {
    shard_.serving.Refuse(applies.status());
    return true;
  }
  // A record that the rows' meta is ahead of may be one that another primary replaced since: it
  // must not touch what the meta restored.
  item.commits = *applies && commits;
  if (item.commits) return Apply(item);
  if (!*applies || !ChangesRows(header.kind)) return true;
  if (header.id_count == 0 && !header.staged) return true;
  if (header.dim != (header.kind == RecordKind::kDelete ? 0 : shard_.dim)) {
    shard_.serving.Refuse(
        absl::DataLossError(absl::StrCat("log record ", header.lsn, " has rows of dim ", header.dim,
                                         ", the shard of dim ", shard_.dim)));
    return true;
  }
  if (header.staged) {
    steps_.Stage(header, item.ids.data(), item.rows.data());
    return true;
  }
  return Apply(item);
}

bool LogReplay::Apply(const Item& item) {
  const RecordHeader& header = item.header;
  auto after = [this](absl::Status status) {
    applying_ = false;
    if (AfterApply(status)) EndItem();
    Run();
  };
  applying_ = true;
  const bool done =
      header.kind == RecordKind::kStepCommit
          ? steps_.Apply(header, item.staged, after)
          : shard_.store->Apply(UpdatesOf(header, item.ids.data(), item.rows.data()), after);
  if (done) applying_ = false;
  return done;
}

bool LogReplay::AfterApply(const absl::Status& status) {
  if (status.ok()) return true;
  if (absl::IsDataLoss(status) || IsDeviceLost(status)) {
    shard_.serving.Refuse(status);
    return true;
  }
  shard_.serving.Stall(absl::StrCat("waits to apply its log: ", status.message()));
  return false;
}

void LogReplay::Warm(int64_t ns_max) {
  if (shard_.store == nullptr || shard_.serving.refused()) return;
  bool arrived = false;
  shard_.RunAndWait([&] { arrived = shard_.store->TakeArrived(); });
  if (arrived) return;
  const ShardOptions& options = shard_.options;
  const int64_t end_ns = options.clock->NowNs() + ns_max;
  auto reader = options.tiers->ReadShard(options.Spilled(), /*above=*/0);
  absl::Status status = reader.status();
  for (bool more = status.ok(); more && options.clock->NowNs() < end_ns;) {
    const absl::StatusOr<std::string> block = (*reader)->Next(kWarmBlockBytes);
    status = block.status();
    if (!status.ok()) break;
    if (block->empty()) {
      shard_.RunAndWait([&] { shard_.store->WarmedAll(); });
      break;
    }
    shard_.RunAndWait([&] {
      const absl::StatusOr<bool> warmed = shard_.store->Warm(*block);
      status = warmed.status();
      more = warmed.ok() && *warmed;
    });
  }
  // Only a warning: the request that needs an unreadable row gets the error.
  if (!status.ok()) {
    HOTBED_LOG(Warning) << shard_.Name() << ": its rows stay where they are: " << status;
  }
}

bool LogReplay::Finish() {
  if (shard_.store == nullptr) return false;
  rows_ahead_of_log_lsn_ = shard_.store->highest_lsn();
  found_promise_ = shard_.core.promised();
  const bool ahead = rows_ahead_of_log_lsn_ > shard_.core.applied_lsn();
  if (!ahead) EndGuard();
  return ahead;
}

void LogReplay::EndGuard() {
  rows_ahead_of_log_lsn_ = 0;
  shard_.store->EndReplay();
}

// If the log reaches above the rows' LSNs, the guard stays until those entries are applied.
void LogReplay::SkipLostTail() {
  const Lsn lsn = rows_ahead_of_log_lsn_;
  if (lsn <= shard_.core.last_lsn() || !shard_.serving.error().ok()) return;
  write_back_wanted_lsn_.store(lsn, std::memory_order_release);
  shard_.core.SkipTo(lsn);
  shard_.store->SetAppliedLsn(lsn);
  EndGuard();
}

// A write-back that began before the shard wanted one does not count.
bool LogReplay::WrittenBack(Lsn lsn) {
  Lsn wanted = write_back_wanted_lsn_.load(std::memory_order_acquire);
  return wanted != 0 && lsn >= wanted && write_back_wanted_lsn_.compare_exchange_strong(wanted, 0);
}

}  // namespace hotbed
