// The client's view of the cluster: its tables, the replicas of each shard, and the addresses of
// the servers. ClusterMap is an immutable value. ClusterMapHolder replaces whole maps, and never
// moves a shard to a lower epoch: an old map may arrive after a newer record.
#ifndef HOTBED_CLIENT_MAP_CLUSTER_MAP_H_
#define HOTBED_CLIENT_MAP_CLUSTER_MAP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/map/cut_from.h"
#include "client/map/shard_locator.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "proto/data.pb.h"

namespace hotbed {

struct ServerAddress {
  ServerId server = 0;
  Incarnation incarnation = 0;
  std::string address;             // host:port of the data port
  uint64_t message_bytes_max = 0;  // that the server accepts; 0: unknown
  bool live = true;                // in the coordinator's view
};

// A message from the coordinator: the whole map, or (`delta`) the changes from the revision that
// the client knew up to `plan_revision`. A delta without a plan_revision answers a call that
// created or dropped a table: it contains that table as of `tables_revision`, and no other change
// up to that revision.
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
  // The part of a shard's record that a request needs.
  struct Target {
    ServerId primary = 0;
    Epoch epoch = 0;
    uint32_t shard = 0;  // the index of the shard that has the lane
  };

  TableSpec spec;
  // By index: the lanes of the shards (ShardRecord::lanes), each with the record of its shard, but
  // for its own index and range. A shard that was not merged is one lane. They tile the table; an
  // index without a lane has epoch 0.
  std::vector<ShardRecord> shards;
  std::vector<Target> targets;              // of `shards`
  std::map<uint32_t, ShardRecord> records;  // of the shards themselves, by their own index
  // Indexes of the shards, slice by slice, each slice in order of position. A table begins with its
  // shards in this order; a shard that was cut from another one has a later index.
  std::vector<uint32_t> order;
  ShardLocator locator;           // from a position to its range, the same in every column slice
  std::vector<CutFrom> cut_from;  // by index

  // The shards that were merged into this one are forgotten: a shard has its first row as long as
  // it is one.
  void SetShard(const ShardRecord& record);
  // Whether the shard has the range and the lanes that it had.
  bool HasRangeOf(const ShardRecord& record) const;

  uint32_t ranges() const { return locator.shard_count(); }  // shards of one column slice
  uint32_t slices() const { return static_cast<uint32_t>(order.size()) / ranges(); }
  // The shard of column slice `slice` that has the positions of range `range`.
  uint32_t ShardOf(uint32_t slice, uint32_t range) const { return order[slice * ranges() + range]; }
};

class ClusterMap {
 public:
  // Null when there is no such table.
  const TableRoute* Table(TableId table) const;
  const TableRoute* Table(const std::string& name) const;
  // Null when unknown.
  const ServerAddress* Server(ServerId server) const;
  const absl::flat_hash_map<ServerId, ServerAddress>& servers() const { return servers_; }
  const ShardRecord* Shard(ShardId shard) const;

  // The map contains every change up to this revision, and perhaps some later ones.
  uint64_t plan_revision() const { return plan_revision_; }
  // The smallest limit of any server, which suits every server that a shard may move to; 0: no
  // server has named one.
  uint64_t message_bytes_max() const { return message_bytes_max_; }
  // Grows when a shard of any table is cut: what was planned with another number must be planned
  // again.
  uint64_t cuts() const { return cuts_; }
  const std::string& cluster_id() const { return cluster_id_; }
  std::vector<TableSpec> Specs() const;  // by id

 private:
  friend class ClusterMapHolder;
  void CountLimits();

  std::string cluster_id_;
  uint64_t plan_revision_ = 0;
  uint64_t message_bytes_max_ = 0;
  uint64_t cuts_ = 0;
  absl::flat_hash_map<TableId, std::shared_ptr<const TableRoute>> tables_;
  absl::flat_hash_map<ServerId, ServerAddress> servers_;
};

// Finds the targets of shards. Quick where shards of one table are asked for in a row.
class TargetFinder {
 public:
  explicit TargetFinder(const ClusterMap& map) : map_(map) {}  // which outlives it

  // Null when unknown.
  const TableRoute::Target* Of(TableId table, uint32_t shard) {
    if (route_ == nullptr || table != table_) {
      table_ = table;
      route_ = map_.Table(table);
    }
    return route_ == nullptr || shard >= route_->targets.size() ? nullptr : &route_->targets[shard];
  }

 private:
  const ClusterMap& map_;
  const TableRoute* route_ = nullptr;
  TableId table_ = 0;
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
  // Merges. Ignores records older than the known ones, maps older than the current one, and the
  // content of an older map about a table that was created or dropped after it.
  void Apply(const MapUpdate& update);
  // Applies a record that came with WRONG_EPOCH. False if it is not news, or if the shard was cut:
  // the coordinator tells of all its parts together.
  bool ApplyRecord(const ShardRecord& record) { return ApplyRecords({&record, 1}) > 0; }
  // Applies the records of one answer at once, because each change copies its tables. Returns how
  // many records were news.
  size_t ApplyRecords(absl::Span<const ShardRecord> records);
  // The same for the records that came with refusals in the segments [first, first + count) of an
  // answer. Malformed records are left out.
  size_t ApplyRecordsOf(const v1::ReplyHeader& header, uint32_t first, uint32_t count);

 private:
  // A table that a call of this client created or dropped, until the map reaches that revision.
  struct Ahead {
    uint64_t revision = 0;
    bool dropped = false;
  };
  // True if a map of `revision` may lack the creation (or with `dropped` the drop) of `table`.
  bool IsAhead(TableId table, bool dropped, uint64_t revision) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteAhead(const MapUpdate& update) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool TakeCuts(const TableRoute& before, const std::vector<const ShardRecord*>& records,
                       TableRoute* route);
  static void MergeTable(ClusterMap* next, const TableSpec* spec, TableId table,
                         const std::vector<const ShardRecord*>& records);

  mutable absl::Mutex mu_;
  ClusterMapPtr map_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<TableId, Ahead> ahead_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_CLUSTER_MAP_H_
