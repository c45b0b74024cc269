// The log behind ShardLog: a queue, one writer at a time, one newest segment. log_writer.cc holds
// the queue and the writer; log_sync.cc syncs, deletes segments and reports usage.
//
// Threads: Append checksums the rows on the caller's thread, outside of the lock, so that shards
// share that work. The thread that calls Commit while nobody writes becomes the writer;
// the newest file, which only the writer touches, passes from one writer to the next through
// `writing_`.
#ifndef HOTBED_SERVER_SHARD_LOG_LOG_WRITER_H_
#define HOTBED_SERVER_SHARD_LOG_LOG_WRITER_H_

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/shard_log/log_spares.h"
#include "server/shard_log/newest_segment.h"
#include "server/shard_log/recovery.h"
#include "server/shard_log/run_layout.h"
#include "server/shard_log/segment_chain.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class LogWriter final : public ShardLog {
 public:
  LogWriter(const ShardLogOptions& options, FileSystem* files, const Clock* clock,
            RecoveredLog recovered);
  ~LogWriter() override;

  // Opens the newest segment, or begins the first one, and starts the sync thread.
  absl::Status Start();

  absl::Status Replay(const Visitor& visitor) override;
  const std::vector<Damage>& damage() const override { return damage_; }
  absl::StatusOr<LogPosition> End() override ABSL_LOCKS_EXCLUDED(mu_);
  void Append(LogAppend* append) override ABSL_LOCKS_EXCLUDED(mu_);
  void Commit() override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Sync() override ABSL_LOCKS_EXCLUDED(mu_);
  void SetLeastNeeded(ShardId shard, Lsn lsn) override ABSL_LOCKS_EXCLUDED(mu_, delete_mu_);
  void SetAside(ShardId shard, bool aside) override ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetShard(ShardId shard) override ABSL_LOCKS_EXCLUDED(mu_, delete_mu_);
  void Inherit(ShardId parent, ShardId child) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    chain_.Inherit(parent, child);
  }
  Usage GetUsage() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TryResume() override ABSL_LOCKS_EXCLUDED(mu_);
  void GiveBackSpares(bool disk_is_full) override;

 private:
  using Batch = std::vector<LogAppend*>;

  // A second handle of a segment, for syncing while the writer uses its own. Shared: a sync may
  // outlive the roll.
  struct Unsynced {
    uint64_t sequence = 0;
    std::shared_ptr<WritableFile> file;
  };
  // How far the log is written and synced; bytes count from the start of the process.
  struct SyncProgress {
    uint64_t written = 0;
    uint64_t synced = 0;  // never more than written
    int64_t unsynced_since_ns = 0;
    bool running = false;  // a thread syncs outside of the lock
    // The newest segment at the last sync, and its size then.
    uint64_t sequence = 0;
    uint64_t offset = 0;
    std::deque<Unsynced> segments;  // not synced as a whole; the newest last
    bool dir_changed = false;       // a segment's name is not synced
  };

  // The end of a segment, for the header of the next.
  struct SegmentEnd {
    uint64_t bytes = 0;  // 0: unknown
    uint32_t crc = 0;    // of the header of its last record or group
  };
  // The sync thread waits for it apart from mu_: a waiting thread makes each unlock slow.
  struct Stopping {
    absl::Mutex mu;
    bool wanted ABSL_GUARDED_BY(mu) = false;
  };

  // Sizes and checksums an append.
  static void Prepare(LogAppend* append);
  absl::Status RefusalOf(const LogAppend& append) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Called by the writer only. `batch` and `behind` are what comes after the run.
  void WriteBatch(absl::Span<LogAppend* const> batch) ABSL_LOCKS_EXCLUDED(mu_);
  size_t RunLength(absl::Span<LogAppend* const> batch) const;
  void FailBehind(absl::Span<LogAppend* const> run, const absl::Status& status,
                  absl::Span<LogAppend* const> behind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WriteRun(absl::Span<LogAppend* const> run) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status MarkStart(bool append_to_newest) ABSL_LOCKS_EXCLUDED(mu_);
  void MarkWritten();
  absl::Status CutBack(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Roll() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status BeginSegment(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t NewSegmentBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status OpenSegment(const Segment& segment) ABSL_LOCKS_EXCLUDED(mu_);
  static void Complete(LogAppend* append, absl::Status status);

  void Stop(absl::Status why, bool poison) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status SyncThrough(uint64_t target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SyncLoop() ABSL_LOCKS_EXCLUDED(mu_, stop_.mu);
  void DeleteUnneeded() ABSL_LOCKS_EXCLUDED(mu_, delete_mu_);
  void EmptyUnneeded(const std::vector<Segment>& emptied) ABSL_LOCKS_EXCLUDED(mu_)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(delete_mu_);

  const ShardLogOptions options_;
  FileSystem* const files_;
  const Clock* const clock_;
  std::vector<Damage> damage_;
  const LogCuts cuts_;

  // Touched only by the thread that set writing_, or before Start returns.
  NewestSegment file_;  // the newest segment
  uint64_t last_sequence_ = 0;
  SegmentEnd end_;  // of the newest segment
  // Empty between writes; they keep their memory.
  Batch batch_;
  RunLayout layout_;

  // Held while files are deleted: oldest first, also when several threads do it.
  absl::Mutex delete_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  LogSpares spares_;
  mutable absl::Mutex mu_;
  Batch queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queue_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of queued appends and those being written
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);  // why no append is accepted; OK: healthy
  bool poisoned_ ABSL_GUARDED_BY(mu_) = false;
  // The least LSN of a shard whose append failed and that has not come again.
  absl::flat_hash_map<ShardId, Lsn> failed_ ABSL_GUARDED_BY(mu_);
  SegmentChain chain_ ABSL_GUARDED_BY(mu_);
  SyncProgress sync_ ABSL_GUARDED_BY(mu_);
  absl::CondVar sync_done_;
  Usage counts_ ABSL_GUARDED_BY(mu_);  // appends, writes, syncs, torn_*
  Stopping stop_;
  std::thread sync_thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_LOG_WRITER_H_
