#include "cli/shards/live_view.h"

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/tables/find_table.h"
#include "common/status_macros.h"
#include "planner/report/text_table.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

ClusterServer ServerOf(const v1::ServerInfo& info) {
  ClusterServer server;
  server.id = info.server();
  server.name = info.name();
  server.host_bytes = info.load().host_bytes_limit();
  server.device_bytes = info.load().device_bytes_limit();
  if (info.load().has_free_bytes()) server.free_bytes = info.load().free_bytes();
  server.usable = info.live() && !info.draining() && !info.load().read_only();
  server.draining = info.draining();
  server.reachable = info.live();
  server.failure_domain = info.failure_domain();
  server.incarnation = info.incarnation();
  for (const v1::ShardLoad& shard : info.load().shards()) {
    server.replicas.push_back({ShardId::FromPacked(shard.shard()), shard.rows_pulled_total(),
                               shard.rows_pushed_total(), shard.bytes()});
  }
  return server;
}

}  // namespace

absl::StatusOr<ClusterView> ViewOfMap(const v1::ClusterMap& map) {
  ClusterView view;
  absl::flat_hash_map<uint64_t, const v1::ShardRate*> rates;
  for (const v1::ShardRate& rate : map.rates()) rates[rate.shard()] = &rate;
  for (const v1::ServerInfo& info : map.servers()) view.servers.push_back(ServerOf(info));
  for (const v1::TableSpec& message : map.tables()) {
    HOTBED_ASSIGN_OR_RETURN(TableSpec spec, FromProto(message));
    ClusterTable table{std::move(spec), {}};
    for (const v1::ShardRecord& record : ShardsOf(map, table.spec.id)) {
      HOTBED_ASSIGN_OR_RETURN(const ShardRecord shard, FromProto(record));
      table.shards.push_back({shard.range, shard.primary.server, {}});
      table.shards.back().index = shard.shard.index;
      table.shards.back().lanes = shard.Lanes().size();
      for (const Member& member : shard.members) {
        if (member == shard.primary) continue;
        table.shards.back().backups.push_back(member.server);
      }
      const auto rate = rates.find(record.shard());
      if (rate == rates.end()) continue;
      table.shards.back().rows_pulled = rate->second->rows_pulled();
      table.shards.back().rows_pushed = rate->second->rows_pushed();
    }
    SortByPosition(&table.shards);
    if (!table.shards.empty()) view.tables.push_back(std::move(table));
  }
  TakeMeasuredBytes(&view);
  TakeFreeBytes(&view);
  return view;
}

std::string LiveWorkloadText(const v1::ClusterMap& map) {
  double rows_per_s = 0;
  for (const v1::ShardRate& rate : map.rates())
    rows_per_s += rate.rows_pulled() + rate.rows_pushed();
  if (rows_per_s == 0) {
    return "Times are for 512 evenly spread ids of each table per step: no load is measured.\n";
  }
  return absl::StrFormat(
      "Times are for 65,536 rows per table and step on average, by loads measured at %.0f "
      "rows/s.\n",
      rows_per_s);
}

std::string UnreachableText(const ClusterView& view) {
  std::map<ServerId, int> shards;
  for (const ClusterTable& table : view.tables) {
    for (const ClusterShard& shard : table.shards) {
      if (shard.backups.empty()) ++shards[shard.primary];
    }
  }
  std::string out;
  for (const ClusterServer& server : view.servers) {
    const auto has = shards.find(server.id);
    if (server.reachable || has == shards.end()) continue;
    absl::StrAppend(&out, Fitted(server.name, 24), " is down: its ", has->second,
                    has->second == 1 ? " shard stays" : " shards stay",
                    " its own: no replica exists elsewhere that could be moved.\n");
  }
  return out;
}

}  // namespace hotbed
