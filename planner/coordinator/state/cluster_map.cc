// Maps: the parts of ClusterState that are sent to clients and servers.
#include <algorithm>
#include <map>
#include <set>

#include "planner/coordinator/state/cluster_state.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

using Change = ClusterState::Change;

struct Parts {
  std::set<TableId> tables;
  std::set<uint64_t> shards;
  std::set<ServerId> servers;
  std::set<TableId> dropped;
};

v1::ClusterMap Assemble(const ClusterState& state, const Parts& parts, bool delta) {
  v1::ClusterMap map;
  map.set_cluster_id(state.cluster_id());
  map.set_plan_revision(state.plan_revision());
  map.set_delta(delta);
  for (const TableId id : parts.tables) {
    auto it = state.tables().find(id);
    if (it != state.tables().end()) *map.add_tables() = it->second;
  }
  for (const uint64_t id : parts.shards) {
    const ShardRecord* const record = state.FindVisibleShard(id);
    if (record != nullptr) ToProto(*record, map.add_shards());
  }
  for (const ServerId id : parts.servers) {
    v1::ServerInfo* info = map.add_servers();
    *info = state.servers().at(id);
    info->set_shards(state.PrimariesOf(id));
  }
  for (const TableId id : parts.dropped) map.add_tables_dropped(id);
  return map;
}

bool HoldsSome(const ClusterState& state, ServerId server, TableId table) {
  const absl::btree_set<uint64_t>& shards = state.ShardsOfServer(server);
  const auto first = shards.lower_bound(ShardId{table, 0}.packed());
  return first != shards.end() && ShardId::FromPacked(*first).table == table;
}

// The shard, or if it was merged away the merged ones of its table: it is a part of one of them.
void AddShard(const ClusterState& state, uint64_t id, Parts* parts) {
  const TableId table = ShardId::FromPacked(id).table;
  if (state.FindVisibleShard(id) != nullptr) {
    parts->shards.insert(id);
  } else if (state.tables().contains(table)) {
    for (const ShardRecord* const record : state.ShardsOfTable(table)) {
      if (!record->lanes.empty()) parts->shards.insert(record->shard.packed());
    }
  }
}

// Adds the change, or for a server's map (`server` is not 0) the part of it that concerns the
// server: shards then come with their tables.
void AddChange(const ClusterState& state, const Change& change, ServerId server, Parts* parts) {
  switch (change.kind) {
    case Change::Kind::kTable:
      if (server == 0 || HoldsSome(state, server, change.id)) parts->tables.insert(change.id);
      break;
    case Change::Kind::kShard:
      if (server != 0 && !Contains(change.servers, server)) break;
      AddShard(state, change.id, parts);
      if (server != 0) parts->tables.insert(ShardId::FromPacked(change.id).table);
      break;
    case Change::Kind::kServer:
      parts->servers.insert(change.id);
      break;
    case Change::Kind::kTableDropped:
      parts->dropped.insert(change.id);
      break;
  }
}

v1::ClusterMap Build(const ClusterState& state, uint64_t revision_known, ServerId server) {
  Parts parts;
  const auto changes = state.ChangesSince(revision_known);
  const bool delta = revision_known != 0 && changes.has_value();
  if (delta) {
    for (const Change* change : *changes) AddChange(state, *change, server, &parts);
    return Assemble(state, parts, delta);
  }
  if (server == 0) {
    for (const auto& [id, spec] : state.tables()) parts.tables.insert(id);
    for (const auto& [id, record] : state.shards()) parts.shards.insert(id);
  } else {
    const auto& held = state.ShardsOfServer(server);
    parts.shards.insert(held.begin(), held.end());
    for (const uint64_t id : held) parts.tables.insert(ShardId::FromPacked(id).table);
  }
  for (const auto& [id, info] : state.servers()) parts.servers.insert(id);
  for (const auto& [id, name] : state.dropped()) parts.dropped.insert(id);
  v1::ClusterMap map = Assemble(state, parts, delta);
  // Even those of which the server holds nothing: the list of remembered dropped tables is bounded,
  // so a server takes any table missing from a whole map as dropped.
  for (const auto& [id, spec] : state.tables()) {
    if (!parts.tables.contains(id)) map.add_tables_elsewhere(id);
  }
  return map;
}

}  // namespace

v1::ClusterMap BuildMap(const ClusterState& state, uint64_t revision_known) {
  return Build(state, revision_known, 0);
}

v1::ClusterMap BuildServerMap(const ClusterState& state, ServerId server, uint64_t revision_known) {
  return Build(state, revision_known, server);
}

v1::GivenOut BuildGivenOut(const ClusterState& state, ServerId server) {
  v1::GivenOut given;
  given.set_session(state.counters().sessions);
  std::map<TableId, uint64_t> steps;
  for (const v1::TableStep& before : state.given_before().steps()) {
    if (HoldsSome(state, server, before.table())) steps[before.table()] = before.step();
  }
  for (const auto& [name, commit] : state.groups()) {
    for (const TableId table : commit.tables()) {
      if (!HoldsSome(state, server, table)) continue;
      uint64_t& step = steps[table];
      step = std::max<uint64_t>(step, commit.step());
    }
  }
  for (const auto& [table, step] : steps) {
    v1::TableStep* const entry = given.add_steps();
    entry->set_table(table);
    entry->set_step(step);
  }
  return given;
}

uint64_t GivenOutVersion(const ClusterState& state) {
  uint64_t version = state.counters().sessions;
  for (const auto& [name, commit] : state.groups()) version += commit.step();
  return version;
}

void AddUnnamed(const ClusterState& state, const std::vector<uint64_t>& packed,
                v1::ClusterMap* map) {
  Parts parts;
  for (const uint64_t id : packed) {
    const TableId table = ShardId::FromPacked(id).table;
    parts.tables.insert(table);
    AddShard(state, id, &parts);
    // Ids are never used twice: a missing table below the counter was dropped, or never became
    // visible. Metadata that were rebuilt may lack it because servers were away.
    const bool known = state.tables().contains(table) || !state.ShardsOfTable(table).empty();
    const bool below = state.generation() == 0 && table <= state.counters().tables;
    if (!known && (below || state.dropped().contains(table))) parts.dropped.insert(table);
  }
  map->MergeFrom(Assemble(state, parts, map->delta()));
}

void AddParts(const ClusterState& state, const std::vector<uint64_t>& packed, v1::ClusterMap* map) {
  std::set<TableId> tables;
  for (const uint64_t id : packed) tables.insert(ShardId::FromPacked(id).table);
  Parts parts;
  for (const TableId table : tables) {
    for (const ShardRecord* const record : state.ShardsOfTable(table)) {
      parts.shards.insert(record->shard.packed());
    }
  }
  for (const v1::ShardRecord& there : map->shards()) parts.shards.erase(there.shard());
  if (!parts.shards.empty()) map->MergeFrom(Assemble(state, parts, map->delta()));
}

}  // namespace hotbed
