#include "kv/rocks_writable.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace hotbed {
namespace {

using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr mode_t kFileMode = 0644;  // RocksDB's

// The error texts of RocksDB's own files. A quota and a limit of the size of files are told as a
// full disk is.
IOStatus ToIoStatus(absl::string_view what, const std::string& path, int error) {
  const std::string context = absl::StrCat("While ", what, ": ", path);
  if (!IsForWantOfRoom(error)) return IOStatus::IOError(context, std::strerror(error));
  IOStatus status = IOStatus::NoSpace(context, std::strerror(error));
  status.SetRetryable(true);
  return status;
}

// Like RocksDB's buffered file, except that it waits and keeps its own offset: bytes of a piece
// that were written before the disk was full stay, and the rest follows.
class WaitingFile : public FSWritableFile {
 public:
  WaitingFile(RocksRoom* room, std::string path, int fd, const FileOptions& options)
      : FSWritableFile(options),
        room_(room),
        path_(std::move(path)),
        allocates_(options.allow_fallocate),
        fd_(fd) {}
  ~WaitingFile() override {
    if (fd_ >= 0) Close(IOOptions(), nullptr).PermitUncheckedError();
  }

  using FSWritableFile::Append;  // ignores checksums, which are not enabled
  IOStatus Append(const rocksdb::Slice& data, const IOOptions&, IODebugContext*) override;
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override;
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return Done(fdatasync(fd_), "syncing");
  }
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return Done(fsync(fd_), "syncing"); }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t offset, size_t length) override;
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                     IODebugContext* debug) override;
  IOStatus Allocate(uint64_t offset, uint64_t bytes, const IOOptions&, IODebugContext*) override;

 private:
  IOStatus Done(int result, absl::string_view what) const {
    return result == 0 ? IOStatus::OK() : ToIoStatus(what, path_, errno);
  }
  void FreeAllocated();

  RocksRoom* const room_;  // null: it does not wait
  const std::string path_;
  const bool allocates_;
  int fd_;
  uint64_t size_ = 0;
};

IOStatus WaitingFile::Append(const rocksdb::Slice& data, const IOOptions&, IODebugContext*) {
  RocksRoom::Try tried(room_, path_);
  for (size_t written = 0; written < data.size();) {
    const ssize_t now =
        pwrite(fd_, data.data() + written, data.size() - written, static_cast<off_t>(size_));
    if (now >= 0) {
      written += static_cast<size_t>(now);
      size_ += static_cast<uint64_t>(now);
    } else if (const int error = errno; error != EINTR && !tried.Again(error)) {
      return ToIoStatus("appending to file", path_, error);
    }
  }
  return IOStatus::OK();
}

IOStatus WaitingFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) {
    return ToIoStatus("truncating file", path_, errno);
  }
  size_ = size;
  return IOStatus::OK();
}

// Truncating to the current size frees nothing in some file systems; punching a hole does.
void WaitingFile::FreeAllocated() {
  size_t block_bytes = 0;
  size_t last_block = 0;
  GetPreallocationStatus(&block_bytes, &last_block);
  const uint64_t allocated = static_cast<uint64_t>(block_bytes) * last_block;
  if (allocated <= size_) return;
  if (ftruncate(fd_, static_cast<off_t>(size_)) != 0) return;  // it is only about room
  (void)fallocate(fd_, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, static_cast<off_t>(size_),
                  static_cast<off_t>(allocated - size_));
}

IOStatus WaitingFile::Close(const IOOptions&, IODebugContext*) {
  if (fd_ < 0) return IOStatus::OK();
  FreeAllocated();
  const int fd = std::exchange(fd_, -1);
  return Done(close(fd), "closing file");
}

IOStatus WaitingFile::InvalidateCache(size_t offset, size_t length) {
  const int error = posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length),
                                  POSIX_FADV_DONTNEED);
  return error == 0 ? IOStatus::OK() : ToIoStatus("dropping pages of", path_, error);
}

IOStatus WaitingFile::RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                                IODebugContext* debug) {
  // Strict: waits for all earlier writes, so that they do not pile up.
  const int result = strict_bytes_per_sync_
                         ? sync_file_range(fd_, 0, static_cast<off_t>(offset + bytes),
                                           SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE)
                         : sync_file_range(fd_, static_cast<off_t>(offset),
                                           static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
  if (result != 0 && errno == ENOSYS)
    return FSWritableFile::RangeSync(offset, bytes, options, debug);
  return Done(result, "syncing a range of");
}

// A hint: RocksDB continues if it fails.
IOStatus WaitingFile::Allocate(uint64_t offset, uint64_t bytes, const IOOptions&, IODebugContext*) {
  if (!allocates_) return IOStatus::OK();
  return Done(
      fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)),
      "allocating for");
}

class WaitingFileSystem : public rocksdb::FileSystemWrapper {
 public:
  WaitingFileSystem(const std::string& dir, RocksRoom* room)
      : FileSystemWrapper(FileSystem::Default()),
        prefix_(absl::StrCat(absl::StripSuffix(dir, "/"), "/")),
        room_(room) {}
  const char* Name() const override { return "HotbedWaitingFileSystem"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext* debug) override;
  // For the store's small files, which are written under another name and then renamed.
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override;

 private:
  // The path in the store's folder; empty: it lies elsewhere.
  absl::string_view NameOf(absl::string_view path) const {
    if (!absl::ConsumePrefix(&path, prefix_)) return "";
    return path.substr(std::min(path.find_first_not_of('/'), path.size()));
  }
  bool Waits(absl::string_view path) const {
    const absl::string_view name = NameOf(path);
    return !name.empty() && !absl::StrContains(name, '/') && !absl::EndsWith(name, ".log");
  }

  const std::string prefix_;
  RocksRoom* const room_;
};

IOStatus WaitingFileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                            std::unique_ptr<FSWritableFile>* file,
                                            IODebugContext* debug) {
  file->reset();
  const bool incoming = absl::StartsWith(NameOf(path), kIncomingFolder);
  if (options.use_direct_writes || options.use_mmap_writes || !(incoming || Waits(path))) {
    return target()->NewWritableFile(path, options, file, debug);
  }
  RocksRoom* const room = incoming ? nullptr : room_;
  RocksRoom::Try tried(room, path);
  for (;;) {
    const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, kFileMode);
    if (fd >= 0) {
      *file = std::make_unique<WaitingFile>(room, path, fd, options);
      return IOStatus::OK();
    }
    const int error = errno;
    if (error != EINTR && !tried.Again(error)) return ToIoStatus("opening file", path, error);
  }
}

IOStatus WaitingFileSystem::RenameFile(const std::string& from, const std::string& to,
                                       const IOOptions&, IODebugContext*) {
  RocksRoom::Try tried(room_, to);
  while (rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    if (error != EINTR && (!Waits(to) || !tried.Again(error))) {
      return ToIoStatus("renaming file", absl::StrCat(from, " to ", to), error);
    }
  }
  return IOStatus::OK();
}

}  // namespace

std::shared_ptr<rocksdb::FileSystem> NewWaitingFileSystem(const std::string& dir, RocksRoom* room) {
  return std::make_shared<WaitingFileSystem>(dir, room);
}

}  // namespace hotbed
