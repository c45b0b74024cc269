// IDENTITY: whose data directory this is, in which format, and how the last run ended. A text file
// of `key: value` lines that a person can read, with a checksum at its end.
//
// `clean_shutdown` is set by an orderly shutdown and cleared at the next start: the spill of class
// `checkpoint` tables is believed only when it was set (DECISIONS L8). `boot_id` names the run of
// the machine that wrote the directory: when it differs from BootId, bytes that were not synced may
// be lost (ShardLogOptions::rebooted).
#ifndef HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_
#define HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "common/ids.h"

namespace hotbed {

// Of the data directory as a whole.
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

// Of the running machine; empty where the system does not tell, which never equals a stored one.
std::string BootId(FileSystem* files);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_
