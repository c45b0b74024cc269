#include <CLI/App.hpp>
#include <CLI/Error.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/commands/move_flags.h"
#include "cli/shards/event_text.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

using Action = v1::ControlMovesRequest;

struct ShardControlFlags {
  DialFlags dial;
  uint64_t number = 0;
  bool all = false;
  bool dry_run = false;
};

nlohmann::ordered_json StateJson(uint64_t moves, bool paused, const v1::TransferLimits& limits,
                                 const v1::RebalanceStatus& rebalance, bool dry_run) {
  return {{"dry_run", dry_run},
          {"moves", moves},
          {"paused", paused},
          {"limits", DialJson(limits)},
          {"rebalance", RebalanceJson(rebalance)}};
}

std::string MoveCountText(uint64_t moves) {
  return absl::StrCat(": ", moves, moves == 1 ? " move\n" : " moves\n");
}
std::string LimitsText(bool paused, const v1::TransferLimits& limits) {
  return absl::StrCat("transfers: ", paused ? "PAUSED, " : "", DialText(limits), "\n");
}
std::string RebalancingText(const v1::RebalanceStatus& rebalance) {
  return absl::StrCat("rebalancing ", RebalanceText(rebalance), "\n");
}

// The moves that are concerned, from the coordinator's present list.
absl::Status DryRun(const Action& request, const char* said, CoordinatorStub* coordinator,
                    CommandContext* context) {
  v1::ListMovesRequest list;
  list.set_number(request.number());
  HOTBED_ASSIGN_OR_RETURN(const v1::ListMovesReply reply, coordinator->ListMoves(list));
  return context->Answer(
      StateJson(reply.moves_total(), reply.paused(), reply.limits(), reply.rebalance(), true),
      absl::StrCat("would be ", said, MoveCountText(reply.moves_total())));
}

// `said`: the word for the result, such as "paused".
absl::Status Control(Action request, const char* said, const ShardControlFlags& flags,
                     CommandContext* context) {
  CoordinatorStub coordinator(context->coordinator, context->timeout_duration());
  request.set_number(flags.number);
  SetDial(flags.dial, &request);
  if (flags.dry_run) return DryRun(request, said, &coordinator, context);
  HOTBED_ASSIGN_OR_RETURN(const v1::ControlMovesReply reply, coordinator.ControlMoves(request));
  const nlohmann::ordered_json json =
      StateJson(reply.moves(), reply.paused(), reply.limits(), reply.rebalance(), false);
  if (request.action() == Action::REBALANCE_ON || request.action() == Action::REBALANCE_OFF) {
    return context->Answer(json, RebalancingText(reply.rebalance()));
  }
  return context->Answer(json, absl::StrCat(request.action() == Action::NOTHING
                                                ? ""
                                                : absl::StrCat(said, MoveCountText(reply.moves())),
                                            LimitsText(reply.paused(), reply.limits())));
}

CLI::App* AddControl(CLI::App* parent, CommandContext* context, const char* name, const char* help,
                     Action::Action action, const char* said,
                     const std::shared_ptr<ShardControlFlags>& flags) {
  CLI::App* app = parent->add_subcommand(name, help);
  app->add_flag("--dry-run", flags->dry_run, "Print the moves that are concerned; change nothing");
  context->Runs(app, [context, flags, action, said] {
    Action request;
    request.set_action(action);
    return Control(request, said, *flags, context);
  });
  return app;
}

absl::Status ShowLimits(const ShardControlFlags& flags, CommandContext* context) {
  v1::ControlMovesRequest request;
  if (SetDial(flags.dial, &request)) return Control(request, "", flags, context);
  CoordinatorStub coordinator(context->coordinator, context->timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ListMovesReply reply, coordinator.ListMoves({}));
  return context->Answer(DialJson(reply.limits()), LimitsText(reply.paused(), reply.limits()));
}

absl::Status ShowRebalance(CommandContext* context) {
  CoordinatorStub coordinator(context->coordinator, context->timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ListMovesReply reply, coordinator.ListMoves({}));
  return context->Answer(RebalanceJson(reply.rebalance()), RebalancingText(reply.rebalance()));
}

}  // namespace

void AddShardControlCommands(CLI::App* shard, CommandContext* context) {
  AddControl(shard, context, "pause", "Hold all snapshot transfers; rows transferred already stay",
             Action::PAUSE, "paused", std::make_shared<ShardControlFlags>());
  AddControl(shard, context, "resume", "Continue after a pause", Action::RESUME, "resumed",
             std::make_shared<ShardControlFlags>());
  auto abort = std::make_shared<ShardControlFlags>();
  CLI::App* app = AddControl(
      shard, context, "abort",
      "Give up moves: new replicas that are not members yet are dropped, the others are finished",
      Action::ABORT, "aborted", abort);
  CLI::Option* const number =
      app->add_option("REQUEST", abort->number, "The number that move or drain printed")
          ->check(CLI::PositiveNumber);
  app->add_flag("--all", abort->all, "All moves")->excludes(number);
  app->parse_complete_callback([abort] {
    if (abort->number == 0 && !abort->all) throw CLI::RequiredError("REQUEST or --all");
  });
  auto limit = std::make_shared<ShardControlFlags>();
  CLI::App* limits = shard->add_subcommand(
      "limit", "Set limits on all snapshot transfers; without flags, print them");
  AddDialFlags(limits, &limit->dial);
  context->Runs(limits, [context, limit] { return ShowLimits(*limit, context); });
}

void AddRebalanceCommands(CLI::App* rebalance, CommandContext* context) {
  AddControl(rebalance, context, "on", "Let the cluster move shards by itself",
             Action::REBALANCE_ON, "on", std::make_shared<ShardControlFlags>());
  AddControl(rebalance, context, "off", "Move nothing unasked; moves in progress are finished",
             Action::REBALANCE_OFF, "off", std::make_shared<ShardControlFlags>());
  context->Runs(rebalance->add_subcommand(
                    "status", "Print whether it is on, the imbalance and the last reason"),
                [context] { return ShowRebalance(context); });
}

}  // namespace hotbed
