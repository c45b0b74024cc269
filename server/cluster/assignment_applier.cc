#include "server/cluster/assignment_applier.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "common/log.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace hotbed {

void AssignmentApplier::BeginIncarnation() {
  absl::MutexLock lock(&mu_);
  plan_revision_ = 0;
  heard_whole_ = false;
  named_.clear();
}

uint64_t AssignmentApplier::plan_revision() const {
  absl::MutexLock lock(&mu_);
  return plan_revision_;
}

absl::Status AssignmentApplier::Apply(const v1::ClusterMap& map) {
  absl::MutexLock applying(&applying_);
  TakeServers(map);
  if (map.plan_revision() == 0) return absl::OkStatus();
  std::vector<TableSpec> tables;
  for (const v1::TableSpec& message : map.tables()) {
    HOTBED_ASSIGN_OR_RETURN(TableSpec spec, FromProto(message));
    tables.push_back(std::move(spec));
  }
  std::vector<ShardRecord> records;
  for (const v1::ShardRecord& message : map.shards()) {
    HOTBED_ASSIGN_OR_RETURN(ShardRecord record, FromProto(message));
    records.push_back(std::move(record));
  }
  std::vector<TableId> dropped(map.tables_dropped().begin(), map.tables_dropped().end());
  AddTablesMissing(map, &dropped);
  if (!tables.empty() || !records.empty() || !dropped.empty()) {
    HOTBED_RETURN_IF_ERROR(host_->ApplyAssignment(tables, records, dropped));
  }
  plan_revision_highest_ = std::max(plan_revision_highest_, map.plan_revision());
  absl::MutexLock lock(&mu_);
  plan_revision_ = map.plan_revision();
  if (!map.delta()) {
    heard_whole_ = true;
    named_.clear();
  }
  for (const ShardRecord& record : records) named_.insert(record.shard);
  return absl::OkStatus();
}

absl::Status AssignmentApplier::ApplyRecords(
    const google::protobuf::RepeatedPtrField<v1::ShardRecord>& messages) {
  std::vector<ShardRecord> records;
  for (const v1::ShardRecord& message : messages) {
    HOTBED_ASSIGN_OR_RETURN(ShardRecord record, FromProto(message));
    records.push_back(std::move(record));
  }
  return host_->ApplyAssignment({}, records, {});
}

// The coordinator remembers a bounded number of dropped tables, so a server that was away for long
// learns of older drops from the tables that a whole map lacks. Since rows are deleted for it,
// nothing else may explain the absence: the map must be this cluster's, no older than one seen
// before, and name a dropped table (without a drop no table can be missing). Metadata that were
// rebuilt may lack a table for another reason: a server of it was away.
void AssignmentApplier::AddTablesMissing(const v1::ClusterMap& map,
                                         std::vector<TableId>* dropped) const {
  if (map.delta() || dropped->empty() || map.cluster_id().empty() ||
      map.cluster_id() != host_->identity().cluster_id || host_->identity().generation > 0 ||
      map.plan_revision() < plan_revision_highest_) {
    return;
  }
  std::set<TableId> known(dropped->begin(), dropped->end());
  known.insert(map.tables_elsewhere().begin(), map.tables_elsewhere().end());
  for (const v1::TableSpec& table : map.tables()) known.insert(table.id());
  for (const v1::ShardRecord& record : map.shards()) {
    known.insert(ShardId::FromPacked(record.shard()).table);
  }
  for (const ShardStatus& held : host_->Status().shards) {
    if (!known.insert(held.shard.table).second) continue;
    HOTBED_LOG(Warning) << "table " << held.table << " (id " << held.shard.table
                        << ") was dropped while this server was away: deleting its rows";
    dropped->push_back(held.shard.table);
  }
}

// Runs before the shards are assigned, so that their first messages find their peers.
void AssignmentApplier::TakeServers(const v1::ClusterMap& map) {
  if (map.servers().empty()) return;
  std::vector<ReplicaNetwork::Peer> peers;
  std::map<ServerId, std::string> names;
  {
    absl::MutexLock lock(&mu_);
    if (!map.delta()) servers_.clear();
    for (const v1::ServerInfo& info : map.servers()) {
      servers_[info.server()] = {info.incarnation(), info.address(), info.live(), info.name()};
    }
    // Includes servers reported dead: the coordinator may be wrong, or late.
    for (const auto& [server, s] : servers_) {
      peers.push_back({{server, s.incarnation}, s.address});
      names[server] = s.name;
    }
  }
  host_->LearnServers(names);
  if (network_ != nullptr) network_->SetPeers(peers);
}

std::vector<ShardId> AssignmentApplier::Unnamed() const {
  std::vector<ShardId> unnamed;
  const std::vector<ShardId> held = host_->Held();
  absl::MutexLock lock(&mu_);
  if (!heard_whole_) return unnamed;
  for (const ShardId shard : held) {
    if (!named_.contains(shard) && unnamed.size() < kUnnamedMax) unnamed.push_back(shard);
  }
  return unnamed;
}

size_t AssignmentApplier::NotHandedOver(const Member& self) const {
  size_t count = 0;
  const HostStatus status = host_->Status();
  absl::MutexLock lock(&mu_);
  const auto lives = [&](const Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto it = servers_.find(member.server);
    return it != servers_.end() && it->second.live &&
           it->second.incarnation == member.incarnation && !(member == self);
  };
  for (const ShardStatus& shard : status.shards) {
    const std::optional<ShardRecord> record = host_->RecordOf(shard.shard);
    if (!record.has_value()) continue;
    const std::vector<Member>& members = record->members;
    if (!Contains(members, self)) continue;
    if (std::any_of(members.begin(), members.end(), lives)) ++count;
  }
  return count;
}

}  // namespace hotbed
