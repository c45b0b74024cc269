#include "server/shard/snapshot_source.h"

#include <utility>

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
    absl::Status may;
    shard_.RunAndWait([&] {
      may = shard_.serving.error();
      if (shard_.serving.closed() || shard_.store == nullptr) {
        may = absl::AbortedError(absl::StrCat(shard_.Name(), " has left this server"));
      }
      if (may.ok()) shard_.store->ReadPass(positions, rows);
    });
    return may;
  };
  const ShardOptions& options = shard_.options;
  HOTBED_ASSIGN_OR_RETURN(snapshot.rows,
                          options.tiers->ReadLive(options.Spilled(), std::move(pass)));
  return snapshot;
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
