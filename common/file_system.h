// The disk as a seam: the log, the promise file and the identity file go through this, so that
// tests can lose unsynced bytes, run out of space and fail on command. Paths are absolute.
// Thread-safe; a file object is thread-compatible.
#ifndef HOTBED_COMMON_FILE_SYSTEM_H_
#define HOTBED_COMMON_FILE_SYSTEM_H_

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
  // `bytes` more will follow the end soon. The disk may set space aside for them, which makes those
  // appends cheaper; the size stays, and nothing is promised.
  virtual void ExpectAppends(uint64_t bytes) { (void)bytes; }
  virtual absl::Status Sync() = 0;  // fdatasync
  virtual absl::Status Truncate(uint64_t size) = 0;
  virtual uint64_t size() const = 0;
  virtual absl::Status Close() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  static FileSystem* Real();  // never deleted

  // Creates the file if it is not there.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) = 0;
  virtual absl::StatusOr<std::string> ReadAll(const std::string& path) = 0;
  // Reads up to `bytes` at `offset` into `out`; the number read (less at the end of the file).
  virtual absl::StatusOr<uint64_t> ReadAt(const std::string& path, uint64_t offset, uint64_t bytes,
                                          char* out) = 0;
  // Temporary file, sync, rename, sync of the directory: after it returns OK the new content is
  // durable, else the old.
  virtual absl::Status WriteAtomically(const std::string& path, absl::string_view content) = 0;
  // Names, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& dir) = 0;
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  virtual absl::Status Delete(const std::string& path) = 0;
  virtual absl::Status MakeDir(const std::string& path) = 0;  // with parents; OK if there
  virtual absl::Status SyncDir(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // What this process may still write to the disk that holds the directory.
  virtual absl::StatusOr<uint64_t> FreeBytes(const std::string& dir) = 0;
  // An advisory lock held until the result is destroyed; AlreadyExists names the holder's pid where
  // known.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Lock(const std::string& path) = 0;
};

// The folder that holds `path`: "/" of "/a", "." of "a".
std::string ParentOf(const std::string& path);

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILE_SYSTEM_H_
