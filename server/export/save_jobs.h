// Writes shards, whose primaries are here, into the folder of a checkpoint, as a client asks
// (proto/checkpoint.proto).
//
// kCopiesMax shards are copied at a time, the others wait in order. A save may take the rows of all
// its shards when it is told, one after another, before any of them is copied; a thread of its own
// does that, so that other saves do not delay it. A save that nobody has watched
// for kUnwatchedNsMax ends: its client is gone, and no manifest will name the files. Thread-safe;
// calls do not block on the disk.
#ifndef HOTBED_SERVER_EXPORT_SAVE_JOBS_H_
#define HOTBED_SERVER_EXPORT_SAVE_JOBS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "checkpoint/rows_file.h"
#include "common/clock.h"
#include "places/place_finder.h"
#include "proto/checkpoint.pb.h"
#include "server/host/row_files.h"
#include "server/host/shard_host.h"
#include "server/shard/shard_snapshot.h"

namespace hotbed {

constexpr int kCopiesMax = 2;
constexpr size_t kSavesMax = 64;
constexpr int64_t kUnwatchedNsMax = 60 * kSecondNs;

class SaveJobs {
 public:
  // All outlive it. `own_disk` is where server:NAME lies; empty: nowhere.
  SaveJobs(ShardHost* host, PlaceFinder* places, const Clock* clock, std::string own_disk = "");
  ~SaveJobs() { Stop(); }

  // InvalidArgument; ResourceExhausted: too many saves. A save that is there already is left alone.
  absl::Status Begin(const v1::BeginSaveRequest& asked) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::WatchSaveReply> Watch(const v1::WatchSaveRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    Job(const v1::BeginSaveRequest& asked, std::string own)
        : request(asked), own_folder(std::move(own)) {}
    const v1::BeginSaveRequest request;  // with the directory as this server sees it
    const std::string own_folder;        // server:NAME/CHECKPOINT; empty: elsewhere
    std::atomic<bool> broken_off{false};
    std::atomic<uint64_t> bytes_written{0};
    std::atomic<uint64_t> bytes_begun{0};  // an estimate for the shards that have begun
    // Under mu_.
    int begun = 0;     // shards
    int prepared = 0;  // of a save that takes rows when it is told
    bool takes = false;
    std::vector<absl::StatusOr<TakenRows>> taken;
    std::vector<v1::SavedShard> done;
    int64_t watched_ns = 0;
    int64_t free_ns = 0;  // when the rate allows the next bytes
  };
  class JobSink;

  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  // Writes rows back for saves that will take them, and takes them.
  void TakeRows() ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<Job> FirstToTake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<TakenRows> TakenOf(Job* job, const v1::ShardToSave& wanted)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Null: every shard of every save has begun.
  std::shared_ptr<Job> FirstWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::SavedShard Save(Job* job, const v1::ShardToSave& wanted) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::CheckpointShard> Write(Job* job, const v1::ShardToSave& wanted)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The rows of the shard into `to`, and what is known of them into `saved`.
  absl::StatusOr<CopiedShard> Copy(Job* job, const v1::ShardToSave& wanted, RowSink* to,
                                   v1::CheckpointShard* saved) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WriteFile(Job* job, const v1::ShardToSave& wanted, const Shard& shard,
                         v1::CheckpointShard* saved) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status FillFile(Job* job, const v1::ShardToSave& wanted, RowsFileWriter* file,
                        RowSink* sink, v1::CheckpointShard* saved);
  absl::Status WriteArrays(Job* job, const v1::ShardToSave& wanted, const Shard& shard,
                           v1::CheckpointShard* saved) ABSL_LOCKS_EXCLUDED(mu_);
  // The folder of the save is there. On this server's own disk it is made: a shard may have come
  // to this server since the save began.
  absl::Status CheckFolder(const Job& job, Place* place) const;
  absl::Status AwaitRate(Job* job, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void DropUnwatched(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ShardHost* const host_;
  PlaceFinder* const places_;
  const Clock* const clock_;
  const std::string own_disk_;
  // Held while a folder is made and gets its mark, so that another thread finds none without one.
  mutable absl::Mutex folders_mu_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint64_t, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);  // by number
  std::vector<std::thread> threads_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_SAVE_JOBS_H_
