#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/shard_cuts.h"
#include "cli/shards/shard_selection.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

struct ShardSplitFlags {
  std::vector<std::string> shards;
  uint64_t at = 0;
  bool dry_run = false;
  bool no_wait = false;
};

absl::Status Split(const ShardSplitFlags& flags, const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const std::vector<SelectedShard> shards, SelectShards(map, flags.shards));
  if (flags.at != 0 && shards.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--at ", flags.at, " is for one shard, and the command names ", shards.size()));
  }
  std::vector<v1::CutShardReply> cuts;
  for (const bool dry_run : {true, false}) {  // nothing is asked for unless all may be cut
    if (flags.dry_run && !dry_run) break;
    cuts.clear();
    for (const SelectedShard& shard : shards) {
      v1::CutShardRequest request;
      request.set_shard(shard.record.shard());
      request.set_at(flags.at);
      request.set_dry_run(dry_run);
      HOTBED_ASSIGN_OR_RETURN(v1::CutShardReply reply, coordinator.CutShard(request));
      cuts.push_back(std::move(reply));
    }
  }
  const bool waits = !flags.dry_run && !flags.no_wait;
  if (waits) HOTBED_RETURN_IF_ERROR(AwaitCuts(cuts, context.timeout_duration(), &coordinator));
  nlohmann::ordered_json json = {
      {"dry_run", flags.dry_run}, {"splits", nlohmann::ordered_json::array()}, {"done", waits}};
  std::string text;
  for (const v1::CutShardReply& reply : cuts) {
    const ShardId id = ShardId::FromPacked(reply.cut().shard());
    const v1::ShardRecord& record = reply.record();
    std::string name = id.ToString();
    for (const v1::TableSpec& table : map.tables()) {
      if (table.id() == id.table) name = absl::StrCat(table.name(), "/", id.index);
    }
    json["splits"].push_back({{"shard", id.index},
                              {"table", name.substr(0, name.rfind('/'))},
                              {"first", record.range_first()},
                              {"at", reply.cut().at()},
                              {"limit", record.range_limit()}});
    absl::StrAppend(&text,
                    flags.dry_run ? "would be split: "
                    : waits       ? "split: "
                                  : "asked for: ",
                    name, " [", record.range_first(), ", ", record.range_limit(), ") at ",
                    reply.cut().at(), "\n");
  }
  return context.Answer(json, text);
}

}  // namespace

void AddShardSplitCommand(CLI::App* shard, CommandContext* context) {
  auto flags = std::make_shared<ShardSplitFlags>();
  CLI::App* app =
      shard->add_subcommand("split", "Cut shards in two while they are pulled and pushed");
  app->add_option("SHARDS", flags->shards,
                  "TABLE/INDEX, TABLE/FIRST-LAST, TABLE/all or all; may be repeated")
      ->required();
  app->add_option("--at", flags->at,
                  "The first row, or of a hashed table the first bucket of 65,536, of the new "
                  "shard; default: the middle");
  app->add_flag("--dry-run", flags->dry_run, "Show what would be done, change nothing");
  app->add_flag("--no-wait", flags->no_wait, "Do not wait until they are cut");
  context->Runs(app, [context, flags] { return Split(*flags, *context); });
}

}  // namespace hotbed
