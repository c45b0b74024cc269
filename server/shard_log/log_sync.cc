// The part of the log writer that is about the disk rather than the queue: syncing, truncation,
// free space, numbers.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/shard_log/log_writer.h"

namespace hotbed {
namespace {

// TryResume believes in free space when it could write this much.
constexpr size_t kProbeBytes = 1 << 20;

}  // namespace

absl::Status LogWriter::Sync() {
  absl::MutexLock lock(&mu_);
  return SyncThrough(written_);
}

// One sync at a time covers all who wait. Releases and takes the lock again.
absl::Status LogWriter::SyncThrough(uint64_t target) {
  while (synced_ < target || dir_changed_) {
    if (poisoned_) return stopped_;
    if (syncing_) {
      sync_done_.Wait(&mu_);
      continue;
    }
    syncing_ = true;
    const uint64_t through = written_;
    const int64_t since_ns = clock_->NowNs();
    const bool sync_dir = std::exchange(dir_changed_, false);
    const std::deque<Unsynced> files = unsynced_;
    const uint64_t newest = chain_.newest().sequence;
    const uint64_t newest_bytes = chain_.newest().bytes;
    mu_.Unlock();
    absl::Status status;
    for (const Unsynced& unsynced : files) {
      if (status.ok()) status = unsynced.file->Sync();
    }
    if (status.ok() && sync_dir) status = files_->SyncDir(options_.dir);
    mu_.Lock();
    syncing_ = false;
    if (!status.ok()) {
      Stop(status, /*poison=*/true);
      return stopped_;
    }
    // The newest of those that were synced is perhaps still written to; those before it are done
    // with.
    while (unsynced_.front().sequence < files.back().sequence) unsynced_.pop_front();
    synced_sequence_ = newest;
    synced_offset_ = newest_bytes;
    synced_ = std::max(synced_, through);
    unsynced_since_ns_ = since_ns;
    ++counts_.syncs;
    sync_done_.SignalAll();
  }
  return poisoned_ ? stopped_ : absl::OkStatus();
}

void LogWriter::SyncLoop() {
  const absl::Duration interval = absl::Milliseconds(options_.sync_interval_ms);
  absl::MutexLock lock(&mu_);
  while (!AwaitFor(&mu_, absl::Condition(&stopping_), interval)) {
    if (poisoned_) continue;
    (void)SyncThrough(written_);  // an error poisons the log, which whoever appends will see
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

void LogWriter::SetAside(ShardId shard) {
  absl::MutexLock lock(&mu_);
  chain_.SetAside(shard);
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
  }
  for (const std::string& path : paths) {
    const absl::Status status = files_->Delete(path);
    if (!status.ok())
      HOTBED_LOG(Warning) << "the log keeps a file that it needs no more: " << status;
  }
  if (!emptied.empty()) EmptyUnneeded(emptied);
}

// What an emptied segment says of itself is that it was synced, which recovery after a reboot
// believes: so it has to be.
void LogWriter::EmptyUnneeded(const std::vector<Segment>& emptied) {
  absl::Status status = Sync();
  for (const Segment& segment : emptied) {
    if (!status.ok()) break;
    status = files_->WriteAtomically(
        segment.path,
        EncodeSegmentHeader({.sequence = segment.sequence, .unsynced_from = segment.sequence + 1}));
  }
  if (!status.ok()) {
    HOTBED_LOG(Warning) << "the log keeps records that it needs no more: " << status;
  }
}

ShardLog::Usage LogWriter::GetUsage() const {
  absl::MutexLock lock(&mu_);
  Usage usage = counts_;
  usage.bytes = chain_.bytes();
  usage.bytes_aside = chain_.BytesAside();
  usage.segments = chain_.segments().size();
  usage.read_only = !stopped_.ok();
  usage.error = std::string(stopped_.message());
  usage.unsynced_bytes = written_ - synced_;
  usage.unsynced_age_ns = written_ == synced_ ? 0 : clock_->NowNs() - unsynced_since_ns_;
  const std::optional<ShardId> blocker = chain_.OldestBlocker();
  usage.has_oldest = blocker.has_value();
  usage.oldest_shard = blocker.value_or(ShardId());
  return usage;
}

// Zeros at the end of the newest segment are what recovery takes for a torn end, should we be
// killed here.
absl::Status LogWriter::ProbeDisk() {
  const std::string zeros(kProbeBytes, '\0');
  const iovec piece = {const_cast<char*>(zeros.data()), zeros.size()};
  const absl::Status written = file_->Append({&piece, 1});
  const absl::Status cut = file_->Truncate(file_bytes_);
  HOTBED_RETURN_IF_ERROR(cut);
  HOTBED_RETURN_IF_ERROR(file_->Sync());
  return written;
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
    writing_ = true;  // the file is the writer's
  }
  const absl::Status probed = ProbeDisk();
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (probed.ok() && !poisoned_) stopped_ = absl::OkStatus();
  }
  Commit();  // delivers what was refused meanwhile
  return probed;
}

}  // namespace hotbed
