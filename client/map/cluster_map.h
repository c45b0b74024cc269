// What the client knows of the cluster: tables, who owns each shard, where servers listen. An
// immutable value; the holder swaps whole maps, and never takes a shard to a lower epoch (reference
// page, section 3.10).
#ifndef HOTBED_CLIENT_MAP_CLUSTER_MAP_H_
#define HOTBED_CLIENT_MAP_CLUSTER_MAP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/map/shard_locator.h"
#include "common/shard_record.h"
#include "common/table_spec.h"

namespace hotbed {

struct ServerAddress {
  ServerId server = 0;
  Incarnation incarnation = 0;
  std::string address;             // host:port of the data port
  uint64_t message_bytes_max = 0;  // that it accepts; 0: it did not say
  bool live = true;                // as far as the coordinator knows
};

// News from the coordinator: everything, or (`delta`) what differs from the revision that was known
// up to `plan_revision`. A delta without a plan_revision is the answer to a call that created or
// dropped a table: it tells of that table only, as of `tables_revision`, and of nothing else that
// may have happened up to there.
struct MapUpdate {
  std::string cluster_id;
  uint64_t plan_revision = 0;
  uint64_t tables_revision = 0;
  bool delta = false;
  std::vector<TableSpec> tables;
  std::vector<ShardRecord> shards;
  std::vector<ServerAddress> servers;
  std::vector<TableId> tables_dropped;
};

struct TableRoute {
  TableSpec spec;
  std::vector<ShardRecord> shards;  // by index; all there, tiling the table slice by slice
  ShardLocator locator;  // of a position: the index of its shard in the first slice of columns

  uint32_t ranges() const { return locator.shard_count(); }  // shards of one column slice
  uint32_t slices() const { return static_cast<uint32_t>(shards.size()) / ranges(); }
  // The shard of slice `slice` that holds what shard `in_first` of the first slice holds.
  uint32_t ShardOf(uint32_t slice, uint32_t in_first) const { return slice * ranges() + in_first; }
};

class ClusterMap {
 public:
  // Null when there is no such table, or not all its shards are known yet.
  const TableRoute* Table(TableId table) const;
  const TableRoute* Table(const std::string& name) const;
  // Null when unknown.
  const ServerAddress* Server(ServerId server) const;
  const absl::flat_hash_map<ServerId, ServerAddress>& servers() const { return servers_; }
  const ShardRecord* Shard(ShardId shard) const;

  // Everything that happened up to here is in this map; of later things some may be.
  uint64_t plan_revision() const { return plan_revision_; }
  // The least of what the servers accept, 0 where none said: what suits every server that a shard
  // may move to.
  uint64_t message_bytes_max() const { return message_bytes_max_; }
  const std::string& cluster_id() const { return cluster_id_; }
  std::vector<TableSpec> Specs() const;  // by id

 private:
  friend class ClusterMapHolder;
  void CountLimits();

  std::string cluster_id_;
  uint64_t plan_revision_ = 0;
  uint64_t message_bytes_max_ = 0;
  absl::flat_hash_map<TableId, std::shared_ptr<const TableRoute>> tables_;
  absl::flat_hash_map<ServerId, ServerAddress> servers_;
};

using ClusterMapPtr = std::shared_ptr<const ClusterMap>;

// Thread-safe.
class ClusterMapHolder {
 public:
  ClusterMapHolder() : map_(std::make_shared<ClusterMap>()) {}

  ClusterMapPtr Get() const {
    absl::MutexLock lock(&mu_);
    return map_;
  }
  // Merges. Left out: records older than those known, maps older than the one held, and what an
  // older map says of a table that was created or dropped after it.
  void Apply(const MapUpdate& update);
  // A record that came with WRONG_EPOCH. False if it says nothing new.
  bool ApplyRecord(const ShardRecord& record) { return ApplyRecords({&record, 1}) > 0; }
  // Of one answer, at once: each change copies the tables that it is in. How many said something
  // new.
  size_t ApplyRecords(absl::Span<const ShardRecord> records);

 private:
  // Shards of tables that are not complete yet wait here.
  struct PartialTable {
    TableSpec spec;
    absl::flat_hash_map<uint32_t, ShardRecord> shards;
  };
  // What a call of this client did to a table before the map went that far; until it does.
  struct Ahead {
    uint64_t revision = 0;
    bool dropped = false;
  };
  // True if a map of `revision` may not know yet that `table` was created (or `dropped`).
  bool IsAhead(TableId table, bool dropped, uint64_t revision) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteAhead(const MapUpdate& update) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MergeTable(ClusterMap* next, const TableSpec* spec, TableId table,
                  const std::vector<const ShardRecord*>& records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  ClusterMapPtr map_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<TableId, PartialTable> partial_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<TableId, Ahead> ahead_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_CLUSTER_MAP_H_
