// The parameters of one shard, fixed when it is made.
#ifndef HOTBED_SERVER_SHARD_SHARD_OPTIONS_H_
#define HOTBED_SERVER_SHARD_SHARD_OPTIONS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/shared_value.h"
#include "common/tables/shard_record.h"
#include "common/threads/strand.h"
#include "common/threads/thread_pool.h"
#include "server/protocol/core_messages.h"
#include "server/shard/change_feed.h"
#include "server/shard/replica/replica_budget.h"
#include "server/shard/replica/replica_outlet.h"
#include "server/shard_log/shard_log.h"
#include "server/tiers/api/host.h"

namespace hotbed {

struct ShardOptions {
  SharedValue<TableSpec> table;
  ShardId id;
  ShardRange range;
  TierHost* tiers = nullptr;
  ShardLog* log = nullptr;  // null: durability class checkpoint
  ThreadPool* pool = nullptr;
  const Clock* clock = nullptr;
  uint32_t ids_max = 1u << 20;  // per segment
  // Pulls that wait for an LSN; likewise pushes that wait for the shard to become active.
  uint32_t parked_max = 1024;
  Strand::Options strand;
  ShardCoreOptions core;
  // The host sets it while the log is over its limit: pushes are refused until rows were written
  // back. Null: never.
  const std::atomic<bool>* log_full = nullptr;
  // Bytes that all shards of the server keep staged; beyond the limit pushes to synchronous tables
  // get RESOURCE_EXHAUSTED. Null: no limit.
  std::shared_ptr<std::atomic<int64_t>> staged_bytes;
  uint64_t staged_bytes_max = 0;
  // The same of the sessions that all shards remember; beyond the limit new ones are refused.
  std::shared_ptr<std::atomic<int64_t>> session_bytes;
  uint64_t session_bytes_max = 0;

  // All feeds of the server share it; null: nobody can follow the shard.
  std::shared_ptr<ChangeMemory> change_memory;

  bool SessionsFull() const {
    return session_bytes != nullptr &&
           static_cast<uint64_t>(session_bytes->load(std::memory_order_relaxed)) >=
               session_bytes_max;
  }
  // The way to other replicas; outlives the shard's work. Null: the shard never has any.
  ReplicaOutlet* outlet = nullptr;
  ReplicaBudget* replica_budget = nullptr;  // set with `outlet`
  bool installed = false;                   // the rows came with a snapshot, just now
  // Set: this replica goes on from one that was open until now, as its shard was cut.
  struct Continued {
    bool proven = false;  // its log was known to agree with its primary's
    Lsn durable_lsn = 0;  // the rows and the meta are on the disk up to here
  };
  std::optional<Continued> continued;

  SpillShard Spilled() const { return SpillShard(table, range, id); }
  // For messages: "table NAME, shard N".
  std::string Name() const { return absl::StrCat("table ", table->name, ", ", id.ToString()); }
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_SHARD_OPTIONS_H_
