#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/serving/remembered_serving.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"
#include "planner/coordinator/state/strangers.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

// Tables and servers may have come into being of which nobody here has heard: their numbers are
// left out.
constexpr uint64_t kTableIdsSkipped = 1 << 16;
constexpr uint64_t kServerIdsSkipped = 1 << 20;
constexpr uint64_t kGenerationsMax = uint64_t{1} << 33;  // seconds: the year 2242
// Servers may name ids of so many bits.
constexpr int kServerIdBits = 48;
constexpr int kTableIdBits = 31;
constexpr size_t kNamedMax = 8;  // shards in a text

// A replica on the disk of a server that is to be adopted.
struct FoundReplica {
  ServerId server = 0;
  ShardRecord record;  // as the server remembers it
  v1::HeldReplica held;
};

struct FoundTable {
  TableSpec spec;
  std::map<uint32_t, std::vector<FoundReplica>> shards;  // by index
};

// False: by what the server remembers it was no member, so its replica may lack much. A server that
// remembers no members may have been one.
bool MayCount(const FoundReplica& replica) {
  const ShardRecord& record = replica.record;
  return record.members.empty() || ContainsServer(record.members, replica.server) ||
         ContainsServer(record.base, replica.server) ||
         record.FindPassedOver(replica.server) != nullptr;
}

LogEnd EndOf(const FoundReplica& replica) {
  return {replica.held.end().epoch(), replica.held.end().lsn()};
}

const ShardRecord& NewestOf(const std::vector<FoundReplica>& replicas) {
  const auto older = [](const FoundReplica& a, const FoundReplica& b) {
    return a.record.epoch < b.record.epoch;
  };
  return std::max_element(replicas.begin(), replicas.end(), older)->record;
}

// Shards that were merged into others while a server that holds them was away. A shard has the
// first row that it began with for as long as it is one, so a later record of another one has it.
void ForgetMerged(FoundTable* table) {
  std::set<uint32_t> ended;
  for (const auto& [index, replicas] : table->shards) {
    const ShardRecord& old = NewestOf(replicas);
    for (const auto& [other, others] : table->shards) {
      const ShardRecord& later = NewestOf(others);
      if (other != index && later.epoch > old.epoch && !later.lanes.empty() &&
          later.range.column_first == old.range.column_first &&
          later.range.first <= old.range.first && old.range.first < later.range.limit) {
        ended.insert(index);
      }
    }
  }
  for (const uint32_t index : ended) table->shards.erase(index);
}

// The ranges of the shards with their indexes, by position within each column slice. A server that
// was away when a shard was cut remembers a wider one.
std::vector<std::pair<ShardRange, uint32_t>> RangesInOrder(const FoundTable& table) {
  std::vector<std::pair<ShardRange, uint32_t>> ranges;
  for (const auto& [index, replicas] : table.shards) {
    ranges.emplace_back(NewestOf(replicas).range, index);
  }
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.column_first, a.first.first) <
           std::pair(b.first.column_first, b.first.first);
  });
  return ranges;
}

// Empty, or what is missing for the shards to tile their table slice by slice.
std::string Gap(const FoundTable& table) {
  const uint64_t space = table.spec.hashed ? uint64_t{1} << 16 : table.spec.rows;
  std::vector<uint32_t> missing;  // or merged away
  uint32_t next = 0;
  for (const auto& [index, replicas] : table.shards) {
    for (; next < index && missing.size() < kNamedMax; ++next) missing.push_back(next);
    next = index + 1;
  }
  const std::string without = missing.empty() ? ""
                                              : absl::StrCat("no server that asks holds shard ",
                                                             absl::StrJoin(missing, ", "));
  uint64_t row = 0;
  uint32_t column = 0;
  uint32_t column_limit = 0;
  for (const auto& [range, index] : RangesInOrder(table)) {
    if (row == 0) column_limit = range.column_limit;
    if (range.first != row || range.column_first != column || range.column_limit != column_limit) {
      if (!without.empty()) return without;
      return absl::StrCat("shard ", index, " does not follow the one before it");
    }
    row = range.limit;
    if (row < space) continue;
    row = 0;
    column = column_limit;
  }
  if (row == 0 && column == table.spec.dim) return "";
  if (!without.empty()) return without;
  return absl::StrCat("no server that asks holds shard ", next, " and those behind it");
}

class RebuildMetadata {
 public:
  RebuildMetadata(v1::RebuildMetadataRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (!planned_) {
      HOTBED_RETURN_IF_ERROR(Plan(state));
      if (request_.dry_run()) return reply_;
      HOTBED_RETURN_IF_ERROR(RefuseMissing());
      planned_ = true;
    }
    if (written_ == ops_.size()) return reply_;
    Transaction txn(&state);
    for (; written_ < ops_.size() && txn.ops().size() + kOpsPerEvent < kRecordsPerTxn; ++written_) {
      const Op& op = ops_[written_];
      if (const auto late = kept_.find(op.key); late != kept_.end()) {
        PutKept(state, late->second, &txn);
        continue;
      }
      if (op.kind == Op::Kind::kDelete) {
        txn.Delete(op.key);
      } else {
        txn.Put(op.key, op.value);
      }
    }
    if (written_ == ops_.size()) {
      EventWriter(&state, context_.unix_ms).Add("rebuilt", EventText(), 0, 0, &txn);
    }
    return txn;
  }

 private:
  // Servers that are to be passed over in the record of a shard that is known already.
  struct Kept {
    uint64_t shard = 0;  // packed
    std::vector<ServerId> servers;
  };

  // The record may have changed since Plan.
  static void PutKept(const ClusterState& state, const Kept& kept, Transaction* txn) {
    const ShardRecord* const now = state.FindVisibleShard(kept.shard);
    if (now == nullptr) return;
    ShardRecord changed = *now;
    for (const ServerId server : kept.servers) {
      if (!changed.Names(server)) changed.passed_over.push_back({server, LogEnd()});
    }
    txn->Put(keys::Shard(changed.shard), StoredRecord(changed));
  }

  void Put(const std::string& key, std::string value) {
    ops_.push_back({Op::Kind::kPut, key, std::move(value)});
  }

  absl::Status Plan(const ClusterState& state) {
    HOTBED_RETURN_IF_ERROR(FindServers(state));
    HOTBED_RETURN_IF_ERROR(FindGeneration(state));
    HOTBED_RETURN_IF_ERROR(FindReplicas(state));
    given_ = state.given_before();
    if (fresh_) BeginGeneration();
    // The later one of two tables of one name was created when the other had been dropped.
    for (auto it = tables_.rbegin(); it != tables_.rend(); ++it) AdoptTable(state, &it->second);
    std::reverse(reply_.mutable_tables()->pointer_begin(), reply_.mutable_tables()->pointer_end());
    KeepLateReplicas(state);
    // First: tables that a rebuild cut short left behind rely on them.
    const size_t tables_end = ops_.size();
    Put(keys::kGivenKey, given_.SerializeAsString());
    Put(keys::kTableCounter, absl::StrCat(table_counter_));
    Put(keys::kServerCounter, absl::StrCat(server_counter_));
    std::rotate(ops_.begin(), ops_.begin() + static_cast<std::ptrdiff_t>(tables_end), ops_.end());
    KeepLeftOut(state);
    HOTBED_RETURN_IF_ERROR(AdoptServing(state));
    // Last: a server registers only once the records of its shards say that it has to be asked.
    for (const v1::ServerInfo& info : reply_.servers()) {
      Put(keys::Server(info.server()), info.SerializeAsString());
    }
    return absl::OkStatus();
  }

  // The servers that ask. One cluster at a time, and of each server one process.
  absl::Status FindServers(const ClusterState& state) {
    fresh_ = Strangers::IsEmpty(state);
    if (!fresh_ && state.generation() == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the metadata of cluster ", state.cluster_id(),
          " are not empty: ", state.servers().size(), " servers and ", state.tables().size(),
          " tables. They are rebuilt by a coordinator with an empty --data-dir only"));
    }
    const std::vector<const Strangers::Stranger*> waiting =
        context_.strangers->Waiting(context_.now_ns, state);
    if (waiting.empty()) {
      return absl::FailedPreconditionError(
          "no server of a cluster that lost its metadata has asked for it in the last 10 s; start "
          "the servers with the address of this coordinator");
    }
    std::map<std::string, std::string> clusters;  // with the names of the servers
    for (const Strangers::Stranger* stranger : waiting) {
      const v1::RegisterServerRequest& said = stranger->said;
      absl::StrAppend(&clusters[said.cluster_id()], " ", said.name());
      if (!stranger->rival.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("server \"", said.name(), "\" asks from ", said.address(), " and from ",
                         stranger->rival,
                         ": the data directory of one is a copy of the other's. Stop the copy"));
      }
      if (const v1::ServerInfo* namesake = state.FindServer(said.name()); namesake != nullptr) {
        return absl::AlreadyExistsError(
            absl::StrCat("server \"", said.name(), "\" asks from ", said.address(),
                         ", and another one of that "
                         "name is at ",
                         namesake->address(), "; start it with another --name"));
      }
    }
    if (clusters.size() > 1) {
      std::string text = "servers of several clusters ask:";
      for (const auto& [cluster, names] : clusters) {
        absl::StrAppend(&text, " cluster ", cluster, ":", names, ";");
      }
      return absl::FailedPreconditionError(
          absl::StrCat(text, " stop those of all clusters but one"));
    }
    reply_.set_cluster_id(clusters.begin()->first);
    return absl::OkStatus();
  }

  // All numbers of a generation lie above those of the generations before.
  absl::Status FindGeneration(const ClusterState& state) {
    uint64_t highest = state.generation();
    const auto note = [&highest](uint64_t number) {
      highest = std::max(highest, number >> ClusterState::kGenerationShift);
    };
    for (const Strangers::Stranger* stranger :
         context_.strangers->Waiting(context_.now_ns, state)) {
      const v1::RegisterServerRequest& said = stranger->said;
      highest = std::max(highest, said.generation());
      for (const v1::ShardRecord& record : said.recollection().shards()) {
        note(record.epoch());
        for (const v1::Member& member : record.members()) note(member.incarnation());
        for (const v1::Member& member : record.learners()) note(member.incarnation());
      }
      if (highest >= kGenerationsMax) {
        return absl::FailedPreconditionError(absl::StrCat(
            "server \"", said.name(), "\" at ", said.address(), " names a number of generation ",
            highest, " of the metadata, the limit is ", kGenerationsMax, "; stop it"));
      }
      if (!fresh_ && highest > state.generation()) {
        return absl::FailedPreconditionError(
            absl::StrCat("server \"", said.name(), "\" at ", said.address(),
                         " has heard of generation ", highest, " of the metadata of cluster ",
                         state.cluster_id(), ", and these are of generation ", state.generation(),
                         ": rebuild them from all servers, with an empty --data-dir"));
      }
    }
    // The time tells it apart from generations of which no server that asks has heard.
    const uint64_t now_s = static_cast<uint64_t>(std::max<int64_t>(context_.unix_ms, 0)) / 1000;
    reply_.set_generation(fresh_ ? std::max(highest + 1, now_s) : highest);
    first_ = reply_.generation() << ClusterState::kGenerationShift;
    return absl::OkStatus();
  }

  absl::Status FindReplicas(const ClusterState& state) {
    table_counter_ = state.counters().tables;
    server_counter_ = state.counters().servers;
    for (const Strangers::Stranger* stranger : context_.strangers->Known(context_.now_ns, state)) {
      if (stranger->said.cluster_id() == reply_.cluster_id()) {
        said_.emplace(stranger->said.server(), stranger->said);
      }
    }
    for (const auto& [server, said] : state.left_out()) {
      if (state.servers().contains(server)) said_.emplace(server, said);
    }
    for (const auto& [server, said] : said_) {
      server_counter_ = std::max(server_counter_, said.server());
      for (const v1::TableSpec& message : said.recollection().tables()) {
        absl::StatusOr<TableSpec> spec = FromProto(message);
        if (!spec.ok()) continue;
        table_counter_ = std::max<uint64_t>(table_counter_, spec->id);
        TableSpec& known = tables_[spec->id].spec;
        if (known.id == 0 || spec->changes.size() > known.changes.size()) known = *std::move(spec);
      }
      FindReplicasOf(said);
      for (const v1::ServerInfo& known : said.recollection().servers()) {
        server_counter_ = std::max(server_counter_, known.server());
        remembered_[known.server()] = known.name();
      }
      if (!state.servers().contains(said.server())) AddServer(said);
    }
    if (server_counter_ >> kServerIdBits != 0 || table_counter_ >> kTableIdBits != 0) {
      return absl::FailedPreconditionError("a server that asks names an id beyond the limit");
    }
    for (const v1::ServerInfo& info : reply_.servers()) remembered_.erase(info.server());
    for (const auto& [server, name] : remembered_) {
      if (state.servers().empty()) reply_.add_servers_missing(name);
    }
    std::erase_if(tables_, [&](const auto& entry) {
      if (!state.tables().contains(entry.first) && !state.dropped().contains(entry.first)) {
        return false;
      }
      late_.insert(entry);
      return true;
    });
    return absl::OkStatus();
  }

  void FindReplicasOf(const v1::RegisterServerRequest& said) {
    std::map<uint64_t, const v1::HeldReplica*> held;
    for (const v1::HeldReplica& replica : said.held()) held[replica.shard()] = &replica;
    for (const v1::ShardRecord& message : said.recollection().shards()) {
      absl::StatusOr<ShardRecord> record = FromProto(message);
      const auto replica = held.find(message.shard());
      if (!record.ok() || replica == held.end()) continue;
      const auto table = tables_.find(record->shard.table);
      if (table == tables_.end()) continue;
      for (const Member& member : record->members) {
        server_counter_ = std::max(server_counter_, member.server);
      }
      table->second.shards[record->shard.index].push_back(
          {said.server(), *record, *replica->second});
    }
  }

  void AddServer(const v1::RegisterServerRequest& said) {
    v1::ServerInfo* info = reply_.add_servers();
    info->set_server(said.server());
    info->set_incarnation(first_);
    info->set_name(said.name());
    info->set_address(said.address());
    info->set_admin_address(said.admin_address());
    info->set_message_bytes_max(said.message_bytes_max());
    info->set_failure_domain(said.failure_domain());
    info->set_feature_level(said.feature_level());
    info->set_start(said.start());
    info->set_run(said.run());
    info->mutable_load()->set_host_bytes_limit(said.host_bytes());
  }

  void BeginGeneration() {
    table_counter_ += kTableIdsSkipped;
    server_counter_ += kServerIdsSkipped;
    Put(keys::kClusterKey, reply_.cluster_id());
    Put(keys::kGenerationKey, absl::StrCat(reply_.generation()));
    const uint64_t session = ClusterState::FirstSession(reply_.generation());
    Put(keys::kSessionCounter, absl::StrCat(session));
    given_.set_session(session - 1);
  }

  void AdoptTable(const ClusterState& state, FoundTable* found) {
    const TableId id = found->spec.id;
    v1::RebuiltTable* const table = reply_.add_tables();
    *table->mutable_spec() = ToProto(found->spec);
    std::erase_if(found->shards, [](const auto& shard) {
      return std::none_of(shard.second.begin(), shard.second.end(), MayCount);
    });
    ForgetMerged(found);
    table->set_shards(static_cast<uint32_t>(found->shards.size()));
    table->set_left_out(Gap(*found));
    if (table->left_out().empty() &&
        (state.FindTable(found->spec.name) != nullptr || !names_.insert(found->spec.name).second)) {
      table->set_left_out("a later table has the same name");
    }
    std::vector<ShardRecord> records;
    for (auto& [index, replicas] : found->shards) {
      std::erase_if(replicas, [](const FoundReplica& one) { return !MayCount(one); });
      if (replicas.size() < found->spec.replicas)
        table->set_shards_short(table->shards_short() + 1);
      records.push_back(Fence(replicas));
    }
    NoteSteps(*found, table);
    if (!table->left_out().empty()) return;
    if (table->committed_step() != 0) {
      NoteGivenStep(id, table->committed_step());
    }
    // The table is visible with its last record.
    for (const ShardRecord& record : records) Put(keys::Shard(record.shard), StoredRecord(record));
    Put(keys::Name(found->spec.name), absl::StrCat(id));
    Put(keys::Table(id), table->spec().SerializeAsString());
  }

  void NoteGivenStep(TableId table, uint64_t step) {
    // A rebuild that was cut short may have noted one.
    for (v1::TableStep& known : *given_.mutable_steps()) {
      if (known.table() != table) continue;
      known.set_step(std::max<uint64_t>(known.step(), step));
      return;
    }
    v1::TableStep* const added = given_.add_steps();
    added->set_table(table);
    added->set_step(step);
  }

  // Ends every earlier epoch: all servers that may have been members in the last one have to
  // promise this one, say where their logs end then, and the fullest replica goes on
  // (membership/shard_decision.h: no member lives).
  ShardRecord Fence(const std::vector<FoundReplica>& replicas) const {
    const ShardRecord& newest = NewestOf(replicas);
    ShardRecord fence;
    fence.shard = newest.shard;
    fence.range = newest.range;
    fence.lanes = newest.lanes;
    fence.epoch = std::max(first_, newest.epoch + 1);
    const auto add = [&fence](ServerId server) {
      if (!ContainsServer(fence.members, server)) fence.members.push_back({server, 0});
    };
    for (const FoundReplica& replica : replicas) add(replica.server);
    for (const Member& member : newest.members) add(member.server);
    if (!newest.active) {
      for (const Member& member : newest.base) add(member.server);
    }
    for (const PassedOver& passed : newest.passed_over) add(passed.server);
    fence.primary = fence.members.front();
    fence.base = fence.members;
    return fence;
  }

  static void NoteSteps(const FoundTable& found, v1::RebuiltTable* table) {
    std::vector<uint64_t> steps;
    for (const auto& [index, replicas] : found.shards) {
      uint64_t step = 0;
      for (const FoundReplica& one : replicas) step = std::max(step, one.held.committed_step());
      steps.push_back(step);
    }
    for (const uint64_t step : steps) {
      table->set_committed_step(std::max<uint64_t>(table->committed_step(), step));
    }
    const auto earlier = [&](uint64_t step) { return step < table->committed_step(); };
    table->set_shards_of_earlier_step(
        static_cast<uint32_t>(std::count_if(steps.begin(), steps.end(), earlier)));
  }

  // A server that was away when its shards were placed without it may hold more than those that
  // were taken: it keeps its replicas until a person decides.
  void KeepLateReplicas(const ClusterState& state) {
    std::map<uint64_t, ShardRecord> kept;
    for (const auto& [id, table] : late_) {
      for (const auto& [index, replicas] : table.shards) {
        const ShardRecord* const record = state.FindVisibleShard(ShardId{id, index}.packed());
        for (const FoundReplica& replica : replicas) {
          const bool adopted = state.servers().contains(replica.server);
          if (record == nullptr || adopted || record->Names(replica.server) || !MayCount(replica) ||
              EndOf(replica) == LogEnd()) {
            continue;
          }
          ShardRecord& changed = kept.try_emplace(record->shard.packed(), *record).first->second;
          changed.passed_over.push_back({replica.server, LogEnd()});
        }
      }
    }
    for (const auto& [packed, record] : kept) {
      Kept& late = kept_[keys::Shard(record.shard)];
      late.shard = packed;
      for (const PassedOver& passed : record.passed_over) late.servers.push_back(passed.server);
      Put(keys::Shard(record.shard), "");
    }
    reply_.set_replicas_kept(kept.size());
  }

  // Only those servers know of these tables, and they do not ask again. A later coordinator has to
  // remember it, until the tables are whole.
  void KeepLeftOut(const ClusterState& state) {
    std::set<TableId> left_out;
    for (const v1::RebuiltTable& table : reply_.tables()) {
      if (!table.left_out().empty()) left_out.insert(table.spec().id());
    }
    std::set<ServerId> kept;
    for (const auto& [server, said] : said_) {
      v1::RegisterServerRequest part;
      part.set_server(server);
      part.set_cluster_id(said.cluster_id());
      for (const v1::HeldReplica& held : said.held()) {
        const bool wanted = left_out.contains(ShardId::FromPacked(held.shard()).table);
        if (wanted) *part.add_held() = held;
      }
      if (part.held().empty()) continue;
      for (const v1::TableSpec& table : said.recollection().tables()) {
        if (left_out.contains(table.id())) *part.mutable_recollection()->add_tables() = table;
      }
      for (const v1::ShardRecord& record : said.recollection().shards()) {
        const bool wanted = left_out.contains(ShardId::FromPacked(record.shard()).table);
        if (wanted) *part.mutable_recollection()->add_shards() = record;
      }
      kept.insert(server);
      Put(keys::LeftOut(server), part.SerializeAsString());
    }
    for (const auto& [server, said] : state.left_out()) {
      if (!kept.contains(server)) ops_.push_back({Op::Kind::kDelete, keys::LeftOut(server), ""});
    }
  }

  // The newest that serving servers remember. They get orders as soon as there is a server, so a
  // later rebuild would find what these orders made of it.
  absl::Status AdoptServing(const ClusterState& state) {
    if (!state.servers().empty()) return absl::OkStatus();
    const std::vector<std::string> unheard =
        context_.remembered->Unheard(context_.now_ns, reply_.cluster_id());
    if (!unheard.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("serving servers that ask have not said yet which tables are served: ",
                       absl::StrJoin(unheard, " "), "; try again in a second"));
    }
    for (std::string& one : context_.remembered->Missing(context_.now_ns, reply_.cluster_id())) {
      reply_.add_serving_missing(std::move(one));
    }
    const v1::ServingRecords* const records = context_.remembered->Newest(reply_.cluster_id());
    if (records == nullptr) return absl::OkStatus();
    absl::btree_map<TableId, v1::TableSpec> adopted = state.tables();
    for (const v1::RebuiltTable& table : reply_.tables()) {
      if (table.left_out().empty()) adopted[table.spec().id()] = table.spec();
    }
    for (Op& op : OpsToAdopt(*records, adopted)) {
      served_ += absl::StartsWith(op.key, keys::kServing) ? 1 : 0;
      versions_ += absl::StartsWith(op.key, keys::kVersions) ? 1 : 0;
      ops_.push_back(std::move(op));
    }
    return absl::OkStatus();
  }

  absl::Status RefuseMissing() const {
    if (request_.without_missing()) return absl::OkStatus();
    std::string text;
    for (const std::string& name : reply_.servers_missing()) {
      absl::StrAppend(&text, text.empty() ? "not asked yet: server " : ", ", name);
    }
    if (!text.empty()) text += "; ";
    if (!reply_.serving_missing().empty()) {
      absl::StrAppend(&text, "not heard yet which tables are served: ",
                      absl::StrJoin(reply_.serving_missing(), ", "), "; ");
    }
    for (const v1::RebuiltTable& table : reply_.tables()) {
      if (!table.left_out().empty()) {
        absl::StrAppend(&text, "table ", table.spec().name(), ": ", table.left_out(), "; ");
      } else if (table.shards_short() > 0) {
        absl::StrAppend(&text, "table ", table.spec().name(), ": of ", table.shards_short(),
                        " shards fewer than ", table.spec().replicas(), " replicas are here; ");
      }
    }
    if (text.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(text,
                     "start the servers that are missing and try again, or go on without them "
                     "(--without-missing): tables of which shards are missing are then left out, "
                     "and which tables are served is as the serving servers know that are here"));
  }

  std::string EventText() const {
    std::vector<std::string> servers;
    for (const v1::ServerInfo& info : reply_.servers()) servers.push_back(info.name());
    std::vector<std::string> left_out;
    for (const v1::RebuiltTable& table : reply_.tables()) {
      if (!table.left_out().empty()) left_out.push_back(table.spec().name());
    }
    const size_t tables = static_cast<size_t>(reply_.tables_size()) - left_out.size();
    return absl::StrCat("generation ", reply_.generation(), " of the metadata, from ",
                        absl::StrJoin(servers, " "), ": ", tables, " tables adopted",
                        left_out.empty() ? "" : "; left out: ", absl::StrJoin(left_out, " "),
                        served_ + versions_ == 0
                            ? ""
                            : absl::StrCat("; ", served_, " tables are served again, with ",
                                           versions_, " versions"));
  }

  const v1::RebuildMetadataRequest request_;
  const OperationContext context_;
  bool planned_ = false;
  bool fresh_ = false;  // else it adds to metadata that were rebuilt before
  uint64_t first_ = 0;  // number of the generation
  uint64_t table_counter_ = 0;
  uint64_t server_counter_ = 0;
  v1::GivenOut given_;
  std::map<ServerId, v1::RegisterServerRequest> said_;  // by servers that ask, or were adopted
  std::map<TableId, FoundTable> tables_;                // to adopt
  std::map<TableId, FoundTable> late_;                  // that are known already, or were dropped
  std::set<std::string> names_;
  std::map<ServerId, std::string> remembered_;  // servers of the cluster that have not asked
  v1::RebuildMetadataReply reply_;
  size_t served_ = 0;  // records of served tables that are adopted
  size_t versions_ = 0;
  std::vector<Op> ops_;
  std::map<std::string, Kept> kept_;  // by key; the value of its op is made when it is written
  size_t written_ = 0;
};

}  // namespace

Operation MakeOperation(v1::RebuildMetadataRequest request, const OperationContext& context) {
  return RebuildMetadata(std::move(request), context);
}

}  // namespace hotbed
