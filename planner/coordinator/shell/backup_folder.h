// Backups of the metadata in a folder: a new one now and then if the metadata have changed, and the
// newest ones kept. Confined to one thread.
#ifndef HOTBED_PLANNER_COORDINATOR_SHELL_BACKUP_FOLDER_H_
#define HOTBED_PLANNER_COORDINATOR_SHELL_BACKUP_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/file_system.h"

namespace hotbed {

struct BackupFolderOptions {
  std::string path;  // empty: no backups
  int64_t interval_ms = 60'000;
  int64_t keep = 24;  // files
};

class BackupFolder {
 public:
  // Makes the content of a backup; empty: there is nothing to be kept, and no file is written.
  using Make = std::function<absl::StatusOr<std::string>()>;

  BackupFolder(BackupFolderOptions options, Make make, FileSystem* files)
      : options_(std::move(options)), make_(std::move(make)), files_(files) {}

  // Writes a backup if one is due. An error is counted and logged, and the next backup is tried
  // after an interval.
  void Tick(int64_t now_ns, int64_t unix_ms);

 private:
  absl::Status Write(int64_t unix_ms);

  const BackupFolderOptions options_;
  const Make make_;
  FileSystem* const files_;
  int64_t next_ns_ = 0;
  std::string last_;  // content of the last one written
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_SHELL_BACKUP_FOLDER_H_
