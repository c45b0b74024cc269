#include "cli/doctor/machine_checks.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "config/units.h"
#include "security/certificate.h"

namespace hotbed {
namespace {

constexpr uint64_t kDiskFreeMin = 1ull << 30;
constexpr int64_t kCertificateDaysMin = 30;
// A disk that takes longer makes pushes of --log-sync-interval-ms=0, and etcd, slow.
constexpr absl::Duration kSyncMax = absl::Milliseconds(50);
constexpr int kSyncs = 4;
constexpr size_t kSyncedBytes = 16 << 10;

// The slowest of some writes that are brought onto the disk.
absl::StatusOr<absl::Duration> SyncTime(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/.hotbed-doctor-", getpid());
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, path);
  absl::Duration slowest;
  absl::Status status;
  const std::string block(kSyncedBytes, 'h');
  for (int i = 0; i < kSyncs && status.ok(); ++i) {
    const int64_t begin_ns = Clock::Real()->NowNs();
    if (write(file, block.data(), block.size()) < 0 || fdatasync(file) != 0) {
      status = absl::ErrnoToStatus(errno, path);
    }
    slowest = std::max(slowest, absl::Nanoseconds(Clock::Real()->NowNs() - begin_ns));
  }
  close(file);
  unlink(path.c_str());
  if (!status.ok()) return status;
  return slowest;
}

}  // namespace

Check CheckDisk(const std::string& path) {
  struct statvfs disk {};
  const std::string name = absl::StrCat("disk ", path);
  if (statvfs(path.c_str(), &disk) != 0) return {name, Verdict::kFailed, std::strerror(errno)};
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  const uint64_t all_bytes = uint64_t{disk.f_blocks} * disk.f_frsize;
  const std::string room =
      absl::StrCat(FormatBytes(free_bytes), " free of ", FormatBytes(all_bytes));
  if (free_bytes < kDiskFreeMin) {
    return {name, Verdict::kWarning, absl::StrCat(room, "; logs and spill need more")};
  }
  const absl::StatusOr<absl::Duration> sync = SyncTime(path);
  if (!sync.ok()) {
    return {name, Verdict::kWarning,
            absl::StrCat(room, "; its speed is unknown: ", sync.status().message())};
  }
  const std::string speed =
      absl::StrCat(room, ", a sync takes up to ",
                   absl::FormatDuration(absl::Trunc(*sync, absl::Microseconds(10))));
  if (*sync <= kSyncMax) return {name, Verdict::kOk, speed};
  return {name, Verdict::kWarning,
          absl::StrCat(speed, "; pushes that wait for the disk, and etcd, need a faster one")};
}

Check CheckHugePages() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(in, modes);
  if (modes.empty())
    return {"huge pages", Verdict::kWarning, "this kernel reports nothing about them"};
  if (modes.find("[never]") != std::string::npos) {
    return {"huge pages", Verdict::kWarning,
            "off: gathers run slower; as root: echo madvise > "
            "/sys/kernel/mm/transparent_hugepage/enabled"};
  }
  return {"huge pages", Verdict::kOk, modes};
}

Check CheckCertificate(const ClientIdentity& identity) {
  if (identity.files.certificate.empty()) {
    return {"certificate", Verdict::kOk,
            identity.files.any() ? "none: a token says who calls" : "none: the cluster has no TLS"};
  }
  const auto read = ReadCertificates(identity.files.certificate);
  if (!read.ok()) return {"certificate", Verdict::kFailed, std::string(read.status().message())};
  const Certificate& own = read->front();
  const int64_t days = (own.not_after_s - absl::ToUnixSeconds(absl::Now())) / kDayS;
  return {"certificate", days < kCertificateDaysMin ? Verdict::kWarning : Verdict::kOk,
          absl::StrCat("of \"", own.name, "\", expires in ", days, " days",
                       days < kCertificateDaysMin ? "; make a new one (hotbed cert create)" : "")};
}

}  // namespace hotbed
