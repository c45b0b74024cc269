#include "checkpoint/write_fence.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kLockRetryNs = 20 * kMillisecondNs;

absl::Status FenceError(const std::string& path, const char* what) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", what, ": ", strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

}  // namespace

absl::Status WriteFence::Make(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return FenceError(path, "cannot be made");
  close(fd);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WriteFence>> WriteFence::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return FenceError(path, "cannot be opened");
  return std::unique_ptr<WriteFence>(new WriteFence(path, fd));
}

WriteFence::~WriteFence() { close(fd_); }

absl::Status WriteFence::Run(absl::FunctionRef<absl::Status()> write) {
  while (flock(fd_, LOCK_SH) != 0) {
    if (errno != EINTR) return FenceError(path_, "cannot be locked");
  }
  struct stat mine = {}, named = {};
  const bool open = fstat(fd_, &mine) == 0 && mine.st_nlink > 0 &&
                    stat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
                    mine.st_dev == named.st_dev;
  const absl::Status done =
      open ? write() : absl::CancelledError(absl::StrCat(path_, " is gone: others go on"));
  flock(fd_, LOCK_UN);
  return done;
}

absl::Status WriteFence::Close(const std::string& path, absl::Duration patience) {
  auto fence = Open(path);
  if (absl::IsNotFound(fence.status())) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(fence.status());
  const absl::Time until = absl::Now() + patience;
  while (flock((*fence)->fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FenceError(path, "cannot be locked");
    if (absl::Now() >= until) {
      return absl::UnavailableError(absl::StrCat(path, ": a server has been writing a block for ",
                                                 absl::FormatDuration(patience),
                                                 "; is it paused? Try again later"));
    }
    Clock::Real()->SleepNs(kLockRetryNs);
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FenceError(path, "cannot be deleted");
  return absl::OkStatus();
}

}  // namespace hotbed
