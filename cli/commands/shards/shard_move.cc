#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/move_flags.h"
#include "cli/shards/find_server.h"
#include "cli/shards/shard_selection.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

struct ShardMoveFlags {
  std::vector<std::string> shards;
  std::string from;
  std::string to;
  MoveFlags move;
};

absl::StatusOr<uint64_t> ServerOf(const v1::ClusterMap& map, const char* flag,
                                  const std::string& word) {
  if (word.empty()) return 0;
  const absl::StatusOr<v1::ServerInfo> server = FindServer(map, word);
  if (server.ok()) return server->server();
  return absl::Status(server.status().code(),
                      absl::StrCat(flag, " ", word, ": ", server.status().message()));
}

absl::Status Move(const ShardMoveFlags& flags, CommandContext* context) {
  CoordinatorStub coordinator(context->coordinator, context->timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const uint64_t to, ServerOf(map, "--to", flags.to));
  HOTBED_ASSIGN_OR_RETURN(const uint64_t from, ServerOf(map, "--from", flags.from));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<SelectedShard> shards, SelectShards(map, flags.shards));
  const WantedMoves wanted = MovesTo(shards, from, to);
  if (!context->json() && wanted.passed_over > 0) {
    *context->out << wanted.passed_over << " of " << shards.size() << " shards stay: there already"
                  << (from == 0 ? "" : absl::StrCat(", or without a replica on ", flags.from))
                  << "\n";
  }
  if (wanted.moves.empty()) {
    return context->Answer({{"dry_run", flags.move.dry_run},
                            {"passed_over", wanted.passed_over},
                            {"moves", nlohmann::ordered_json::array()},
                            {"done", true}},
                           "");
  }
  v1::MoveShardsRequest request;
  for (const auto& move : wanted.moves) *request.add_moves() = move;
  request.set_reason("move asked for");
  request.set_dry_run(flags.move.dry_run);
  return CarryOut(context, flags.move, map, request, &coordinator,
                  {{"passed_over", wanted.passed_over}});
}

}  // namespace

void AddShardMoveCommand(CLI::App* shard, CommandContext* context) {
  auto flags = std::make_shared<ShardMoveFlags>();
  CLI::App* app = shard->add_subcommand(
      "move", "Move shards to another server while they are pulled and pushed");
  app->add_option("SHARDS", flags->shards,
                  "TABLE/INDEX, TABLE/FIRST-LAST, TABLE/all or all; may be repeated")
      ->required();
  app->add_option("--to", flags->to, "The server to move them to")->required();
  app->add_option("--from", flags->from,
                  "Move the replica on this server; default: the primary, with its role");
  AddMoveFlags(app, &flags->move);
  context->Runs(app, [context, flags] { return Move(*flags, context); });
}

}  // namespace hotbed
