// The log behind ShardLog: a queue, one writer at a time, one newest segment.
//
// Threads: Append checksums and lays out the pieces on the caller's thread, outside of the lock, so
// that shards share that work; the thread that finds no writer in Commit becomes it. What only the
// writer touches (the newest file) is handed from one writer to the next through `writing_`.
#ifndef HOTBED_SERVER_SHARD_LOG_LOG_WRITER_H_
#define HOTBED_SERVER_SHARD_LOG_LOG_WRITER_H_

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/shard_log/recovery.h"
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
  void SetAside(ShardId shard) override ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetShard(ShardId shard) override ABSL_LOCKS_EXCLUDED(mu_, delete_mu_);
  Usage GetUsage() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TryResume() override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // An append on its way: the encoded header and the pieces that writev takes, most of them in the
  // caller's memory.
  struct Queued {
    LogAppend* append = nullptr;
    ShardId shard;
    Lsn lsn = 0;
    uint64_t bytes = 0;
    uint32_t payload_crc = 0;
    absl::Status refused;  // set when it must not be written
    char header[kRecordHeaderBytes];
    absl::InlinedVector<iovec, 5> pieces;
  };
  using Batch = std::deque<std::unique_ptr<Queued>>;

  // A file of its own for syncing, since the writer's may be in use. Shared: a sync may outlive the
  // roll.
  struct Unsynced {
    uint64_t sequence = 0;
    std::shared_ptr<WritableFile> file;
  };

  // Lays out and checksums an append; the writer fills in the header.
  static std::unique_ptr<Queued> Encode(LogAppend* append);
  absl::Status RefusalOf(const Queued& queued) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The writer's.
  void WriteBatch(Batch batch) ABSL_LOCKS_EXCLUDED(mu_);
  void ExpectAppends(uint64_t bytes);
  absl::Status WriteRun(absl::Span<const std::unique_ptr<Queued>> run) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CutBack(uint64_t size, const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Roll() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status BeginSegment(uint64_t sequence) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status OpenSegment(const Segment& segment) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ProbeDisk();
  static void Complete(std::unique_ptr<Queued> queued, absl::Status status);

  void Stop(absl::Status why, bool poison) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status SyncThrough(uint64_t target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SyncLoop() ABSL_LOCKS_EXCLUDED(mu_);
  void DeleteUnneeded() ABSL_LOCKS_EXCLUDED(mu_, delete_mu_);
  void EmptyUnneeded(const std::vector<Segment>& emptied) ABSL_LOCKS_EXCLUDED(mu_)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(delete_mu_);

  const ShardLogOptions options_;
  FileSystem* const files_;
  const Clock* const clock_;
  std::vector<Damage> damage_;
  const LogCuts cuts_;

  // The writer's: touched only by the thread that set writing_, or before Start returns.
  std::unique_ptr<WritableFile> file_;
  uint64_t file_bytes_ = 0;
  uint64_t expected_bytes_ = 0;  // of the newest file: what the disk was told of
  std::vector<iovec> run_pieces_;

  absl::Mutex delete_mu_
      ABSL_ACQUIRED_BEFORE(mu_);  // files are deleted oldest first, also by several threads
  mutable absl::Mutex mu_;
  Batch queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queue_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // what is being written included
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);  // why nothing is taken; OK: all is well
  bool poisoned_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<ShardId, Lsn> failed_
      ABSL_GUARDED_BY(mu_);  // least LSN that failed and has not come again
  SegmentChain chain_ ABSL_GUARDED_BY(mu_);
  uint64_t last_sequence_ = 0;  // the writer's

  // Bytes since the start: written, and of these synced.
  uint64_t written_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t synced_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t unsynced_since_ns_ ABSL_GUARDED_BY(mu_) = 0;
  bool syncing_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t synced_sequence_ ABSL_GUARDED_BY(mu_) =
      0;  // the segment that was newest at the last sync,
  uint64_t synced_offset_ ABSL_GUARDED_BY(mu_) = 0;     // and how far
  std::deque<Unsynced> unsynced_ ABSL_GUARDED_BY(mu_);  // the newest segment last
  bool dir_changed_ ABSL_GUARDED_BY(mu_) = false;
  absl::CondVar sync_done_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Usage counts_ ABSL_GUARDED_BY(mu_);  // appends, writes, syncs, torn_*
  std::thread sync_thread_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_LOG_WRITER_H_
