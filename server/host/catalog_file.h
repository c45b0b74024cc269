// CATALOG: the tables and shards that this data directory holds, so that a restart recovers them
// from its own disk before anybody tells it what it owns. Written atomically and synced whenever
// one is added, changed or dropped.
//
// Format, little-endian: "HOTBDCAT", u32 version, tables, shards (catalog_file.cc), u32 CRC-32C of
// all before.
#ifndef HOTBED_SERVER_HOST_CATALOG_FILE_H_
#define HOTBED_SERVER_HOST_CATALOG_FILE_H_

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_system.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "common/table_spec.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

struct Catalog {
  std::map<TableId, TableSpec> tables;
  std::map<ShardId, ShardRange> shards;  // each of a table above
  // Of `shards`: their rows are on their way from another server, or being deleted: what is here
  // is not whole.
  std::set<ShardId> installing;
  // Of `shards`: what the log holds of them before is of a copy that was deleted. None: nothing is.
  std::map<ShardId, LogPosition> log_from;

  std::string Serialize() const;
  // DataLoss: damaged; FailedPrecondition: another version, both named.
  static absl::StatusOr<Catalog> Parse(absl::string_view bytes);

  // A missing file is an empty catalog.
  static absl::StatusOr<Catalog> Load(const std::string& path, FileSystem* files);
  absl::Status Save(const std::string& path, FileSystem* files) const;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_CATALOG_FILE_H_
