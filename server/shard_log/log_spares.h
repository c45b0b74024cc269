// Files of segments that no shard needs, in which new segments begin: their blocks are written
// already and their pages are in memory, so an append costs the copy of its bytes alone, without
// new pages, and a sync has no metadata to write.
//
// A new segment must never come back under an older name after a power loss, so the directory is
// synced before a spare is used. Spares are worth nothing to anybody else: they go when the disk is
// short of space, at the end of the process, and at the next start. Thread-safe.
#ifndef HOTBED_SERVER_SHARD_LOG_LOG_SPARES_H_
#define HOTBED_SERVER_SHARD_LOG_LOG_SPARES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/files/file_system.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {

// How a new segment gets its file: it is written over a spare, or the file is new because there is
// no spare, all are too long, the system has evicted the pages of the one that fits, or that one
// could not be opened, written or renamed.
enum class SegmentOrigin { kReused, kNone, kTooLong, kEvicted, kRefused };

class LogSpares {
 public:
  static constexpr size_t kCountMax = 64;

  // `bytes_min`: shorter files are not worth it.
  LogSpares(std::string dir, uint64_t bytes_min, FileSystem* files)
      : dir_(std::move(dir)), bytes_min_(bytes_min), files_(files) {}
  ~LogSpares() { Delete(); }

  // Deletes the spares of an earlier process, and warns where it cannot.
  void DeleteLeft();
  // Keeps files of segments, oldest first, or deletes them. One call at a time.
  void KeepOrDelete(const std::vector<std::string>& paths) ABSL_LOCKS_EXCLUDED(mu_);
  struct Reused {
    SegmentOrigin origin = SegmentOrigin::kNone;
    uint64_t bytes = 0;  // the length of the spare if it is kReused
  };
  // Makes the file of a segment from a spare of at most `bytes_most`, with that header, synced if
  // `sync`. A spare that fits and cannot be used is given up, and a longer one if none fits: the
  // callers of the functions below and of KeepOrDelete delete it, because that takes up to 0.1 s,
  // for which no append should wait.
  Reused Reuse(SegmentHeader header, bool sync, const std::string& path, uint64_t bytes_most)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Delete() ABSL_LOCKS_EXCLUDED(mu_);
  void DeleteGivenUp() ABSL_LOCKS_EXCLUDED(mu_);
  // Deletes all if the disk has less free than they take.
  void DeleteIfShort() ABSL_LOCKS_EXCLUDED(mu_);
  // Counts the files that were given up, too.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Spare {
    std::string path;
    uint64_t bytes = 0;
  };

  // Whether the file of a segment became the spare `kept`, beside `others` that are kept already.
  bool Rename(const std::string& path, const std::vector<Spare>& others, Spare* kept);

  const std::string dir_;
  const uint64_t bytes_min_;
  FileSystem* const files_;
  mutable absl::Mutex mu_;
  std::vector<Spare> spares_ ABSL_GUARDED_BY(mu_);  // their names are durable
  std::vector<Spare> given_up_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_LOG_SPARES_H_
