// The file IDENTITY: which server a data directory belongs to, its format, and how the last run
// ended. A text file of `key: value` lines that a person can read, with a checksum at its end.
//
// An orderly shutdown sets `clean_shutdown` and the next start clears it: spilled rows of tables of
// class `checkpoint` are used only if it was set, since those tables have no log to repair them.
// `boot_id` names the run of the machine that wrote the directory: if it differs from BootId, bytes
// that were not synced may be lost (ShardLogOptions::rebooted).
//
// Each start of a server has a number, one more than the start before, and a random id, its run.
// Both are durable before the server registers. The coordinator keeps the run that it registered
// last: it accepts a start only if that run is this one or among `runs_before`, so that a copy of a
// directory cannot act beside its original, nor after a later start of it.
#ifndef HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_
#define HOTBED_SERVER_SHARD_LOG_IDENTITY_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/file_system.h"
#include "common/ids.h"

namespace hotbed {

// Version of the data directory as a whole.
inline constexpr int kDataFormatVersion = 3;

struct IdentityFile {
  ServerId server = 0;     // 0 until the coordinator has named this server
  std::string cluster_id;  // empty until then
  // How often a coordinator that had lost the cluster's metadata rebuilt them from servers.
  uint64_t generation = 0;
  // All servers of the cluster that this one has heard of, with their names.
  std::map<ServerId, std::string> servers;
  bool clean_shutdown = false;
  std::string boot_id;
  // A start has got as far as recovery: every file of the directory must be there from then on.
  bool made = false;
  uint64_t start = 0;  // number of the last start
  uint64_t run = 0;    // its id; 0: none yet
  // The runs that the coordinator may have registered last, before this one: the last that is known
  // to have registered, and those since, the newest last.
  std::vector<uint64_t> runs_before;
  static constexpr size_t kRunsBeforeMax = 64;

  // Begins the next start.
  void NextRun(uint64_t id);

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
