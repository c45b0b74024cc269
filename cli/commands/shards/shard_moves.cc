#include <CLI/App.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/move_flags.h"
#include "cli/shards/event_text.h"
#include "cli/shards/move_watch.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr int kRowsMax = 60;  // rows of text, unless --all

struct ShardMovesFlags {
  uint64_t number = 0;
  bool watch = false;
  bool all = false;
};

std::string CopiedText(const v1::ShardMove& move) {
  if (move.bytes_total() == 0) return "-";
  return absl::StrCat(FormatBytes(move.bytes_copied()), " of ", FormatBytes(move.bytes_total()));
}

std::string ToText(const v1::ListMovesReply& list, const v1::ClusterMap& map, bool all) {
  std::string out = absl::StrCat(list.moves_total(), list.moves_total() == 1 ? " move" : " moves",
                                 " in progress or waiting");
  if (list.moves_total() > 0) {
    absl::StrAppend(&out, ", ", FormatBytes(list.bytes_left()), " left");
  }
  if (list.bytes_per_s() > 0) {
    absl::StrAppend(&out, " at ", FormatBytes(list.bytes_per_s()), "/s, ETA ",
                    ShortSeconds(static_cast<double>(list.bytes_left()) /
                                 static_cast<double>(list.bytes_per_s())));
  }
  absl::StrAppend(&out, "; ", list.done_total(), " done since this coordinator began\ntransfers: ",
                  list.paused() ? "PAUSED ('hotbed shard resume'), " : "", DialText(list.limits()),
                  "\nrebalancing: ", RebalanceText(list.rebalance()), "\n");
  if (list.moves().empty()) return out;
  TablePrinter moves({"shard", "request", "from -> to", "step", "copied", "waits for", "reason"});
  int rows = 0;
  for (const v1::ShardMove& move : list.moves()) {
    if (!all && ++rows > kRowsMax) break;
    moves.AddRow({ShardName(map, move.goal().shard()), absl::StrCat(move.goal().number()),
                  MoveText(map, move), move.step(), CopiedText(move), move.waits_for(),
                  move.goal().reason()});
  }
  absl::StrAppend(&out, "\n", moves.ToText());
  if (!all && list.moves_size() > kRowsMax) {
    absl::StrAppend(&out, "and ", list.moves_size() - kRowsMax, " more: --all\n");
  }
  return out;
}

nlohmann::ordered_json ToJson(const v1::ListMovesReply& list, const v1::ClusterMap& map) {
  nlohmann::ordered_json json = {{"moves_total", list.moves_total()},
                                 {"done_total", list.done_total()},
                                 {"bytes_left", list.bytes_left()},
                                 {"bytes_per_s", list.bytes_per_s()},
                                 {"paused", list.paused()},
                                 {"limits", DialJson(list.limits())},
                                 {"rebalance", RebalanceJson(list.rebalance())},
                                 {"moves", nlohmann::ordered_json::array()}};
  for (const v1::ShardMove& move : list.moves()) {
    nlohmann::ordered_json one = GoalJson(map, move.goal());
    one["request"] = move.goal().number();
    one["since_unix_ms"] = move.goal().since_unix_ms();
    one["step"] = move.step();
    one["bytes_copied"] = move.bytes_copied();
    one["bytes_total"] = move.bytes_total();
    one["waits_for"] = move.waits_for();
    one["record"] = ShardJson(map, move.record());
    json["moves"].push_back(std::move(one));
  }
  return json;
}

absl::Status Show(const ShardMovesFlags& flags, CommandContext* context) {
  CoordinatorStub coordinator(context->coordinator, context->timeout_duration());
  v1::ListMovesRequest request;
  request.set_number(flags.number);
  HOTBED_ASSIGN_OR_RETURN(v1::ListMovesReply list, coordinator.ListMoves(request));
  if (flags.watch && list.moves_total() > 0) {
    MoveWatchOptions options;
    options.label = "moving";
    options.number = flags.number;
    options.work = WorkOf(list);
    HOTBED_RETURN_IF_ERROR(WatchMoves(*context, &coordinator, options, Clock::Real()));
    HOTBED_ASSIGN_OR_RETURN(list, coordinator.ListMoves(request));
  }
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  return context->Answer(ToJson(list, map), ToText(list, map, flags.all));
}

}  // namespace

void AddShardMovesCommand(CLI::App* shard, CommandContext* context) {
  auto flags = std::make_shared<ShardMovesFlags>();
  CLI::App* app =
      shard->add_subcommand("moves", "Moves in progress and waiting, and what they wait for");
  app->add_option("REQUEST", flags->number,
                  "Only moves of this request (the number that move or drain printed)");
  app->add_flag("--watch", flags->watch, "Wait until they are done, with progress");
  app->add_flag("--all", flags->all, "Text: every move");
  context->Runs(app, [context, flags] { return Show(*flags, context); });
}

}  // namespace hotbed
