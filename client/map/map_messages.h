// The coordinator's maps and replies as values of the client. InvalidArgument: a malformed message.
// Pure functions.
#ifndef HOTBED_CLIENT_MAP_MAP_MESSAGES_H_
#define HOTBED_CLIENT_MAP_MAP_MESSAGES_H_

#include "absl/status/statusor.h"
#include "client/map/cluster_map.h"
#include "proto/control.pb.h"

namespace hotbed {

absl::StatusOr<MapUpdate> MapUpdateOf(const v1::ClusterMap& message);
// The table's new state, as of MapUpdate::tables_revision.
absl::StatusOr<MapUpdate> MapUpdateOf(const v1::CreateTableReply& reply);
absl::StatusOr<MapUpdate> MapUpdateOf(const v1::CreateTablesReply& reply);
absl::StatusOr<MapUpdate> MapUpdateOf(const v1::DropTableReply& reply);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_MAP_MESSAGES_H_
