// Maps: the parts of ClusterState that are sent to clients and servers.
#include <set>

#include "planner/coordinator/state/cluster_state.h"

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
    auto it = state.shards().find(id);
    if (it != state.shards().end()) *map.add_shards() = it->second;
  }
  for (const ServerId id : parts.servers) {
    v1::ServerInfo* info = map.add_servers();
    *info = state.servers().at(id);
    info->set_shards(state.PrimariesOf(id));
  }
  for (const TableId id : parts.dropped) map.add_tables_dropped(id);
  return map;
}

void AddShard(const ClusterState& state, uint64_t packed, Parts* parts) {
  const TableId table = ShardId::FromPacked(packed).table;
  if (!state.tables().contains(table)) return;  // being created, or dropped
  parts->shards.insert(packed);
  parts->tables.insert(table);
}

void AddDropped(const ClusterState& state, Parts* parts) {
  for (const auto& [id, name] : state.dropped()) parts->dropped.insert(id);
}

bool HoldsSome(const ClusterState& state, ServerId server, TableId table) {
  const absl::btree_set<uint64_t>& shards = state.ShardsOfServer(server);
  const auto first = shards.lower_bound(ShardId{table, 0}.packed());
  return first != shards.end() && ShardId::FromPacked(*first).table == table;
}

bool Names(const Change& change, ServerId server) {
  for (const ServerId s : change.servers) {
    if (s == server) return true;
  }
  return false;
}

}  // namespace

v1::ClusterMap BuildMap(const ClusterState& state, uint64_t revision_known) {
  Parts parts;
  const auto changes = state.ChangesSince(revision_known);
  const bool delta = revision_known != 0 && changes.has_value();
  if (delta) {
    for (const Change* change : *changes) {
      switch (change->kind) {
        case Change::Kind::kTable:
          if (state.tables().contains(change->id)) parts.tables.insert(change->id);
          break;
        case Change::Kind::kShard:
          if (state.tables().contains(ShardId::FromPacked(change->id).table)) {
            parts.shards.insert(change->id);
          }
          break;
        case Change::Kind::kServer:
          parts.servers.insert(change->id);
          break;
        case Change::Kind::kTableDropped:
          parts.dropped.insert(change->id);
          break;
      }
    }
  } else {
    for (const auto& [id, spec] : state.tables()) parts.tables.insert(id);
    for (const auto& [id, record] : state.shards()) AddShard(state, id, &parts);
    for (const auto& [id, info] : state.servers()) parts.servers.insert(id);
    AddDropped(state, &parts);
  }
  return Assemble(state, parts, delta);
}

v1::ClusterMap BuildServerMap(const ClusterState& state, ServerId server, uint64_t revision_known) {
  Parts parts;
  const auto changes = state.ChangesSince(revision_known);
  const bool delta = revision_known != 0 && changes.has_value();
  if (delta) {
    for (const Change* change : *changes) {
      if (change->kind == Change::Kind::kTableDropped) parts.dropped.insert(change->id);
      if (change->kind == Change::Kind::kServer) parts.servers.insert(change->id);
      if (change->kind == Change::Kind::kTable &&
          HoldsSome(state, server, static_cast<TableId>(change->id))) {
        parts.tables.insert(static_cast<TableId>(change->id));
      }
      if (change->kind == Change::Kind::kShard && Names(*change, server)) {
        AddShard(state, change->id, &parts);
      }
    }
  } else {
    // Every table, even those of which the server holds nothing: the list of remembered dropped
    // tables is bounded, so a server takes any table missing from a whole map as dropped.
    for (const auto& [id, spec] : state.tables()) parts.tables.insert(id);
    for (const uint64_t id : state.ShardsOfServer(server)) AddShard(state, id, &parts);
    for (const auto& [id, info] : state.servers()) parts.servers.insert(id);
    AddDropped(state, &parts);
  }
  return Assemble(state, parts, delta);
}

void AddUnnamed(const ClusterState& state, const std::vector<uint64_t>& packed,
                v1::ClusterMap* map) {
  Parts parts;
  for (const uint64_t id : packed) {
    if (state.shards().contains(id)) AddShard(state, id, &parts);
    // Ids are never used twice: a missing table below the counter was dropped, or never became
    // visible.
    const TableId table = ShardId::FromPacked(id).table;
    const bool known = state.tables().contains(table) || !state.ShardsOfTable(table).empty();
    if (!known && table <= state.counters().tables) parts.dropped.insert(table);
  }
  const v1::ClusterMap more = Assemble(state, parts, /*delta=*/true);
  map->mutable_tables()->MergeFrom(more.tables());
  map->mutable_shards()->MergeFrom(more.shards());
  map->mutable_tables_dropped()->MergeFrom(more.tables_dropped());
}

}  // namespace hotbed
