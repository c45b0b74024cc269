#include "server/host/shard_restorer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "server/protocol/session_table.h"

namespace hotbed {
namespace {

// The rows come as one entry of the log, the first; the shard's pushes follow it.
constexpr Lsn kRestoredLsn = 1;
constexpr Epoch kRestoredEpoch = 1;
constexpr int64_t kRestoreWarmNsMax = kSecondNs / 2;
// A block of the file thrice, the index and filter of the file that the store takes over, and its
// buffer.
constexpr uint64_t kRestoreBytes = 12ull << 20;

absl::StatusOr<std::string> MetaOf(const RowSource::Rows& rows) {
  ShardMeta meta;
  meta.applied_lsn = kRestoredLsn;
  meta.applied_epoch = kRestoredEpoch;
  if (const std::string sessions = rows.sessions(); !sessions.empty()) {
    ByteReader in(sessions);
    HOTBED_ASSIGN_OR_RETURN(meta.sessions, SessionTable::TakeFrom(&in));
    meta.forgotten = rows.forgotten();
  }
  meta.touch_filter = rows.touch_filter();
  return meta.Serialize();
}

}  // namespace

ShardRestorer::ShardRestorer(const Wiring& wiring) : wiring_(wiring) {
  for (int i = 0; i < kRestoresMax; ++i) threads_.emplace_back([this] { Work(); });
}

void ShardRestorer::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ShardRestorer::Start(const TableSpec& table, std::shared_ptr<Shard> shard) {
  absl::MutexLock lock(&mu_);
  waiting_.push_back(std::make_shared<Restore>(Restore{table, std::move(shard)}));
}

ShardHost::RestoreProgress ShardRestorer::Progress(TableId table) const {
  absl::MutexLock lock(&mu_);
  ShardHost::RestoreProgress progress;
  const auto add = [&](const Restore& restore) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const ShardId id = restore.shard->id();
    const auto error = errors_.find(id);
    if (id.table != table) return;
    progress.shards.emplace_back(id, error == errors_.end() ? absl::OkStatus() : error->second);
  };
  for (const auto& restore : running_) add(*restore);
  for (const auto& restore : waiting_) add(*restore);
  const auto bytes = bytes_.find(table);
  if (bytes != bytes_.end()) progress.bytes_read = bytes->second;
  return progress;
}

void ShardRestorer::Work() {
  for (;;) {
    std::shared_ptr<Restore> restore;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || !waiting_.empty();
      };
      mu_.Await(absl::Condition(&wakes));
      if (stops_) return;
      restore = std::move(waiting_.front());
      waiting_.pop_front();
      running_.push_back(restore);
    }
    const absl::Status filled = Fill(*restore);
    if (!filled.ok()) Fail(restore.get(), filled);
    absl::MutexLock lock(&mu_);
    if (filled.ok()) errors_.erase(restore->shard->id());
    running_.erase(std::find(running_.begin(), running_.end(), restore));
  }
}

absl::Status ShardRestorer::CheckWanted(ShardId shard) const {
  {
    absl::MutexLock lock(&mu_);
    if (stops_) return absl::CancelledError("this server is stopping");
  }
  HOTBED_RETURN_IF_ERROR(wiring_.assignments->TableToInstall(shard).status());
  const std::optional<ShardRecord> record = wiring_.directory->RecordOf(shard);
  if (record.has_value() && record->Holds(wiring_.data->self())) return absl::OkStatus();
  return absl::FailedPreconditionError("the shard is not wanted here any more");
}

absl::Status ShardRestorer::Fill(const Restore& restore) {
  const ShardId id = restore.shard->id();
  const ShardRange& range = restore.shard->range();
  HOTBED_RETURN_IF_ERROR(CheckWanted(id));
  if (wiring_.source == nullptr) {
    return absl::UnimplementedError("this program reads no checkpoints; use a cluster of servers");
  }
  HOTBED_ASSIGN_OR_RETURN(const auto rows, wiring_.source->Open(restore.table, range));
  HOTBED_ASSIGN_OR_RETURN(
      const CopyMemory::Share share,
      wiring_.memory->Take(kRestoreBytes + rows->ahead_bytes(), [&] { return CheckWanted(id); }));
  HOTBED_ASSIGN_OR_RETURN(const auto writer, wiring_.installer->EmptyShard(restore.shard));
  std::vector<uint64_t> positions;
  std::vector<uint8_t> payloads;
  uint64_t count = 0;
  for (;;) {
    HOTBED_ASSIGN_OR_RETURN(const bool more, rows->Next(&positions, &payloads));
    if (!more) break;
    HOTBED_RETURN_IF_ERROR(CheckWanted(id));
    if (positions.empty()) continue;
    if (payloads.empty()) {
      HOTBED_RETURN_IF_ERROR(writer->WriteDeleted(positions, kRestoredLsn));
      continue;
    }
    HOTBED_RETURN_IF_ERROR(writer->WriteValues(positions, payloads.data(), kRestoredLsn));
    count += positions.size();
    absl::MutexLock lock(&mu_);
    bytes_[id.table] += payloads.size();
  }
  HOTBED_ASSIGN_OR_RETURN(const std::string meta, MetaOf(*rows));
  HOTBED_RETURN_IF_ERROR(writer->Finish(meta));
  // After an unclean stop the rows of such a table go back to the last checkpoint kept here.
  if (restore.table.durability == Durability::kCheckpoint) {
    HOTBED_RETURN_IF_ERROR(wiring_.checkpoints->KeepNow());
  }
  // While other shards wait, the rows of this one come to memory as they are asked for.
  const int64_t warm_ns_max = others_wait() ? 0 : kRestoreWarmNsMax;
  HOTBED_RETURN_IF_ERROR(wiring_.installer->OpenFilled(id, range, warm_ns_max));
  HOTBED_LOG(Info) << id.ToString() << ": restored " << count << " rows from "
                   << restore.table.restored_from.checkpoint;
  return absl::OkStatus();
}

void ShardRestorer::Fail(Restore* restore, const absl::Status& error) {
  const ShardId id = restore->shard->id();
  {
    absl::MutexLock lock(&mu_);
    if (stops_) return;
    errors_[id] = error;
  }
  HOTBED_LOG_EVERY_S(Warning, 1) << id.ToString()
                                 << ": its rows cannot be restored yet: " << error.message();
  {
    absl::MutexLock lock(&mu_);
    AwaitFor(&mu_, absl::Condition(&stops_), absl::Nanoseconds(kRestoreRetryNs));
    if (stops_) return;
  }
  // Deletes what has been written; if the shard is still wanted, it opens anew, and comes here.
  wiring_.assignments->GiveUpInstall(restore->shard);
}

}  // namespace hotbed
