#include "common/files/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

absl::Status Failed(absl::string_view action, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", action, " ", path));
}

// A lack of descriptors passes: connections are limited, and close.
constexpr int kDescriptorWaitsMax = 200;
constexpr int64_t kDescriptorWaitNs = 10'000'000;

// open() that continues after a signal, and waits for up to 2 s for a descriptor: a file that
// cannot be opened for want of one is not a failed disk. -1 and errno on failure.
int Open(const std::string& path, int flags) {
  for (int waits = 0;;) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    if (errno == EINTR) continue;
    if ((errno != EMFILE && errno != ENFILE) || ++waits > kDescriptorWaitsMax) return -1;
    Clock::Real()->SleepNs(kDescriptorWaitNs);
  }
}

class PosixFile : public WritableFile {
 public:
  PosixFile(int fd, std::string path, uint64_t size)
      : fd_(fd), path_(std::move(path)), size_(size) {}
  ~PosixFile() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Append(absl::Span<const struct iovec> pieces) override {
    HOTBED_RETURN_IF_ERROR(CheckOpen());
    std::vector<iovec> rest(pieces.begin(), pieces.end());
    size_t next = 0;
    while (true) {
      while (next < rest.size() && rest[next].iov_len == 0) ++next;
      if (next == rest.size()) return absl::OkStatus();
      const int count = static_cast<int>(std::min<size_t>(rest.size() - next, IOV_MAX));
      const ssize_t written = pwritev(fd_, &rest[next], count, static_cast<off_t>(size_));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed(absl::StrCat("append at byte ", size_, " of"), path_);
      size_ += written;
      size_t left = written;
      while (left > 0) {  // a short write ends inside a piece
        const size_t taken = std::min(left, rest[next].iov_len);
        rest[next].iov_base = static_cast<char*>(rest[next].iov_base) + taken;
        rest[next].iov_len -= taken;
        left -= taken;
        if (rest[next].iov_len == 0) ++next;
      }
    }
  }

  // Ignored: a full disk, or one without fallocate, is reported when the bytes are written.
  void ExpectAppends(uint64_t bytes) override {
#if defined(FALLOC_FL_KEEP_SIZE)
    if (fd_ < 0) return;
    (void)fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size_), static_cast<off_t>(bytes));
#endif
  }

  absl::Status Sync() override {
    HOTBED_RETURN_IF_ERROR(CheckOpen());
    return fdatasync(fd_) == 0 ? absl::OkStatus() : Failed("sync", path_);
  }

  absl::Status Truncate(uint64_t size) override {
    HOTBED_RETURN_IF_ERROR(CheckOpen());
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return Failed("truncate", path_);
    size_ = size;
    return absl::OkStatus();
  }

  uint64_t size() const override { return size_; }

  absl::Status Close() override {
    HOTBED_RETURN_IF_ERROR(CheckOpen());
    const int fd = std::exchange(fd_, -1);
    return close(fd) == 0 ? absl::OkStatus() : Failed("close", path_);
  }

 private:
  absl::Status CheckOpen() const {
    return fd_ >= 0 ? absl::OkStatus()
                    : absl::FailedPreconditionError(absl::StrCat(path_, " is closed already"));
  }

  int fd_;
  std::string path_;
  uint64_t size_;
};

// Asks for one byte per page of a mapped file, whether the page is in memory. A last page that the
// file fills in part does not count: where blocks are shorter than pages, the system says that a
// page is not in memory until all of its blocks are written.
bool AllPagesInMemory(int fd, uint64_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return false;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  const bool known = mincore(data, bytes, pages.data()) == 0;
  munmap(data, bytes);
  pages.resize(bytes / page);
  return known && std::all_of(pages.begin(), pages.end(), [](unsigned char c) { return c & 1; });
}

class PosixSharedFile : public SharedFile {
 public:
  PosixSharedFile(int fd, std::string path, char* data, uint64_t bytes)
      : fd_(fd), path_(std::move(path)), data_(data), bytes_(bytes) {}
  ~PosixSharedFile() override {
    munmap(data_, bytes_);
    close(fd_);
  }
  char* data() override { return data_; }
  absl::Status Sync() override {
    if (msync(data_, bytes_, MS_SYNC) != 0) return Failed("sync", path_);
    return fdatasync(fd_) == 0 ? absl::OkStatus() : Failed("sync", path_);
  }

 private:
  const int fd_;
  const std::string path_;
  char* const data_;
  const uint64_t bytes_;
};

absl::StatusOr<std::unique_ptr<PosixFile>> OpenPosix(const std::string& path, int flags) {
  const int fd = Open(path, flags);
  if (fd < 0) return Failed("open", path);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const absl::Status status = Failed("stat", path);
    close(fd);
    return status;
  }
  return std::make_unique<PosixFile>(fd, path, static_cast<uint64_t>(info.st_size));
}

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override {
    return OpenPosix(path, O_CREAT | O_WRONLY);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAt(const std::string& path,
                                                       uint64_t offset) override {
    const int fd = Open(path, O_WRONLY);
    if (fd < 0) return Failed("open", path);
    return std::make_unique<PosixFile>(fd, path, offset);
  }

  absl::StatusOr<std::unique_ptr<SharedFile>> OpenShared(const std::string& path,
                                                         uint64_t bytes) override {
    const int fd = Open(path, O_CREAT | O_RDWR);
    if (fd < 0) return Failed("open", path);
    // Blocks are allocated now: a store into a hole of a full disk would kill the process.
    int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    void* data = MAP_FAILED;
    if (error == 0) {
      data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (data == MAP_FAILED) error = errno;
    }
    if (data == MAP_FAILED) {
      close(fd);
      errno = error;
      return Failed("map", path);
    }
    return std::make_unique<PosixSharedFile>(fd, path, static_cast<char*>(data), bytes);
  }

  absl::StatusOr<std::string> ReadAll(const std::string& path) override {
    HOTBED_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
    std::string content(size, '\0');
    HOTBED_ASSIGN_OR_RETURN(const uint64_t got, ReadAt(path, 0, size, content.data()));
    content.resize(got);
    return content;
  }

  absl::StatusOr<uint64_t> ReadAt(const std::string& path, uint64_t offset, uint64_t bytes,
                                  char* out) override {
    const int fd = Open(path, O_RDONLY);
    if (fd < 0) return Failed("open", path);
    uint64_t got = 0;
    while (got < bytes) {
      const ssize_t n = pread(fd, out + got, bytes - got, static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const absl::Status status =
            Failed(absl::StrCat("read at byte ", offset + got, " of"), path);
        close(fd);
        return status;
      }
      if (n == 0) break;
      got += n;
    }
    close(fd);
    return got;
  }

  absl::Status WriteAtomically(const std::string& path, absl::string_view content) override {
    const std::string temporary = absl::StrCat(path, ".tmp");
    HOTBED_ASSIGN_OR_RETURN(auto file, OpenPosix(temporary, O_CREAT | O_WRONLY | O_TRUNC));
    const iovec piece = {const_cast<char*>(content.data()), content.size()};
    HOTBED_RETURN_IF_ERROR(file->Append({&piece, 1}));
    HOTBED_RETURN_IF_ERROR(file->Sync());
    HOTBED_RETURN_IF_ERROR(file->Close());
    if (rename(temporary.c_str(), path.c_str()) != 0) return Failed("rename to", path);
    return SyncDir(ParentOf(path));
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override {
    DIR* const handle = opendir(dir.c_str());
    if (handle == nullptr) return Failed("list", dir);
    std::vector<std::string> names;
    while (const dirent* entry = readdir(handle)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    closedir(handle);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                 : Failed(absl::StrCat("rename ", from, " to"), to);
  }

  bool InMemory(const std::string& path) override {
    const absl::StatusOr<uint64_t> bytes = FileSize(path);
    if (!bytes.ok()) return false;
    if (*bytes == 0) return true;
    const int fd = Open(path, O_RDONLY);
    if (fd < 0) return false;
    const bool in_memory = AllPagesInMemory(fd, *bytes);
    close(fd);
    return in_memory;
  }

  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return Failed("stat", path);
    return static_cast<uint64_t>(info.st_size);
  }

  absl::Status Delete(const std::string& path) override {
    return remove(path.c_str()) == 0 ? absl::OkStatus() : Failed("delete", path);
  }

  absl::Status MakeDir(const std::string& path) override {
    if (mkdir(path.c_str(), 0700) == 0) return SyncDir(ParentOf(path));
    if (errno == ENOENT && ParentOf(path) != path) {
      HOTBED_RETURN_IF_ERROR(MakeDir(ParentOf(path)));
      if (mkdir(path.c_str(), 0700) == 0) return SyncDir(ParentOf(path));
    }
    struct stat info;
    if (errno == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      return absl::OkStatus();
    }
    return Failed("make directory", path);
  }

  absl::Status SyncDir(const std::string& path) override {
    const int fd = Open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return Failed("open directory", path);
    // Some file systems refuse to sync a directory and do not need it.
    const bool synced = fsync(fd) == 0 || errno == EINVAL;
    const absl::Status status = synced ? absl::OkStatus() : Failed("sync directory", path);
    close(fd);
    return status;
  }

  bool Exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

  absl::StatusOr<uint64_t> FreeBytes(const std::string& dir) override {
    struct statvfs disk {};
    if (statvfs(dir.c_str(), &disk) != 0) return Failed("statvfs", dir);
    return uint64_t{disk.f_bavail} * disk.f_frsize;
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Lock(const std::string& path) override {
    // A link that somebody put there must not cause another file to be truncated.
    const int fd = Open(path, O_CREAT | O_RDWR | O_NOFOLLOW);
    if (fd < 0 && errno == ELOOP) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is a symbolic link, and a lock must be a file: remove it"));
    }
    if (fd < 0) return Failed("open", path);
    auto file = std::make_unique<PosixFile>(fd, path, 0);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return Failed("lock", path);
      const absl::StatusOr<std::string> holder = ReadAll(path);
      return absl::AlreadyExistsError(
          absl::StrCat(path, " is locked by ",
                       holder.ok() && !holder->empty() ? "process " + *holder : "a process",
                       ": stop it or use another directory"));
    }
    HOTBED_RETURN_IF_ERROR(file->Truncate(0));
    const std::string pid = absl::StrCat(getpid());
    const iovec piece = {const_cast<char*>(pid.data()), pid.size()};
    HOTBED_RETURN_IF_ERROR(file->Append({&piece, 1}));
    return file;
  }
};

}  // namespace

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

FileSystem* FileSystem::Real() {
  static PosixFileSystem* const file_system = new PosixFileSystem;
  return file_system;
}

}  // namespace hotbed
