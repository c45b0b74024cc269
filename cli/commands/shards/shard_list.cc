#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/find_table.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

absl::Status ListShards(const CommandContext& context, const std::string& table) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  TableId only = 0;
  if (!table.empty()) {
    HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FindTable(map, table));
    only = spec.id;
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  const ReplicaView view(map);
  TablePrinter printer(
      {"shard", "first", "limit", "columns", "epoch", "active", "primary", "backups", "learners"});
  for (const v1::TableSpec& spec : map.tables()) {
    if (only != 0 && spec.id() != only) continue;
    for (const v1::ShardRecord& shard : ShardsOf(map, spec.id())) {
      const std::vector<ShardReplica> replicas = view.ReplicasOf(shard);
      json.push_back(ShardJson(map, shard));
      json.back()["replicas"] = ReplicasJson(replicas);
      printer.AddRow({ShardName(map, shard.shard()), absl::StrCat(shard.range_first()),
                      absl::StrCat(shard.range_limit()), ColumnsText(shard),
                      absl::StrCat(shard.epoch()), shard.active() ? "yes" : "no",
                      ReplicasText(replicas, ReplicaRole::kPrimary),
                      ReplicasText(replicas, ReplicaRole::kMember),
                      ReplicasText(replicas, ReplicaRole::kLearner)});
    }
  }
  return context.Answer(json, printer.ToText());
}

}  // namespace

void AddShardListCommand(CLI::App* shard, CommandContext* context) {
  auto table = std::make_shared<std::string>();
  CLI::App* app = shard->add_subcommand(
      "list", "Every shard: range of rows (buckets if hashed) and columns, epoch, servers");
  app->add_option("--table", *table, "Only shards of this table");
  context->Runs(app, [context, table] { return ListShards(*context, *table); });
}

}  // namespace hotbed
