// The part of the log writer that deals with the disk rather than the queue: syncing, deleting
// segments, resuming after a failure, usage.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/log.h"
#include "common/threads/await_for.h"
#include "server/shard_log/log_writer.h"

namespace hotbed {
absl::Status LogWriter::Sync() {
  absl::MutexLock lock(&mu_);
  return SyncThrough(sync_.written);
}

// Waits until `target` bytes are synced. One sync runs at a time, on behalf of all waiting threads.
// Releases the lock and takes it again.
absl::Status LogWriter::SyncThrough(uint64_t target) {
  while (sync_.synced < target || sync_.dir_changed) {
    if (poisoned_) return stopped_;
    if (sync_.running) {
      sync_done_.Wait(&mu_);
      continue;
    }
    sync_.running = true;
    const uint64_t through = sync_.written;
    const int64_t since_ns = clock_->NowNs();
    const bool sync_dir = std::exchange(sync_.dir_changed, false);
    const std::deque<Unsynced> files = sync_.segments;
    const uint64_t newest = chain_.newest().sequence;
    const uint64_t newest_bytes = chain_.newest().bytes;
    const uint32_t newest_crc = chain_.newest().last_crc;
    mu_.Unlock();
    absl::Status status;
    for (const Unsynced& unsynced : files) {
      if (status.ok()) status = unsynced.file->Sync();
    }
    if (status.ok() && sync_dir) status = files_->SyncDir(options_.dir);
    mu_.Lock();
    sync_.running = false;
    if (!status.ok()) {
      Stop(status, /*poison=*/true);
      return stopped_;
    }
    // The newest of the synced segments may still be written to; the earlier ones are complete.
    while (sync_.segments.front().sequence < files.back().sequence) sync_.segments.pop_front();
    sync_.sequence = newest;
    sync_.offset = newest_bytes;
    if (options_.marks != nullptr) {
      options_.marks->Set(Marks::kLogSynced, {newest, newest_bytes, newest_crc});
    }
    sync_.synced = std::max(sync_.synced, through);
    HOTBED_CHECK(sync_.synced <= sync_.written);
    sync_.unsynced_since_ns = since_ns;
    ++counts_.syncs;
    sync_done_.SignalAll();
  }
  return poisoned_ ? stopped_ : absl::OkStatus();
}

void LogWriter::SyncLoop() {
  const absl::Duration interval = absl::Milliseconds(options_.sync_interval_ms);
  const auto stops = [&]() {
    absl::MutexLock lock(&stop_.mu);
    return AwaitFor(&stop_.mu, absl::Condition(&stop_.wanted), interval);
  };
  while (!stops()) {
    spares_.DeleteGivenUp();
    spares_.DeleteIfShort();
    absl::MutexLock lock(&mu_);
    if (poisoned_) continue;
    (void)SyncThrough(sync_.written);  // an error poisons the log: the next append fails
  }
}

void LogWriter::SetLeastNeeded(ShardId shard, Lsn lsn) {
  {
    absl::MutexLock lock(&mu_);
    chain_.SetLeastNeeded(shard, lsn);
    if (!chain_.MayShrink()) return;
  }
  DeleteUnneeded();
}

void LogWriter::SetAside(ShardId shard, bool aside) {
  absl::MutexLock lock(&mu_);
  chain_.SetAside(shard, aside);
}

void LogWriter::ForgetShard(ShardId shard) {
  {
    absl::MutexLock lock(&mu_);
    chain_.Forget(shard);
    failed_.erase(shard);
  }
  DeleteUnneeded();
}

void LogWriter::DeleteUnneeded() {
  absl::MutexLock deleting(&delete_mu_);
  std::vector<std::string> paths;
  std::vector<Segment> emptied;
  {
    absl::MutexLock lock(&mu_);
    paths = chain_.TakeUnneeded();
    emptied = chain_.TakeEmptied();
    if (!paths.empty() && options_.marks != nullptr) {
      options_.marks->Set(Marks::kLogOldest, {chain_.segments().front().sequence, 0, 0});
    }
  }
  // A mark from before a power loss would ask for segments that are deleted now.
  if (!paths.empty() && options_.marks != nullptr) {
    if (const absl::Status synced = options_.marks->Sync(); !synced.ok()) {
      HOTBED_LOG(Warning) << "the log keeps files that it needs no more: " << synced;
      return;
    }
  }
  spares_.KeepOrDelete(paths);
  if (!emptied.empty()) EmptyUnneeded(emptied);
}

// The header of an emptied segment says that the segment was synced, and recovery after a reboot
// relies on it, so everything is synced first.
void LogWriter::EmptyUnneeded(const std::vector<Segment>& emptied) {
  absl::Status status = Sync();
  for (const Segment& segment : emptied) {
    if (!status.ok()) break;
    absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(segment.path, files_);
    status = header.status();
    if (!status.ok()) break;
    // It still says where the segment before ends.
    header->unsynced_from = segment.sequence + 1;
    header->reused = false;
    status = files_->WriteAtomically(segment.path, EncodeSegmentHeader(*header));
  }
  if (!status.ok()) {
    HOTBED_LOG(Warning) << "the log keeps records that it needs no more: " << status;
  }
}

ShardLog::Usage LogWriter::GetUsage() const {
  const uint64_t bytes_spare = spares_.bytes();
  absl::MutexLock lock(&mu_);
  Usage usage = counts_;
  usage.bytes = chain_.bytes();
  usage.bytes_aside = chain_.BytesAside();
  // The rest of the newest file; those of older segments have less than an eighth of their files.
  usage.bytes_spare = bytes_spare + std::max(chain_.newest().reused_bytes, chain_.newest().bytes) -
                      chain_.newest().bytes;
  usage.segments = chain_.segments().size();
  usage.read_only = !stopped_.ok();
  usage.error = std::string(stopped_.message());
  usage.unsynced_bytes = sync_.written - sync_.synced;
  usage.unsynced_age_ns =
      sync_.written == sync_.synced ? 0 : clock_->NowNs() - sync_.unsynced_since_ns;
  const std::optional<ShardId> blocker = chain_.OldestBlocker();
  usage.has_oldest = blocker.has_value();
  usage.oldest_shard = blocker.value_or(ShardId());
  return usage;
}

void ShardLog::AddNumbers(StatusNumbers* numbers) const {
  const Usage usage = GetUsage();
  numbers->Add("log_bytes", "hotbed_server_log_bytes", "Disk taken by the log.", usage.bytes);
  numbers->Add("log_refused_bytes", "hotbed_server_log_refused_bytes",
               "Disk of the log kept only for refused shards, in addition to --log-bytes-max.",
               usage.bytes_aside);
  numbers->Add("log_spare_bytes", "hotbed_server_log_spare_bytes",
               "Disk of old log segments that new ones are written over, in addition to the log's.",
               usage.bytes_spare);
  numbers->Add("log_torn_bytes", "hotbed_server_log_torn_bytes",
               "Bytes that were missing or torn at the end of the log when the server started.",
               usage.torn_bytes);
  numbers->Add("log_appends", "hotbed_server_log_appends_total", "Records appended to the log.",
               usage.appends);
  numbers->Add("log_writes", "hotbed_server_log_writes_total", "Group writes of the log.",
               usage.writes);
  numbers->Add("log_syncs", "hotbed_server_log_syncs_total", "Syncs of the log.", usage.syncs);
}

void LogWriter::GiveBackSpares(bool disk_is_full) {
  if (disk_is_full) {
    spares_.Delete();
  } else {
    spares_.DeleteIfShort();
  }
}

absl::Status LogWriter::TryResume() {
  {
    absl::MutexLock lock(&mu_);
    if (poisoned_) {
      return absl::FailedPreconditionError(
          absl::StrCat(stopped_.message(), "; restart the server"));
    }
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !writing_; };
    mu_.Await(absl::Condition(&idle));
    if (stopped_.ok()) return absl::OkStatus();
    writing_ = true;  // only the writer touches the file
  }
  spares_.Delete();  // the disk had no space for an append
  const absl::Status probed = file_.Probe();
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (probed.ok() && !poisoned_) stopped_ = absl::OkStatus();
  }
  Commit();  // completes appends that were refused meanwhile
  return probed;
}

}  // namespace hotbed
