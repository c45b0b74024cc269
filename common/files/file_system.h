// The disk as a seam: the log, the promise file and the identity file go through this, so that
// tests can lose unsynced bytes, run out of space and fail on command. Paths are absolute.
// Thread-safe; a file object is thread-compatible. On the real disk it creates directories of mode
// 0700 and files of mode 0600, for the owner alone.
#ifndef HOTBED_COMMON_FILES_FILE_SYSTEM_H_
#define HOTBED_COMMON_FILES_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct iovec;

namespace hotbed {

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Writes all pieces at the end. On an error any prefix may have been written; ResourceExhausted
  // means no space.
  virtual absl::Status Append(absl::Span<const struct iovec> pieces) = 0;
  // A hint that `bytes` more will be appended soon. The file system may set space aside, which
  // makes these appends cheaper. The size of the file stays, and the appends may still fail.
  virtual void ExpectAppends(uint64_t bytes) { (void)bytes; }
  virtual absl::Status Sync() = 0;  // fdatasync
  virtual absl::Status Truncate(uint64_t size) = 0;
  virtual uint64_t size() const = 0;
  virtual absl::Status Close() = 0;
};

// A small file whose bytes are also memory of this process. A store to data() survives the end of
// the process; Sync makes it survive a power loss.
class SharedFile {
 public:
  virtual ~SharedFile() = default;
  virtual char* data() = 0;
  virtual absl::Status Sync() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  static FileSystem* Real();  // never deleted

  // Creates the file if it does not exist.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) = 0;
  // Opens a file that exists. Appends begin at `offset`, which is at most its size, and go over the
  // bytes that are there; those beyond the appends stay.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenAt(const std::string& path,
                                                               uint64_t offset) = 0;
  // Creates the file if it does not exist; makes it `bytes` long, with zeros.
  virtual absl::StatusOr<std::unique_ptr<SharedFile>> OpenShared(const std::string& path,
                                                                 uint64_t bytes) = 0;
  virtual absl::StatusOr<std::string> ReadAll(const std::string& path) = 0;
  // Reads up to `bytes` at `offset` into `out`. Returns the number read, which is less at the end
  // of the file.
  virtual absl::StatusOr<uint64_t> ReadAt(const std::string& path, uint64_t offset, uint64_t bytes,
                                          char* out) = 0;
  // Writes a temporary file, syncs it, renames it and syncs the directory. After OK the new content
  // is durable; after an error the old content is still there.
  virtual absl::Status WriteAtomically(const std::string& path, absl::string_view content) = 0;
  // Names, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& dir) = 0;
  // Atomic, and durable once SyncDir has returned OK. A file that had the name `to` is gone.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Whether the bytes of a file are in the memory of the system, so that no write over a part of
  // them reads the disk.
  virtual bool InMemory(const std::string& path) = 0;
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  virtual absl::Status Delete(const std::string& path) = 0;   // a file or an empty directory
  virtual absl::Status MakeDir(const std::string& path) = 0;  // with parents; OK if it exists
  virtual absl::Status SyncDir(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // Bytes that this process may still write to the disk that holds the directory.
  virtual absl::StatusOr<uint64_t> FreeBytes(const std::string& dir) = 0;
  // An advisory lock held until the result is destroyed; AlreadyExists names the holder's pid where
  // known.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Lock(const std::string& path) = 0;
};

// The folder that holds `path`: "/" of "/a", "." of "a".
std::string ParentOf(const std::string& path);

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILES_FILE_SYSTEM_H_
