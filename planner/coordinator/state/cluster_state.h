// What the metadata store says of the cluster, decoded and indexed: the coordinator's only state
// that outlives it. Built from the store's records and changed only by what was committed there, so
// that it can be thrown away and read again at any time. Also remembers which records changed at
// which revision, for maps that carry only what changed.
//
// Thread-compatible.
#ifndef HOTBED_PLANNER_COORDINATOR_STATE_CLUSTER_STATE_H_
#define HOTBED_PLANNER_COORDINATOR_STATE_CLUSTER_STATE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/control.pb.h"
#include "proto/types.pb.h"

namespace hotbed {

class ClusterState {
 public:
  // A change that maps show. `servers` of a shard: its members and learners before and after, and
  // those before that have not been told of a record that is active without them.
  struct Change {
    enum class Kind { kTable, kShard, kServer, kTableDropped };
    uint64_t revision = 0;
    Kind kind = Kind::kTable;
    uint64_t id = 0;
    std::vector<ServerId> servers;
  };
  struct Session {
    SessionId id = 0;
    Incarnation incarnation = 0;
  };
  struct Counters {
    uint64_t tables = 0;
    uint64_t servers = 0;
    uint64_t sessions = 0;
    uint64_t moves = 0;
  };
  // Of a store that has none: rebalancing is on.
  static v1::MoveControl DefaultMoveControl();
  static constexpr size_t kChangesMax = 65536;  // beyond it a map is sent whole

  // Replaces everything by `kvs`, all keys under keys::kRoot. DataLoss names the record that cannot
  // be decoded.
  absl::Status Reset(const std::vector<KeyValue>& kvs);
  // What a committed transaction did. The operations were encoded by this program, so they decode.
  void Apply(const std::vector<Op>& ops, uint64_t revision);

  // The compare "`key` is as this state has it".
  Compare Unchanged(const std::string& key) const;

  const std::string& cluster_id() const { return cluster_id_; }
  const std::string& format() const { return format_; }
  const std::string& leader() const { return leader_; }
  const Counters& counters() const { return counters_; }
  const absl::btree_map<TableId, v1::TableSpec>& tables() const { return tables_; }
  const absl::btree_map<uint64_t, v1::ShardRecord>& shards() const {
    return shards_;
  }  // by packed id
  const absl::btree_map<ServerId, v1::ServerInfo>& servers() const { return servers_; }
  const absl::btree_map<std::string, Session>& sessions() const { return sessions_; }
  // The last commit of each group of trainers.
  const absl::btree_map<std::string, v1::GroupCommit>& groups() const { return groups_; }
  const absl::btree_map<TableId, std::string>& dropped() const { return dropped_; }

  // By packed id.
  const absl::btree_map<uint64_t, v1::ShardGoal>& goals() const { return goals_; }
  const absl::btree_map<uint64_t, v1::ClusterEvent>& events() const { return events_; }
  const v1::MoveControl& move_control() const { return move_control_; }

  const v1::TableSpec* FindTable(const std::string& name) const;
  const v1::ServerInfo* FindServer(const std::string& name) const;
  const v1::ShardGoal* FindGoal(uint64_t packed) const;
  // "words/3" and "s2": names for people; numbers where there is no such thing.
  std::string ShardName(uint64_t packed) const;
  std::string ServerName(ServerId server) const;
  // A text of DecideShard, which calls members "s2/5" by number and incarnation, with the servers'
  // names in place of their numbers: names often are numbers of another order.
  std::string WithServerNames(absl::string_view text) const;
  std::vector<const v1::ShardRecord*> ShardsOfTable(TableId table) const;
  // Packed ids of the shards in which the server (in any incarnation) is a member or learner.
  const absl::btree_set<uint64_t>& ShardsOfServer(ServerId server) const;
  uint64_t PrimariesOf(ServerId server) const;

  // Shard records whose table is not there: of a creation or a drop that did not finish. At most
  // `limit`.
  std::vector<ShardId> Orphans(size_t limit) const;

  // Of the newest change that a map shows. A coordinator writes the leader key after each time that
  // it read the store, and that counts as a change of everything: what it told before was told in
  // ignorance of what others may have written, and every map that is older is sent whole.
  uint64_t plan_revision() const { return plan_revision_; }
  // Changes after `revision`, oldest first; nullopt when they are not all known (then the whole map
  // is needed).
  std::optional<std::vector<const Change*>> ChangesSince(uint64_t revision) const;

 private:
  absl::Status Put(const std::string& key, const std::string& value, uint64_t revision);
  void Delete(const std::string& key, uint64_t revision);
  absl::Status PutShard(const std::string& key, const std::string& value, uint64_t revision);
  absl::Status PutGoal(const std::string& key, const std::string& value);
  absl::Status PutTable(const std::string& key, const std::string& value, uint64_t revision);
  void EraseShard(ShardId id);
  void IndexShard(const v1::ShardRecord& record, bool add);
  void Note(Change change);

  std::string cluster_id_;
  std::string format_;
  std::string leader_;
  Counters counters_;
  absl::btree_map<TableId, v1::TableSpec> tables_;
  absl::btree_map<std::string, TableId> names_;
  absl::btree_map<uint64_t, v1::ShardRecord> shards_;
  absl::btree_map<ServerId, v1::ServerInfo> servers_;
  absl::btree_map<std::string, Session> sessions_;
  absl::btree_map<std::string, v1::GroupCommit> groups_;
  absl::btree_map<TableId, std::string> dropped_;
  absl::btree_map<uint64_t, v1::ShardGoal> goals_;
  absl::btree_map<uint64_t, v1::ClusterEvent> events_;
  v1::MoveControl move_control_ = DefaultMoveControl();

  absl::flat_hash_map<std::string, uint64_t> mod_revisions_;  // of every key
  absl::flat_hash_map<ServerId, absl::btree_set<uint64_t>> shards_of_server_;
  absl::flat_hash_map<ServerId, uint64_t> primaries_of_server_;
  // Servers that left a shard whose record has not been active since, by packed id.
  absl::flat_hash_map<uint64_t, std::vector<ServerId>> left_;
  absl::btree_map<TableId, uint64_t> orphans_;  // tables that are not there -> their shard records

  uint64_t plan_revision_ = 0;
  uint64_t changes_after_ = 0;  // all later changes are in changes_
  std::deque<Change> changes_;
};

// Every server named by the record, each once.
std::vector<ServerId> ServersOf(const v1::ShardRecord& record);
bool HasMember(const v1::ShardRecord& record, ServerId server);  // in any incarnation
// As the store keeps a record: the key has the revision.
std::string StoredRecord(v1::ShardRecord record);

// The whole map, or (`revision_known` recent enough) what changed since. Server loads and liveness
// are the caller's to add.
v1::ClusterMap BuildMap(const ClusterState& state, uint64_t revision_known);
// The same for one shard server: the shards in which it is or was a member, with their tables, and
// the servers, which are each other's peers. A whole one names every table, and the dropped ones
// that are remembered, so that a server which was away forgets what it names as dropped or not at
// all.
v1::ClusterMap BuildServerMap(const ClusterState& state, ServerId server, uint64_t revision_known);
// Adds to a server's map what became of shards that it holds and does not know of: their records
// with their tables, or that their table was dropped.
void AddUnnamed(const ClusterState& state, const std::vector<uint64_t>& packed,
                v1::ClusterMap* map);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_CLUSTER_STATE_H_
