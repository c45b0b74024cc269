// A snapshot of a shard: its rows as they are read for another server (docs/protocol.md,
// snapshots).
#ifndef HOTBED_SERVER_SHARD_SHARD_SNAPSHOT_H_
#define HOTBED_SERVER_SHARD_SHARD_SNAPSHOT_H_

#include <memory>
#include <string>

#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "server/tiers/api/rows.h"

namespace hotbed {

struct SnapshotBase {
  Epoch epoch = 0;
  Lsn lsn = 0;  // each row is as of this LSN or later, and stamped with its own
  std::string meta;
};

struct Snapshot {
  SnapshotBase base;
  std::unique_ptr<ShardRowReader> rows;  // must not outlive the shard
};

class Shard;

// The rows of a shard as they were in one moment, while they wait to be copied.
struct TakenRows {
  std::shared_ptr<Shard> shard;
  ShardRange range;
  Epoch epoch = 0;
  Lsn above = 0;  // not 0: only rows that have changed since
  Snapshot still;
};

// A pass of a copy of the shard (snapshot_source.h).
struct CopyPass : Snapshot {
  bool at_once = false;  // rows and base are of one moment: the copy is complete with this pass
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SHARD_SNAPSHOT_H_
