#include "planner/coordinator/shell/backup_folder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr char kPrefix[] = "hotbed-metadata-";
constexpr char kSuffix[] = ".backup";

Counter& Written() {
  static Counter counter("hotbed_coordinator_backups_total",
                         "Backups of the metadata that were written to --backup-dir.");
  return counter;
}

Counter& Failures() {
  static Counter counter("hotbed_coordinator_backup_failures_total",
                         "Backups of the metadata that could not be written.");
  return counter;
}

}  // namespace

void BackupFolder::Tick(int64_t now_ns, int64_t unix_ms) {
  if (options_.path.empty() || now_ns < next_ns_) return;
  next_ns_ = now_ns + options_.interval_ms * 1'000'000;
  Failures().Add(0);
  if (const absl::Status written = Write(unix_ms); !written.ok()) {
    Failures().Add(1);
    HOTBED_LOG_EVERY_S(Error, 10) << "no backup of the metadata: " << written;
  }
}

absl::Status BackupFolder::Write(int64_t unix_ms) {
  HOTBED_ASSIGN_OR_RETURN(std::string content, make_());
  if (content.empty() || content == last_) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(files_->MakeDir(options_.path));
  // Names sort by time.
  const std::string name = absl::StrCat(
      kPrefix,
      absl::FormatTime("%Y%m%dT%H%M%E3SZ", absl::FromUnixMillis(unix_ms), absl::UTCTimeZone()),
      kSuffix);
  HOTBED_RETURN_IF_ERROR(files_->WriteAtomically(absl::StrCat(options_.path, "/", name), content));
  last_ = std::move(content);
  Written().Add(1);
  HOTBED_ASSIGN_OR_RETURN(std::vector<std::string> names, files_->List(options_.path));
  std::erase_if(names, [](const std::string& one) {
    return !absl::StartsWith(one, kPrefix) || !absl::EndsWith(one, kSuffix);
  });
  const size_t keep = static_cast<size_t>(std::max<int64_t>(1, options_.keep));
  for (size_t i = 0; i + keep < names.size(); ++i) {
    HOTBED_RETURN_IF_ERROR(files_->Delete(absl::StrCat(options_.path, "/", names[i])));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
