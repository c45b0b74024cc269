// One shard as the metrics, /statusz and heartbeats show it. Its fields may be read some
// microseconds apart.
#ifndef HOTBED_SERVER_SHARD_SHARD_STATUS_H_
#define HOTBED_SERVER_SHARD_SHARD_STATUS_H_

#include <cstdint>
#include <string>

#include "common/ids.h"
#include "common/status_numbers.h"
#include "server/tiers/api/tiered_store.h"

namespace hotbed {

struct ShardStatus {
  ShardId shard;
  std::string table;
  Epoch epoch = 0;
  bool active = false;
  bool read_only = false;
  std::string error;     // why it is not served, or an update waits; or empty
  bool refused = false;  // until a restart
  Lsn applied_lsn = 0;
  Lsn durable_row_lsn = 0;  // rows up to here are in SSTs; the log below is not needed
  uint64_t sessions = 0;
  uint64_t committed_step = 0;  // of a synchronous table; 0: none yet
  uint64_t staged_bytes = 0;    // pushes that wait for their step's commit
  uint64_t rows_pulled = 0;
  uint64_t rows_pushed = 0;
  StoreStats store;
  bool rows_counted = false;  // `rows` is known
  uint64_t rows = 0;          // that exist, in all tiers
  uint64_t rows_expired = 0;  // that this replica, as the primary, has deleted since it was opened
  uint64_t rows_evicted = 0;  // likewise, beyond the table's limit
  uint64_t delete_marks = 0;  // marks of deleted rows in the spill tier, at most
  uint64_t bytes = 0;         // of weights and state, in all tiers; an estimate
  bool primary = false;       // else a backup or a learner
  uint64_t followers = 0;     // in the acknowledging set
  Lsn commit_lsn = 0;
  uint64_t tail_bytes = 0;  // records kept in memory for other replicas

  // /api/status shows them per shard; the metrics are sums over the shards of a table.
  StatusNumbers Numbers() const;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SHARD_STATUS_H_
