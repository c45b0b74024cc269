#include "planner/coordinator/balance/cluster_view.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "proto/convert.h"

namespace hotbed {

namespace {

ClusterServer ServerOf(const v1::ServerInfo& info, bool live, const v1::ServerLoad& load) {
  ClusterServer server;
  server.id = info.server();
  server.name = info.name();
  server.host_bytes = load.host_bytes_limit();
  server.device_bytes = load.device_bytes_limit();
  if (load.has_free_bytes()) server.free_bytes = load.free_bytes();
  server.usable = live && !info.draining() && !load.read_only();
  server.failure_domain = FailureDomainOf(info);
  server.incarnation = info.incarnation();
  server.rows_pulled_total = load.rows_pulled_total();
  server.rows_pushed_total = load.rows_pushed_total();
  server.draining = info.draining();
  server.reachable = info.live();
  return server;
}

ClusterShard ShardOf(const ShardRecord& record) {
  ClusterShard shard;
  shard.range = record.range;
  shard.index = record.shard.index;
  shard.lanes = record.Lanes().size();
  shard.primary = record.primary.server;
  for (const Member& m : record.members) {
    if (m.server != shard.primary) shard.backups.push_back(m.server);
  }
  return shard;
}

}  // namespace

std::string FailureDomainOf(const v1::ServerInfo& info) {
  if (!info.failure_domain().empty()) return info.failure_domain();
  return info.address().substr(0, info.address().rfind(':'));
}

LoadOf LastLoads(const Leases* leases) {
  return [leases](ServerId server) -> const v1::ServerLoad* {
    const Leases::Lease* const lease = leases->Find(server);
    return lease == nullptr ? nullptr : &lease->load;
  };
}

ClusterView ViewOf(const ClusterState& state, const std::function<bool(ServerId)>& live,
                   const LoadOf& load) {
  ClusterView view;
  for (const auto& [id, info] : state.servers()) {
    const v1::ServerLoad* const heard = load == nullptr ? nullptr : load(id);
    const v1::ServerLoad& last = heard == nullptr ? info.load() : *heard;
    ClusterServer& server = view.servers.emplace_back(ServerOf(info, live(id), last));
    for (const v1::ShardLoad& shard : last.shards()) {
      server.replicas.push_back({ShardId::FromPacked(shard.shard()), shard.rows_pulled_total(),
                                 shard.rows_pushed_total(), shard.bytes()});
    }
  }
  for (const auto& [id, message] : state.tables()) {
    absl::StatusOr<TableSpec> spec = FromProto(message);
    if (!spec.ok()) continue;  // written by a later version: the table stays where it is
    ClusterTable table{*std::move(spec), {}};
    for (const ShardRecord* r : state.ShardsOfTable(id)) table.shards.push_back(ShardOf(*r));
    SortByPosition(&table.shards);
    if (!table.shards.empty()) view.tables.push_back(std::move(table));
  }
  TakeMeasuredBytes(&view);
  TakeFreeBytes(&view);
  return view;
}

ClusterView ServersView(const ClusterState& state, const std::function<bool(ServerId)>& live,
                        const LoadOf& load) {
  ClusterView view;
  for (const auto& [id, info] : state.servers()) {
    const v1::ServerLoad* const heard = load(id);
    ClusterServer& server = view.servers.emplace_back(
        ServerOf(info, live(id), heard == nullptr ? info.load() : *heard));
    const ClusterState::HeldBytes held = state.HeldBy(id);
    server.other_bytes = held.all;
    server.other_primary_bytes = held.primary;
  }
  return view;
}

}  // namespace hotbed
