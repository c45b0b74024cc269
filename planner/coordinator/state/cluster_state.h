// The contents of the metadata store, decoded and indexed: the coordinator's only state that
// outlives its process. It is built from the store's records and changed only by committed
// transactions, so it can be thrown away and read again at any time. It also remembers which
// records changed at which revision, for maps that carry only the changes.
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
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "planner/coordinator/store/meta_store.h"
#include "proto/control.pb.h"
#include "proto/serving.pb.h"
#include "proto/types.pb.h"

namespace hotbed {

class ClusterState {
 public:
  // A change that maps show. For a shard, `servers` are those of its members and learners before
  // and after the change, and earlier ones that no active record without them has reached yet.
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
  // The default for a store without one: rebalancing is on.
  static v1::MoveControl DefaultMoveControl();
  static constexpr size_t kChangesMax = 65536;  // with more changes, maps are sent whole

  // Replaces everything by `kvs`, which are all keys under keys::kRoot. DataLoss names the record
  // that cannot be decoded.
  absl::Status Reset(const std::vector<KeyValue>& kvs);
  // Applies a committed transaction. This program encoded the operations, so they decode.
  void Apply(const std::vector<Op>& ops, uint64_t revision);

  // The compare that holds as long as `key` is as in this state.
  Compare Unchanged(const std::string& key) const;

  const std::string& cluster_id() const { return cluster_id_; }
  const std::string& format() const { return format_; }
  const std::string& leader() const { return leader_; }
  // Metadata that are rebuilt from servers begin a new generation, numbered by the time in seconds
  // since 1970; 0: they never were. All its numbers lie above those of the generations before:
  // epochs, incarnations of servers, revisions of the plan. Each of them would have to grow by 2^30
  // per second to reach those of the next generation.
  uint64_t generation() const { return generation_; }
  static constexpr int kGenerationShift = 30;
  uint64_t FirstOfGeneration() const { return generation_ << kGenerationShift; }
  // Sessions are numbered closer together, because merged shards need their upper bits
  // (common/tables/session_of_lane.h): 512 a second would have to be opened.
  static constexpr int kSessionShift = 9;
  static uint64_t FirstSession(uint64_t generation) { return generation << kSessionShift; }
  // Added to the store's revisions, so that none comes back with another store or generation.
  uint64_t FirstRevision() const { return FirstOfGeneration() + revisions_before_; }
  uint64_t revisions_before() const { return revisions_before_; }
  // The numbers that earlier generations had given out, as far as is known.
  const v1::GivenOut& given_before() const { return given_before_; }
  // The last step that given_before names; 0: none.
  uint64_t StepBefore() const;
  const Counters& counters() const { return counters_; }
  const absl::btree_map<TableId, v1::TableSpec>& tables() const { return tables_; }
  const absl::btree_map<uint64_t, ShardRecord>& shards() const { return shards_; }  // by packed id
  const absl::btree_map<ServerId, v1::ServerInfo>& servers() const { return servers_; }
  const absl::btree_map<std::string, Session>& sessions() const { return sessions_; }
  // The last commit of each group of trainers.
  const absl::btree_map<std::string, v1::GroupCommit>& groups() const { return groups_; }
  const absl::btree_map<TableId, std::string>& dropped() const { return dropped_; }
  // The shards of adopted servers whose tables the rebuild has left out.
  const absl::btree_map<ServerId, v1::RegisterServerRequest>& left_out() const { return left_out_; }

  // The tables that serving servers have copies of.
  const absl::btree_map<TableId, v1::ServedTable>& served() const { return served_; }
  // Their versions, by number, and by model which of them is current.
  const absl::btree_map<uint64_t, v1::ServedVersion>& versions() const { return versions_; }
  const absl::btree_map<std::string, v1::VersionChoice>& version_choices() const {
    return version_choices_;
  }

  // Grows with each change of these three.
  uint64_t serving_revision() const { return FirstRevision() + serving_revision_; }

  // By packed id.
  const absl::btree_map<uint64_t, v1::ShardGoal>& goals() const { return goals_; }
  // Splits and merges that were asked for, by packed id; a merge by that of the lower shard.
  const absl::btree_map<uint64_t, v1::ShardCut>& cuts() const { return cuts_; }
  const absl::btree_map<uint64_t, v1::ClusterEvent>& events() const { return events_; }
  const v1::MoveControl& move_control() const { return move_control_; }
  const std::optional<v1::CheckpointSchedule>& checkpoint_schedule() const {
    return checkpoint_schedule_;
  }

  const v1::TableSpec* FindTable(const std::string& name) const;
  const v1::ServerInfo* FindServer(const std::string& name) const;
  const v1::ShardGoal* FindGoal(uint64_t packed) const;
  // "words/3" and "s2": names for people, or numbers if the state has no such table or server.
  std::string ShardName(uint64_t packed) const;
  std::string ServerName(ServerId server) const;
  // Replaces server numbers by server names in a text of DecideShard, which writes members as
  // "s2/5" (number and incarnation): names are often numbers too, in another order.
  std::string WithServerNames(absl::string_view text) const;
  std::vector<const ShardRecord*> ShardsOfTable(TableId table) const;
  // The shard's record; nullptr: there is none, or its table is being created or was dropped.
  const ShardRecord* FindVisibleShard(uint64_t packed) const;
  // Packed ids of the shards in which any incarnation of the server is a member or learner.
  const absl::btree_set<uint64_t>& ShardsOfServer(ServerId server) const;
  uint64_t PrimariesOf(ServerId server) const;
  // Weights and optimizer state of the visible shards in which the server is a member, as their
  // tables were declared; and of those of which it is the primary. Kept, so that the creation of a
  // table looks at no other shards than its own.
  struct HeldBytes {
    uint64_t all = 0;
    uint64_t primary = 0;
  };
  HeldBytes HeldBy(ServerId server) const;

  // At most `limit` shards without a table: left over from a creation or a drop that did not
  // finish.
  std::vector<ShardId> Orphans(size_t limit) const;

  // The revision of the newest change that a map shows. A coordinator writes the leader key after
  // each read of the store, and that counts as a change of everything: maps sent earlier may lack
  // changes by other coordinators, so every older map is sent whole.
  uint64_t plan_revision() const { return FirstRevision() + plan_revision_; }
  // Changes after `revision`, oldest first; nullopt when some are forgotten, so that the whole map
  // is needed.
  std::optional<std::vector<const Change*>> ChangesSince(uint64_t revision) const;

 private:
  absl::Status Put(const std::string& key, const std::string& value, uint64_t revision);
  void Delete(const std::string& key, uint64_t revision);
  absl::Status PutShard(const std::string& key, const std::string& value, uint64_t revision);
  absl::Status PutGoalOrCut(const std::string& key, const std::string& value);
  void NoteServing(const std::string& key, uint64_t revision);
  absl::Status PutServed(const std::string& key, const std::string& value);
  absl::Status PutTable(const std::string& key, const std::string& value, uint64_t revision);
  void EraseShard(ShardId id);
  void AddServersOf(ShardId shard, std::vector<ServerId>* servers) const;
  void IndexShard(const ShardRecord& record, bool add);
  void CountHeld(const ShardRecord& record, bool add);
  void CountHeldOfTable(TableId table, bool add);
  void Note(Change change);

  std::string cluster_id_;
  std::string format_;
  std::string leader_;
  uint64_t generation_ = 0;
  uint64_t revisions_before_ = 0;  // of the store that these metadata were moved from
  v1::GivenOut given_before_;
  Counters counters_;
  absl::btree_map<TableId, v1::TableSpec> tables_;
  absl::btree_map<std::string, TableId> names_;
  absl::btree_map<uint64_t, ShardRecord> shards_;
  absl::btree_map<ServerId, v1::ServerInfo> servers_;
  absl::btree_map<std::string, Session> sessions_;
  absl::btree_map<std::string, v1::GroupCommit> groups_;
  absl::btree_map<TableId, std::string> dropped_;
  absl::btree_map<ServerId, v1::RegisterServerRequest> left_out_;
  absl::btree_map<TableId, v1::ServedTable> served_;
  absl::btree_map<uint64_t, v1::ServedVersion> versions_;
  absl::btree_map<std::string, v1::VersionChoice> version_choices_;
  absl::btree_map<uint64_t, v1::ShardGoal> goals_;
  absl::btree_map<uint64_t, v1::ShardCut> cuts_;
  absl::btree_map<uint64_t, v1::ClusterEvent> events_;
  v1::MoveControl move_control_ = DefaultMoveControl();
  std::optional<v1::CheckpointSchedule> checkpoint_schedule_;

  absl::flat_hash_map<std::string, uint64_t> mod_revisions_;  // of every key
  absl::flat_hash_map<ServerId, absl::btree_set<uint64_t>> shards_of_server_;
  absl::flat_hash_map<ServerId, uint64_t> primaries_of_server_;
  absl::flat_hash_map<ServerId, HeldBytes> held_;
  std::optional<TableSpec> counted_;  // the spec that CountHeld has decoded last
  // By packed id: servers that left the shard since its record was last active.
  absl::flat_hash_map<uint64_t, std::vector<ServerId>> left_;
  absl::btree_map<TableId, uint64_t> orphans_;  // number of shard records by missing table

  uint64_t plan_revision_ = 0;     // of the store, like all revisions here
  uint64_t serving_revision_ = 0;  // of the last change, or of the leader's beginning
  uint64_t changes_after_ = 0;     // all later changes are in changes_
  std::deque<Change> changes_;
};

// Every server that the record names: of its members, learners and base, and those passed over;
// each once.
std::vector<ServerId> ServersOf(const ShardRecord& record);
// The record as the store keeps it: without the revision, which is the key's own.
std::string StoredRecord(const ShardRecord& record);

// The whole map, or only the changes since `revision_known` if that is recent enough. The caller
// adds server loads and liveness.
v1::ClusterMap BuildMap(const ClusterState& state, uint64_t revision_known);
// The highest numbers given out, as far as they concern the shards of `server`.
v1::GivenOut BuildGivenOut(const ClusterState& state, ServerId server);
// Grows with each number that is given out.
uint64_t GivenOutVersion(const ClusterState& state);
// The map for one shard server: the shards in which it is or was a member, with their tables, and
// all servers, which are each other's peers. A whole map names every table and the remembered
// dropped ones, so that a server that was away can forget tables that are dropped or not named.
v1::ClusterMap BuildServerMap(const ClusterState& state, ServerId server, uint64_t revision_known);
// Adds to a server's map the fate of shards that it holds without knowing their records: the
// records with their tables, or that their table was dropped.
void AddUnnamed(const ClusterState& state, const std::vector<uint64_t>& packed,
                v1::ClusterMap* map);
// Adds the records of the whole tables of these shards: their replicas were cut while the server
// was away, and it needs those of all parts, also of parts that do not name it.
void AddParts(const ClusterState& state, const std::vector<uint64_t>& packed, v1::ClusterMap* map);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_STATE_CLUSTER_STATE_H_
