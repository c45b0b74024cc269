// The file IDENTITY: which server a data directory belongs to, its format, and how the last run
// ended. A text file of `key: value` lines that a person can read, with a checksum at its end.
//
// An orderly shutdown sets `clean_shutdown` and the next start clears it: spilled rows of tables of
// class `checkpoint` are used only if it was set, since those tables have no log to repair them.
// `boot_id` names the run of the machine that wrote the directory: if it differs from BootId, bytes
// that were not synced may be lost (ShardLogOptions::rebooted).
#ifndef HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_
#define HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/ids.h"

namespace hotbed {

// Version of the data directory as a whole.
inline constexpr int kDataFormatVersion = 1;

struct IdentityFile {
  ServerId server = 0;     // 0 until the coordinator has named this server
  std::string cluster_id;  // empty until then
  bool clean_shutdown = false;
  std::string boot_id;

  // NotFound: a new directory. FailedPrecondition: another version, both named. DataLoss: damaged.
  static absl::StatusOr<IdentityFile> Load(const std::string& path, FileSystem* files);
  // Atomic and durable. InvalidArgument: a line break in a field.
  absl::Status Save(const std::string& path, FileSystem* files) const;
};

// The boot id of the running machine. Empty where the system has none; an empty id never equals a
// stored one.
std::string BootId(FileSystem* files);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_
