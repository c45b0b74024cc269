#include "client/map/map_messages.h"

#include <utility>

#include "common/status_macros.h"
#include "proto/convert.h"

namespace hotbed {

absl::StatusOr<MapUpdate> MapUpdateOf(const v1::ClusterMap& message) {
  MapUpdate update;
  update.cluster_id = message.cluster_id();
  update.plan_revision = message.plan_revision();
  update.delta = message.delta();
  for (const v1::TableSpec& table : message.tables()) {
    HOTBED_ASSIGN_OR_RETURN(TableSpec spec, FromProto(table));
    update.tables.push_back(std::move(spec));
  }
  for (const v1::ShardRecord& shard : message.shards()) {
    HOTBED_ASSIGN_OR_RETURN(ShardRecord record, FromProto(shard));
    update.shards.push_back(std::move(record));
  }
  for (const v1::ServerInfo& server : message.servers()) {
    update.servers.push_back({server.server(), server.incarnation(), server.address(),
                              server.message_bytes_max(), server.live()});
  }
  update.tables_dropped.assign(message.tables_dropped().begin(), message.tables_dropped().end());
  return update;
}

absl::StatusOr<MapUpdate> MapUpdateOf(const v1::CreateTableReply& reply) {
  v1::ClusterMap map;
  map.set_delta(true);
  *map.add_tables() = reply.spec();
  *map.mutable_shards() = reply.shards();
  HOTBED_ASSIGN_OR_RETURN(MapUpdate update, MapUpdateOf(map));
  update.tables_revision = reply.plan_revision();
  return update;
}

absl::StatusOr<MapUpdate> MapUpdateOf(const v1::CreateTablesReply& reply) {
  v1::ClusterMap map;
  map.set_delta(true);
  uint64_t revision = 0;
  for (const v1::CreateTableReply& table : reply.tables()) {
    *map.add_tables() = table.spec();
    map.mutable_shards()->MergeFrom(table.shards());
    revision = table.plan_revision();
  }
  HOTBED_ASSIGN_OR_RETURN(MapUpdate update, MapUpdateOf(map));
  update.tables_revision = revision;
  return update;
}

absl::StatusOr<MapUpdate> MapUpdateOf(const v1::DropTableReply& reply) {
  MapUpdate update;
  update.delta = true;
  update.tables_dropped.assign(reply.parts().begin(), reply.parts().end());
  if (reply.parts().empty()) update.tables_dropped.push_back(reply.id());
  update.tables_revision = reply.plan_revision();
  return update;
}

}  // namespace hotbed
