#include "server/shard/snapshot_source.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/status_macros.h"

namespace hotbed {

absl::StatusOr<Lsn> SnapshotSource::WriteBack() {
  HOTBED_ASSIGN_OR_RETURN(const SnapshotBase base, WriteBackFor(nullptr, false));
  return base.lsn;
}

absl::StatusOr<Snapshot> SnapshotSource::Begin(const Member& to, bool holds, Lsn above) {
  HOTBED_ASSIGN_OR_RETURN(Snapshot live, BeginFromMemory(to, holds, above));
  if (live.rows != nullptr) return live;
  // The rows that are dirty now take the longest, and no entry need be kept for `to` meanwhile.
  if (absl::StatusOr<Lsn> written = WriteBack(); !written.ok()) return written.status();
  Snapshot snapshot;
  HOTBED_ASSIGN_OR_RETURN(snapshot.base, WriteBackFor(&to, holds));
  const ShardOptions& options = shard_.options;
  HOTBED_ASSIGN_OR_RETURN(snapshot.rows, options.tiers->ReadShard(options.Spilled(), above));
  HOTBED_RETURN_IF_ERROR(CheckMarks(above));
  return snapshot;
}

absl::StatusOr<Snapshot> SnapshotSource::BeginFromMemory(const Member& to, bool holds, Lsn above) {
  LivePass pass;
  pass.above = above;
  bool begun = false;
  absl::StatusOr<SnapshotBase> base = SnapshotBase();
  shard_.RunAndWait([&] {
    const bool mine = from_memory_to_ == to;
    if (shard_.store == nullptr || (!mine && (from_memory_to_.has_value() || above != 0))) return;
    begun = shard_.store->BeginPass(/*further=*/above != 0, &pass.positions);
    from_memory_to_ = begun ? std::optional<Member>(to) : std::nullopt;
    if (begun) base = TakeBase(&to, holds);
    pipeline_.Drain();
  });
  HOTBED_RETURN_IF_ERROR(base.status());
  Snapshot snapshot;
  if (!begun) return snapshot;
  snapshot.base = *std::move(base);
  pass.read = [this](absl::Span<const uint64_t> positions, LiveRows* rows) {
    return ReadPass(positions, rows);
  };
  const ShardOptions& options = shard_.options;
  HOTBED_ASSIGN_OR_RETURN(snapshot.rows,
                          options.tiers->ReadLive(options.Spilled(), std::move(pass)));
  HOTBED_RETURN_IF_ERROR(CheckMarks(above));
  return snapshot;
}

absl::Status SnapshotSource::ReadPass(absl::Span<const uint64_t> positions, LiveRows* rows) {
  absl::Status may;
  shard_.RunAndWait([&] {
    may = shard_.serving.error();
    if (shard_.serving.closed() || shard_.store == nullptr) {
      may = absl::AbortedError(absl::StrCat(shard_.Name(), " has left this server"));
    }
    if (may.ok()) shard_.store->ReadPass(positions, rows);
  });
  return may;
}

// --- copies

namespace {

// The rows of a pass that were read in one task, for the windows of a reader.
struct RowsRead {
  std::vector<uint64_t> positions;  // ascending
  LiveRows rows;

  void Answer(absl::Span<const uint64_t> window, uint64_t record_bytes, LiveRows* out) const {
    const auto first =
        std::lower_bound(positions.begin(), positions.end(), window.empty() ? 0 : window.front());
    const size_t at = static_cast<size_t>(first - positions.begin());
    out->all = rows.all;
    out->found.assign(rows.found.begin() + at, rows.found.begin() + at + window.size());
    out->records.assign(rows.records.begin() + at * record_bytes,
                        rows.records.begin() + (at + window.size()) * record_bytes);
  }
};

void SortAndUnique(std::vector<uint64_t>* positions) {
  std::sort(positions->begin(), positions->end());
  positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
}

}  // namespace

absl::StatusOr<CopyPass> SnapshotSource::BeginCopy(bool further, Lsn above,
                                                   uint64_t at_once_bytes_max) {
  const ShardOptions& options = shard_.options;
  const uint64_t record_bytes = options.Spilled().record_bytes();
  CopyPass copy;
  LivePass pass;
  pass.above = above;
  auto read = std::make_shared<RowsRead>();
  absl::StatusOr<SnapshotBase> base = SnapshotBase();
  absl::Status opened;
  bool begun = false;
  shard_.RunAndWait([&] {
    base = TakeBase(nullptr, /*holds=*/false);
    if (!base.ok()) return;
    const bool free = further ? from_memory_to_ == kFile : !from_memory_to_.has_value();
    begun = free && shard_.store->BeginPass(further, &pass.positions);
    if (!begun) return;
    from_memory_to_ = kFile;
    copy.at_once = pass.positions.size() * record_bytes <= at_once_bytes_max;
    if (!copy.at_once) return;
    SortAndUnique(&pass.positions);
    read->positions = pass.positions;
    shard_.store->ReadPass(read->positions, &read->rows);
    pass.at_once = true;
    pass.read = [read, record_bytes](absl::Span<const uint64_t> window, LiveRows* rows) {
      read->Answer(window, record_bytes, rows);
      return absl::OkStatus();
    };
    auto rows = options.tiers->ReadLive(options.Spilled(), std::move(pass));
    opened = rows.status();
    if (rows.ok()) copy.rows = *std::move(rows);
  });
  HOTBED_RETURN_IF_ERROR(base.status());
  HOTBED_RETURN_IF_ERROR(opened);
  copy.base = *std::move(base);
  if (!begun || copy.at_once) return copy;
  pass.read = [this](absl::Span<const uint64_t> positions, LiveRows* rows) {
    return ReadPass(positions, rows);
  };
  HOTBED_ASSIGN_OR_RETURN(copy.rows, options.tiers->ReadLive(options.Spilled(), std::move(pass)));
  return copy;
}

void SnapshotSource::EndCopy() {
  if (from_memory_to_ == kFile) from_memory_to_.reset();
}

absl::StatusOr<Snapshot> SnapshotSource::Changed(Lsn above) {
  // The rows that are dirty now take the longest; the base is to be close to the changes.
  if (absl::StatusOr<Lsn> written = WriteBack(); !written.ok()) return written.status();
  return Still(above);
}

absl::StatusOr<Snapshot> SnapshotSource::Still(Lsn above) {
  Snapshot snapshot;
  HOTBED_ASSIGN_OR_RETURN(snapshot.base, WriteBackFor(nullptr, false));
  const ShardOptions& options = shard_.options;
  HOTBED_ASSIGN_OR_RETURN(snapshot.rows, options.tiers->ReadShard(options.Spilled(), above));
  // The rows are as of now, and marks go only after gone_through() says so.
  HOTBED_RETURN_IF_ERROR(CheckMarks(above));
  return snapshot;
}

// --- marks of deleted rows

absl::Status SnapshotSource::CheckMarks(Lsn above) const {
  if (above == 0 || above >= marks_.gone_through()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(shard_.Name(), ": which rows were deleted since LSN ",
                                         above, " is not known any more, but ", "since ",
                                         marks_.gone_through(), "; read all rows"));
}

absl::StatusOr<uint64_t> SnapshotSource::DropMarks(const DeleteMarks::Rule& rule,
                                                   const DeleteMarks::Moment& now,
                                                   absl::FunctionRef<absl::Status()> go_on) {
  const Lsn through = marks_.Due(rule, now);
  if (through == 0) return 0;
  const auto usable = [this] {
    return shard_.store != nullptr && !shard_.serving.closed() && shard_.serving.error().ok();
  };
  bool begins = false;
  InFlight::Token running;  // until it ends, no other rows come in place of these
  shard_.RunAndWait([&] {
    begins = usable() && !marks_.held();
    if (!begins) return;
    running = shard_.in_flight.Begin();
    marks_.SetGone(through);
  });
  if (!begins) return 0;
  // All rows are written back before marks go, so that the log is not replayed over rows without
  // marks.
  if (absl::StatusOr<Lsn> written = WriteBack(); !written.ok()) return written.status();
  const uint64_t before = marks_.Count(now.deleted);
  HOTBED_ASSIGN_OR_RETURN(
      const uint64_t left,
      shard_.options.tiers->DropMarks(shard_.options.Spilled(), through, [&]() -> absl::Status {
        bool goes_on = false;
        shard_.RunAndWait([&] { goes_on = usable(); });
        if (goes_on) return go_on();
        return absl::AbortedError(absl::StrCat(shard_.Name(), " has left this server"));
      }));
  marks_.SetLeft(left, now.deleted);
  return before - std::min(before, left);
}

absl::StatusOr<SnapshotBase> SnapshotSource::WriteBackFor(const Member* to, bool holds) {
  struct Result {
    absl::Notification done;
    absl::Status status;
    SnapshotBase base;
  } result;
  absl::MutexLock one_at_a_time(&write_back_mu_);
  shard_.strand.Run([this, to, holds, &result] {
    absl::StatusOr<SnapshotBase> base = TakeBase(to, holds);
    result.status = base.status();
    if (!base.ok()) return result.done.Notify();
    result.base = *std::move(base);
    shard_.store->WriteBackAll(
        result.base.lsn, result.base.meta,
        [&result, running = shard_.in_flight.Begin()](absl::Status status) mutable {
          result.status = std::move(status);
          running.End();
          result.done.Notify();
        });
    pipeline_.Drain();
  });
  result.done.WaitForNotification();
  if (!result.status.ok()) return result.status;
  return std::move(result.base);
}

absl::StatusOr<SnapshotBase> SnapshotSource::TakeBase(const Member* to, bool holds) {
  ShardCore& core = shard_.core;
  if (shard_.store == nullptr || !shard_.serving.error().ok()) {
    return absl::FailedPreconditionError(absl::StrCat(shard_.Name(), " is not served"));
  }
  if (to != nullptr && (shard_.serving.closed() || !core.primary())) {
    return absl::FailedPreconditionError(
        absl::StrCat(shard_.Name(), ": its primary is another server by now"));
  }
  SnapshotBase base;
  base.epoch = core.epoch();
  base.lsn = core.applied_lsn();
  if (to != nullptr) core.SnapshotTaken(*to, base.lsn);
  if (holds) tail_.Hold(*to);
  ShardMeta meta = core.AppliedMeta();
  steps_.Save(&meta);  // staged pushes too: the log need not be kept for them
  meta.touch_filter = shard_.store->SaveTouchFilter();
  marks_.Save(shard_.store->Stats().rows_deleted, &meta);
  base.meta = meta.Serialize();
  return base;
}

void SnapshotSource::End(const Member& to, Lsn lsn, bool installed) {
  if (shard_.serving.closed()) return;
  shard_.core.SnapshotDone(to, lsn, installed);
  if (from_memory_to_ == to) from_memory_to_.reset();
  if (!installed) tail_.EndHold(to);
  pipeline_.Drain();
}

}  // namespace hotbed
