// The start of a shard host: opens the shards of the catalog with the rows that the last run left,
// and replays the log into them.
#ifndef HOTBED_SERVER_HOST_RECOVERY_H_
#define HOTBED_SERVER_HOST_RECOVERY_H_

#include <map>

#include "absl/status/status.h"
#include "common/ids.h"
#include "server/host/catalog_file.h"
#include "server/host/data_directory.h"
#include "server/host/shard_directory.h"
#include "server/host/shard_factory.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/host.h"

namespace hotbed {

class Recovery {
 public:
  struct Wiring {
    DataDirectory* data = nullptr;
    ShardDirectory* directory = nullptr;
    const ShardFactory* factory = nullptr;
    TierHost* tiers = nullptr;
    ShardLog* log = nullptr;
  };
  explicit Recovery(const Wiring& wiring) : wiring_(wiring) {}

  // Publishes the recovered shards. Shards whose log is damaged are there, and refuse every
  // request. Blocks until all is replayed: also while the disk is full.
  absl::Status Run();

 private:
  absl::Status RestoreCheckpoints();
  absl::Status WipeIncomplete();
  // Shards that were cut from another one: what they inherited, where it is not on the disk under
  // their own names yet.
  absl::Status InheritMetas();
  // Shards that were merged, likewise.
  absl::Status TakeMergedMetas();
  absl::Status TakeMergedMeta(const Catalog& catalog, ShardId id, const Catalog::Merge& merge);
  absl::Status ReplayLog(const ShardDirectory::Map& map);
  void RetryReplay(const ShardDirectory::Map& map);
  void RefuseDamaged(const ShardDirectory::Map& map);

  const Wiring wiring_;
  std::map<ShardId, absl::Status> damaged_;  // why a state to take over cannot be read
};

// Tries to get a read-only log and a read-only spill tier back to work: a full disk may have space
// again, also where it is the log's spares that took it.
void ResumeWrites(ShardLog* log, TierHost* tiers, const TierHost::Health& health);

}  // namespace hotbed

#endif  // HOTBED_SERVER_HOST_RECOVERY_H_
