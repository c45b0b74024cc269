// CATALOG: the tables and shards that a data directory holds. A restart recovers them from its own
// disk before the coordinator tells it what it owns. The file is written atomically and synced
// whenever a table or shard is added, changed or dropped. A plain value, not thread-safe.
//
// Format, little-endian: "HOTBDCAT", u32 version, tables, shards (catalog_file.cc), u32 CRC-32C of
// all bytes before it; then what every KeptFile ends with.
#ifndef HOTBED_SERVER_HOST_CATALOG_FILE_H_
#define HOTBED_SERVER_HOST_CATALOG_FILE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/files/kept_file.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

struct Catalog {
  std::map<TableId, TableSpec> tables;
  std::map<ShardId, ShardRange> shards;  // each of a table above
  // A subset of `shards`: their rows are being received or deleted, so they are incomplete here.
  std::set<ShardId> installing;
  // Log records of a shard before this position belong to an earlier replica, which was deleted.
  // A shard without an entry never had one.
  std::map<ShardId, LogPosition> log_from;
  LogPosition LogFrom(ShardId shard) const;
  // Shards that were cut from another one here, until what they inherited is durable under their
  // own names: before their position in `log_from` their records are those of `parent`, from `from`
  // on.
  struct Cut {
    ShardId parent;
    LogPosition from;
  };
  std::map<ShardId, Cut> cuts;
  // Shards that were merged from two here, until their state is durable under their own names.
  // Before, it is under the name MergedName. In a table of class checkpoint, which a crash takes
  // back to its last checkpoint, recovery makes it once more of the states of both parts there.
  struct Merge {
    ShardId with;                  // the upper part, whose state is still under its name
    uint64_t boundary = 0;         // its first row or bucket
    LogEnd base;                   // with which the merged shard began here
    std::vector<ShardLane> lanes;  // of the shard as it was merged
  };
  std::map<ShardId, Merge> merges;
  static ShardId MergedName(ShardId shard) { return {shard.table, shard.index | 1u << 31}; }
  // ShardRecord::lanes, of the shards that have some.
  std::map<ShardId, std::vector<ShardLane>> lanes;
  void NoteRange(const ShardRecord& record);
  // Whether the shard still inherits from another one here, or another one from it.
  bool InCut(ShardId shard) const { return cuts.contains(shard) || IsCutFrom(shard); }
  // Whether another shard here still inherits from it.
  bool IsCutFrom(ShardId shard) const;
  // Whether rows of the range lie here under another shard of the table: one that the shard was cut
  // from, and that was not cut here yet.
  bool HoldsUnderAnother(ShardId shard, const ShardRange& range) const;

  std::string Serialize() const;
  // DataLoss: damaged. FailedPrecondition: another version, both named.
  static absl::StatusOr<Catalog> Parse(absl::string_view bytes);

  // NotFound: there is no file. Others as Parse and KeptFile::Read.
  static absl::StatusOr<Catalog> Load(KeptFile* file);
  absl::Status Save(KeptFile* file) const { return file->Write(Serialize()); }
  // The shard is not held here any more.
  void Forget(ShardId shard);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_CATALOG_FILE_H_
