#include "planner/coordinator/cluster_view.h"

#include <utility>

#include "proto/convert.h"

namespace hotbed {

ClusterView ViewOf(const ClusterState& state, const std::function<bool(ServerId)>& live) {
  ClusterView view;
  for (const auto& [id, info] : state.servers()) {
    view.servers.push_back({.id = id,
                            .name = info.name(),
                            .host_bytes = info.load().host_bytes_limit(),
                            .usable = live(id)});
  }
  for (const auto& [id, message] : state.tables()) {
    absl::StatusOr<TableSpec> spec = FromProto(message);
    if (!spec.ok()) continue;  // of a later version: it stays where it is
    ClusterTable table{*std::move(spec), {}};
    for (const v1::ShardRecord* record : state.ShardsOfTable(id)) {
      const absl::StatusOr<ShardRecord> shard = FromProto(*record);
      if (shard.ok()) table.shards.push_back({shard->range, shard->primary.server});
    }
    if (!table.shards.empty()) view.tables.push_back(std::move(table));
  }
  return view;
}

}  // namespace hotbed
