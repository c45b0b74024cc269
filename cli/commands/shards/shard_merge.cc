#include <CLI/App.hpp>
#include <memory>
#include <optional>

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

struct ShardMergeFlags {
  std::string shard;
  std::optional<uint32_t> with;
  bool dry_run = false;
  bool no_wait = false;
};

// The upper neighbour, or the lower one of a table's last shard.
absl::StatusOr<uint64_t> NeighbourOf(const v1::ClusterMap& map, const v1::ShardRecord& record) {
  const TableId table = ShardId::FromPacked(record.shard()).table;
  std::optional<uint64_t> below;
  for (const v1::ShardRecord& other : map.shards()) {
    if (ShardId::FromPacked(other.shard()).table != table) continue;
    if (other.column_first() != record.column_first()) continue;
    if (other.range_first() == record.range_limit()) return other.shard();
    if (other.range_limit() == record.range_first()) below = other.shard();
  }
  if (below.has_value()) return *below;
  return absl::FailedPreconditionError("it is the only shard of its table: there is no neighbour");
}

absl::Status Merge(const ShardMergeFlags& flags, const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const std::vector<SelectedShard> shards,
                          SelectShards(map, {flags.shard}));
  if (shards.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(flags.shard, " names ", shards.size(),
                                                   " shards; name one, which is merged with its ",
                                                   "neighbour"));
  }
  const v1::ShardRecord& record = shards[0].record;
  ShardId with = ShardId::FromPacked(record.shard());
  if (flags.with.has_value()) {
    with.index = *flags.with;
  } else {
    HOTBED_ASSIGN_OR_RETURN(const uint64_t neighbour, NeighbourOf(map, record));
    with = ShardId::FromPacked(neighbour);
  }
  v1::CutShardRequest request;
  request.set_shard(record.shard());
  request.set_merge_with(with.packed());
  request.set_dry_run(flags.dry_run);
  HOTBED_ASSIGN_OR_RETURN(const v1::CutShardReply reply, coordinator.CutShard(request));
  const bool waits = !flags.dry_run && !flags.no_wait;
  if (waits) HOTBED_RETURN_IF_ERROR(AwaitCuts({reply}, context.timeout_duration(), &coordinator));
  const ShardId lower = ShardId::FromPacked(reply.cut().shard());
  const ShardId upper = ShardId::FromPacked(reply.cut().with());
  std::string table = absl::StrCat(lower.table);
  for (const v1::TableSpec& spec : map.tables()) {
    if (spec.id() == lower.table) table = spec.name();
  }
  const nlohmann::ordered_json json = {{"dry_run", flags.dry_run}, {"table", table},
                                       {"shard", lower.index},     {"with", upper.index},
                                       {"at", reply.cut().at()},   {"done", waits}};
  return context.Answer(json, absl::StrCat(flags.dry_run ? "would be merged: "
                                           : waits       ? "merged: "
                                                         : "asked for: ",
                                           table, "/", upper.index, " into ", table, "/",
                                           lower.index, ", at ", reply.cut().at(), "\n"));
}

}  // namespace

void AddShardMergeCommand(CLI::App* shard, CommandContext* context) {
  auto flags = std::make_shared<ShardMergeFlags>();
  CLI::App* app = shard->add_subcommand(
      "merge", "Make one shard of two neighbours while they are pulled and pushed");
  app->add_option("SHARD", flags->shard, "TABLE/INDEX of one of the two")->required();
  app->add_option("--with", flags->with,
                  "The index of the neighbour; default: the next one upwards. Both must be on the "
                  "same servers, with the same primary");
  app->add_flag("--dry-run", flags->dry_run, "Show what would be done, change nothing");
  app->add_flag("--no-wait", flags->no_wait, "Do not wait until they are merged");
  context->Runs(app, [context, flags] { return Merge(*flags, *context); });
}

}  // namespace hotbed
