#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/confirm.h"
#include "cli/shards/find_server.h"
#include "cli/shards/shard_selection.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace hotbed {
namespace {

struct ShardChooseFlags {
  std::string table;
  std::string shards;
  std::string server;
  ConfirmFlags confirm;
};

// A shard of a range that needs no choice is left out; one that is named by itself is an error.
absl::Status ChooseAll(const std::vector<SelectedShard>& shards, uint64_t server, bool dry_run,
                       CoordinatorStub* coordinator, std::vector<v1::ChooseReplicaReply>* chosen) {
  absl::Status refused;
  for (const SelectedShard& shard : shards) {
    v1::ChooseReplicaRequest request;
    request.set_shard(shard.record.shard());
    request.set_server(absl::StrCat(server));
    request.set_dry_run(dry_run);
    absl::StatusOr<v1::ChooseReplicaReply> reply = coordinator->ChooseReplica(request);
    if (reply.ok()) {
      chosen->push_back(*std::move(reply));
    } else if (shard.by_name || !absl::IsFailedPrecondition(reply.status())) {
      return reply.status();
    } else {
      refused = reply.status();
    }
  }
  return chosen->empty() ? refused : absl::OkStatus();
}

absl::Status Choose(const CommandContext& context, const ShardChooseFlags& flags) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServerInfo server, FindServer(map, flags.server));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<SelectedShard> shards,
                          SelectShards(map, {absl::StrCat(flags.table, "/", flags.shards)}));
  std::vector<v1::ChooseReplicaReply> chosen;
  if (!flags.confirm.yes || flags.confirm.dry_run) {
    HOTBED_RETURN_IF_ERROR(
        ChooseAll(shards, server.server(), /*dry_run=*/true, &coordinator, &chosen));
  }
  if (!flags.confirm.dry_run) {
    for (const v1::ChooseReplicaReply& reply : chosen) *context.err << reply.text() << "\n";
    HOTBED_RETURN_IF_ERROR(
        Confirm(context, flags.confirm,
                "What other replicas hold beyond this server's is lost for good.", server.name()));
    chosen.clear();
    HOTBED_RETURN_IF_ERROR(
        ChooseAll(shards, server.server(), /*dry_run=*/false, &coordinator, &chosen));
  }
  nlohmann::ordered_json json = {{"server", server.name()},
                                 {"dry_run", flags.confirm.dry_run},
                                 {"chosen", nlohmann::ordered_json::array()}};
  std::string text;
  for (const v1::ChooseReplicaReply& reply : chosen) {
    const ShardId shard = ShardId::FromPacked(reply.record().shard());
    json["chosen"].push_back(
        {{"shard", shard.index}, {"epoch", reply.record().epoch()}, {"text", reply.text()}});
    absl::StrAppend(&text, flags.confirm.dry_run ? "would be chosen: " : "chosen: ", reply.text(),
                    "\n");
  }
  return context.Answer(json, text);
}

}  // namespace

void AddShardChooseCommand(CLI::App* shard, CommandContext* context) {
  auto flags = std::make_shared<ShardChooseFlags>();
  CLI::App* app = shard->add_subcommand(
      "choose",
      "Choose the replica with which a shard continues after it has lost all its members");
  app->add_option("TABLE", flags->table, "Name of the table")->required();
  app->add_option("SHARD", flags->shards, "INDEX, FIRST-LAST or all; 'hotbed doctor' names them")
      ->required();
  app->add_option("--server", flags->server, "The server whose replica is to count")->required();
  RunsConfirmed(app, context, &flags->confirm,
                [context, flags] { return Choose(*context, *flags); });
}

}  // namespace hotbed
