#include <CLI/App.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/move_flags.h"
#include "cli/shards/find_server.h"
#include "cli/shards/move_watch.h"
#include "cli/shards/shard_replicas.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct ShardDrainFlags {
  std::string server;
  bool undo = false;
  MoveFlags move;
};

// True when no record names the server any more. An error if it is no longer being drained.
absl::StatusOr<bool> Emptied(const v1::ServerInfo& server, const v1::ClusterMap& map) {
  const uint64_t id = server.server();
  const auto held =
      std::count_if(map.shards().begin(), map.shards().end(),
                    [id](const v1::ShardRecord& record) { return StoresShard(record, id); });
  if (held == 0) return true;
  for (const v1::ServerInfo& now : map.servers()) {
    if (now.server() != id || now.draining()) continue;
    return absl::AbortedError(absl::StrCat("the drain of ", server.name(), " was undone; ", held,
                                           " shards are still there"));
  }
  return false;
}

std::string AskedText(const ShardDrainFlags& flags, const v1::DrainServerReply& reply) {
  const std::string& name = reply.server().name();
  if (flags.undo) {
    return absl::StrCat(name, flags.move.dry_run ? " would take" : " takes", " shards again\n");
  }
  std::string text = absl::StrCat(flags.move.dry_run ? "would drain " : "draining ", name, ": ",
                                  reply.shards(), reply.shards() == 1 ? " replica" : " replicas");
  if (reply.bytes() > 0) absl::StrAppend(&text, " of ", FormatBytes(reply.bytes()));
  absl::StrAppend(&text, " to leave");
  if (!flags.move.dry_run) absl::StrAppend(&text, " (request ", reply.number(), ")");
  return absl::StrCat(text, "\n");
}

absl::Status Wait(const v1::DrainServerReply& reply, CoordinatorStub* coordinator,
                  CommandContext* context, nlohmann::ordered_json* json) {
  const Clock* const clock = Clock::Real();
  const int64_t start_ns = clock->NowNs();
  MoveWatchOptions options;
  options.label = absl::StrCat("draining ", reply.server().name());
  options.number = reply.number();
  options.work = {reply.shards(), reply.bytes()};
  options.ended = [&reply](const v1::ClusterMap& map) { return Emptied(reply.server(), map); };
  HOTBED_RETURN_IF_ERROR(WatchMoves(*context, coordinator, options, clock));
  const double seconds = static_cast<double>(clock->NowNs() - start_ns) * 1e-9;
  (*json)["done"] = true;
  (*json)["seconds"] = seconds;
  if (!context->json()) {
    *context->out << reply.server().name() << " holds nothing any more, after "
                  << ShortSeconds(seconds)
                  << ": it may be stopped. It takes no shards until 'hotbed shard drain "
                  << reply.server().name() << " --undo'\n";
  }
  return absl::OkStatus();
}

absl::Status Drain(const ShardDrainFlags& flags, CommandContext* context) {
  CoordinatorStub coordinator(context->coordinator, context->timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const v1::ServerInfo server, FindServer(map, flags.server));
  if (!flags.move.dry_run) HOTBED_RETURN_IF_ERROR(ApplyDial(flags.move.dial, &coordinator));
  v1::DrainServerRequest request;
  request.set_server(absl::StrCat(server.server()));
  request.set_undo(flags.undo);
  request.set_dry_run(flags.move.dry_run);
  HOTBED_ASSIGN_OR_RETURN(v1::DrainServerReply reply, coordinator.DrainServer(request));
  if (reply.server().server() == 0) *reply.mutable_server() = server;
  nlohmann::ordered_json json = {{"server", reply.server().name()},
                                 {"undo", flags.undo},
                                 {"dry_run", flags.move.dry_run},
                                 {"request", reply.number()},
                                 {"shards", reply.shards()},
                                 {"bytes", reply.bytes()},
                                 {"done", false}};
  if (!context->json()) *context->out << AskedText(flags, reply) << std::flush;
  const bool moves = !flags.undo && !flags.move.dry_run;
  if (moves && flags.move.wait) {
    HOTBED_RETURN_IF_ERROR(Wait(reply, &coordinator, context, &json));
  } else if (moves && !context->json()) {
    *context->out << "watch it: hotbed shard moves --watch " << reply.number() << "\n";
  }
  if (context->json()) *context->out << json.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddShardDrainCommand(CLI::App* shard, CommandContext* context) {
  auto flags = std::make_shared<ShardDrainFlags>();
  CLI::App* app = shard->add_subcommand(
      "drain", "Empty a server: all its replicas go elsewhere, and it takes no more");
  app->add_option("SERVER", flags->server, "Its name, as 'hotbed status' shows it")->required();
  app->add_flag("--undo", flags->undo, "Let it take shards again; shards that have left stay away");
  AddMoveFlags(app, &flags->move);
  context->Runs(app, [context, flags] { return Drain(*flags, context); });
}

}  // namespace hotbed
