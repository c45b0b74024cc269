// A file system in memory that a test or the simulator can break: it loses unsynced bytes at a
// crash, runs out of space, fails syncs and writes, and cuts writes short. Everything it decides at
// random comes from its seed.
//
// Crash() keeps of each file the bytes that its last successful Sync covered, and a random part of
// the bytes appended since, cut at any byte and possibly garbled, as a disk may leave them. Where
// bytes were written over others since, some blocks are the older ones, and a truncation since may
// be undone. Creations and deletions always survive, but a file that was never synced may be empty.
// The last renames may be undone, back to the last SyncDir.
// A shared file keeps the bytes of its last Sync or those of the moment. WriteAtomically is atomic
// and durable, or fails and leaves the old content. Files and locks opened before a crash fail with
// Aborted afterwards.
//
// Thread-safe, like the interface; a file object must not outlive the file system.
#ifndef HOTBED_TESTS_COMMON_FAULT_FILE_SYSTEM_H_
#define HOTBED_TESTS_COMMON_FAULT_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/files/file_system.h"
#include "common/random.h"

namespace hotbed {

class FaultFileSystem : public FileSystem {
 public:
  explicit FaultFileSystem(uint64_t seed);
  ~FaultFileSystem() override;

  // Leaves the state after a power loss (see above).
  void Crash();
  // Leaves the state after kill -9: all bytes stay, and every open file and lock is gone.
  void Kill();
  // The process dies in the n-th operation from now on that changes anything: that append is cut
  // short, and all later ones fail with Aborted until Kill or Crash.
  void DieAfter(int operations);
  bool dead() const;
  // Bytes that may still be written before ResourceExhausted; the write that crosses it is cut
  // short. Max: no limit.
  void SetFreeBytes(uint64_t bytes);
  // The next `count` calls of Sync (or of SyncDir or WriteAtomically) fail with Internal, as EIO
  // does. The bytes that a failed Sync should have covered stay unsynced even if a later Sync
  // returns OK, because Linux drops the pages. `after`: that many succeed first.
  void FailSyncs(int count, int after = 0);
  // The next `count` appends fail with Internal after a random prefix.
  void FailAppends(int count);
  void SetInMemory(bool in_memory) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    in_memory_ = in_memory;
  }
  // Flips one bit of an existing file, also of synced content.
  void FlipBit(const std::string& path, uint64_t byte, int bit);

  uint64_t syncs() const;  // successful Sync calls of files so far

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAt(const std::string& path,
                                                       uint64_t offset) override;
  absl::StatusOr<std::unique_ptr<SharedFile>> OpenShared(const std::string& path,
                                                         uint64_t bytes) override;
  absl::StatusOr<std::string> ReadAll(const std::string& path) override;
  absl::StatusOr<uint64_t> ReadAt(const std::string& path, uint64_t offset, uint64_t bytes,
                                  char* out) override;
  absl::Status WriteAtomically(const std::string& path, absl::string_view content) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  bool InMemory(const std::string& /*path*/) override ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return in_memory_;
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override;
  absl::Status Delete(const std::string& path) override;
  absl::Status MakeDir(const std::string& path) override;
  absl::Status SyncDir(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<uint64_t> FreeBytes(const std::string& dir) override;  // of SetFreeBytes
  absl::StatusOr<std::unique_ptr<WritableFile>> Lock(const std::string& path) override;

 private:
  class File;
  class LockFile;
  class Shared;
  struct Content {
    std::string bytes;
    // The durable prefix is bytes[0, synced); `dropped` remembers that a failed sync lost the pages
    // from there on.
    uint64_t synced = 0;
    bool dropped = false;
    std::optional<std::string> before;  // of one written over or truncated: as of the last Sync
    std::optional<std::string> shared;  // of OpenShared: as of the last Sync
  };

  absl::Status CheckGeneration(uint64_t generation, const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes at `*at`, and moves it.
  absl::Status Append(uint64_t generation, const std::string& path, Content* content, uint64_t* at,
                      absl::Span<const struct iovec> pieces);
  void LoseOverwritten(Content* content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UndoRenames() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Sync(uint64_t generation, const std::string& path, Content* content);
  absl::Status SyncShared(const std::string& path, Content* content);
  absl::Status Truncate(uint64_t generation, const std::string& path, Content* content,
                        uint64_t size);
  // Counts an operation; an error if the process is dead.
  absl::Status Step(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeFault(int* count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeSyncFault() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unlock(uint64_t generation, const std::string& path);

  mutable absl::Mutex mutex_;
  Random random_ ABSL_GUARDED_BY(mutex_);
  // Contents are shared with open files: a deleted file lives on until it is closed, as in POSIX.
  std::map<std::string, std::shared_ptr<Content>> files_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> renames_ ABSL_GUARDED_BY(mutex_);  // not synced
  std::set<std::string> dirs_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> locks_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // grows with each crash; old handles are dead
  uint64_t free_bytes_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  int steps_left_ ABSL_GUARDED_BY(mutex_) = -1;  // until the process dies; -1: it lives on
  bool in_memory_ ABSL_GUARDED_BY(mutex_) = true;
  int failing_syncs_ ABSL_GUARDED_BY(mutex_) = 0;
  int syncs_before_failing_ ABSL_GUARDED_BY(mutex_) = 0;
  int failing_appends_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t syncs_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COMMON_FAULT_FILE_SYSTEM_H_
