#include "cli/live_view.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/find_table.h"
#include "common/status_macros.h"
#include "planner/report/text_table.h"
#include "proto/convert.h"

namespace hotbed {

absl::StatusOr<ClusterView> ViewOfMap(const v1::ClusterMap& map) {
  ClusterView view;
  for (const v1::ServerInfo& info : map.servers()) {
    view.servers.push_back({.id = info.server(),
                            .name = info.name(),
                            .host_bytes = info.load().host_bytes_limit(),
                            .usable = info.live(),
                            .reachable = info.live()});
  }
  for (const v1::TableSpec& message : map.tables()) {
    HOTBED_ASSIGN_OR_RETURN(TableSpec spec, FromProto(message));
    ClusterTable table{std::move(spec), {}};
    for (const v1::ShardRecord& record : ShardsOf(map, table.spec.id)) {
      HOTBED_ASSIGN_OR_RETURN(const ShardRecord shard, FromProto(record));
      table.shards.push_back({shard.range, shard.primary.server});
    }
    if (!table.shards.empty()) view.tables.push_back(std::move(table));
  }
  return view;
}

std::string UnreachableText(const ClusterView& view) {
  std::map<ServerId, int> shards;
  for (const ClusterTable& table : view.tables) {
    for (const ClusterShard& shard : table.shards) ++shards[shard.primary];
  }
  std::string out;
  for (const ClusterServer& server : view.servers) {
    const auto has = shards.find(server.id);
    if (server.reachable || has == shards.end()) continue;
    absl::StrAppend(&out, Fitted(server.name, 24), " is down: its ", has->second,
                    has->second == 1 ? " shard stays" : " shards stay",
                    " its own: no copy exists elsewhere that could be moved.\n");
  }
  return out;
}

}  // namespace hotbed
