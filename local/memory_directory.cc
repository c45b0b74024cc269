#include "local/memory_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr char kPrefix[] = "hotbed-memory-";
// A younger directory may belong to a process that is about to lock it.
constexpr int64_t kYoungS = 10;

// A container's /dev/shm is often too small for tables.
constexpr uint64_t kRoomMin = 1ull << 30;

std::string Folder() {
  struct statvfs room;
  if (access("/dev/shm", W_OK | X_OK) == 0 && statvfs("/dev/shm", &room) == 0 &&
      uint64_t{room.f_bavail} * room.f_frsize >= kRoomMin) {
    return "/dev/shm";
  }
  const char* const named = getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

int LockOf(const std::string& path) {
  const int lock = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  if (lock >= 0) close(lock);
  return -1;
}

void DeleteAll(const std::string& path) {
  std::error_code ignored;  // another process may delete the same
  std::filesystem::remove_all(path, ignored);
}

// Directories that no process holds any more.
void DeleteLeftBehind(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (!absl::StartsWith(entry.path().filename().string(), kPrefix)) continue;
    struct stat info;
    if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        time(nullptr) - info.st_mtime < kYoungS) {
      continue;
    }
    const int lock = LockOf(path);
    if (lock < 0) continue;
    DeleteAll(path);
    close(lock);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryDirectory>> MemoryDirectory::Make() {
  const std::string folder = Folder();
  DeleteLeftBehind(folder);
  std::string path = absl::StrCat(folder, "/", kPrefix, "XXXXXX");
  const int lock = mkdtemp(path.data()) == nullptr ? -1 : LockOf(path);
  if (lock < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot make ", path, " for tables in memory: ", strerror(errno),
                     "; set TMPDIR to a folder that can be written, or name a directory"));
  }
  return std::unique_ptr<MemoryDirectory>(new MemoryDirectory(std::move(path), lock));
}

MemoryDirectory::~MemoryDirectory() {
  DeleteAll(path_);
  close(lock_);
}

}  // namespace hotbed
