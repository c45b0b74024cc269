#include "cli/commands/move_flags.h"

#include <CLI/App.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/shards/move_watch.h"
#include "cli/shards/shard_selection.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "config/units.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr int64_t kPullMsMax = 3'600'000;

absl::StatusOr<uint64_t> ParseBandwidth(const std::string& text) {
  if (text == "none") return 0;
  return ParseBytes(std::string(absl::StripSuffix(text, "/s")));
}

absl::StatusOr<int64_t> ParsePullLimit(const std::string& text) {
  if (text == "none") return 0;
  HOTBED_ASSIGN_OR_RETURN(const int64_t ms, ParseMillis(text));
  if (ms <= kPullMsMax) return ms;
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is above 1h; 'none' is no limit"));
}

// Reports the shards that are not where they were moved to.
absl::StatusOr<bool> Fulfilled(const v1::MoveShardsReply& asked, const v1::ClusterMap& map) {
  std::map<uint64_t, const v1::ShardRecord*> records;
  for (const v1::ShardRecord& record : map.shards()) records[record.shard()] = &record;
  int missing = 0;
  std::string first;
  for (const v1::ShardGoal& goal : asked.goals()) {
    const auto record = records.find(goal.shard());
    bool held = record != records.end() && goal.servers_size() > 0 &&
                record->second->primary().server() == goal.servers(0);
    for (const uint64_t server : goal.servers()) {
      held = held && HoldsReplica(*record->second, server);
    }
    if (!held && missing++ == 0) first = ShardName(map, goal.shard());
  }
  if (missing == 0) return true;
  return absl::AbortedError(absl::StrCat(
      missing, " of ", asked.goals_size(), " shards are not where they were to be, the first is ",
      first, ": the moves were aborted, or something else was asked for later ('hotbed events')"));
}

nlohmann::ordered_json AskedJson(const v1::ClusterMap& map, const v1::MoveShardsReply& reply,
                                 bool dry_run) {
  nlohmann::ordered_json json = {{"dry_run", dry_run},
                                 {"request", reply.number()},
                                 {"bytes", reply.bytes()},
                                 {"moves", nlohmann::ordered_json::array()}};
  for (const v1::ShardGoal& goal : reply.goals()) json["moves"].push_back(GoalJson(map, goal));
  return json;
}

std::string AskedText(const v1::MoveShardsReply& reply, bool dry_run) {
  std::string text = absl::StrCat(dry_run ? "would move " : "moving ", reply.goals_size(),
                                  reply.goals_size() == 1 ? " shard" : " shards");
  if (reply.bytes() > 0) absl::StrAppend(&text, " of ", FormatBytes(reply.bytes()));
  if (!dry_run) absl::StrAppend(&text, " (request ", reply.number(), ")");
  return absl::StrCat(text, "\n");
}

}  // namespace

void AddDialFlags(CLI::App* app, DialFlags* flags) {
  app->add_option(
         "--bandwidth", flags->bandwidth,
         "Limit of all snapshot transfers together, such as 200MiB/s, or none; stays in force")
      ->check([](const std::string& text) {
        return std::string(ParseBandwidth(text).status().message());
      });
  app->add_option("--pull-p99-max", flags->pull_p99_max,
                  "Transfers slow down while a server's pulls take longer, such as 20ms, or none; "
                  "stays in force")
      ->check([](const std::string& text) {
        return std::string(ParsePullLimit(text).status().message());
      });
}

void AddMoveFlags(CLI::App* app, MoveFlags* flags) {
  AddDialFlags(app, &flags->dial);
  app->add_flag("--wait,!--no-wait", flags->wait,
                "Wait for the end, with progress (default); --no-wait returns at once");
  app->add_flag("--dry-run", flags->dry_run, "Print what would be done; change nothing");
}

bool SetDial(const DialFlags& flags, v1::ControlMovesRequest* request) {
  if (!flags.bandwidth.empty()) request->set_bytes_per_s(*ParseBandwidth(flags.bandwidth));
  if (!flags.pull_p99_max.empty()) {
    request->set_pull_p99_ms_max(static_cast<uint32_t>(*ParsePullLimit(flags.pull_p99_max)));
  }
  return !flags.bandwidth.empty() || !flags.pull_p99_max.empty();
}

absl::Status ApplyDial(const DialFlags& flags, CoordinatorStub* coordinator) {
  v1::ControlMovesRequest request;
  if (!SetDial(flags, &request)) return absl::OkStatus();
  return coordinator->ControlMoves(request).status();
}

std::string DialText(const v1::TransferLimits& limits) {
  return absl::StrCat(
      limits.bytes_per_s() == 0 ? "no limit of bandwidth"
                                : absl::StrCat("at most ", FormatBytes(limits.bytes_per_s()), "/s"),
      limits.pull_p99_ms_max() == 0
          ? ""
          : absl::StrCat(", slower while pulls take above ", limits.pull_p99_ms_max(), " ms"));
}

nlohmann::ordered_json DialJson(const v1::TransferLimits& limits) {
  return {{"bytes_per_s", limits.bytes_per_s()}, {"pull_p99_ms_max", limits.pull_p99_ms_max()}};
}

nlohmann::ordered_json GoalJson(const v1::ClusterMap& map, const v1::ShardGoal& goal) {
  nlohmann::ordered_json servers = nlohmann::ordered_json::array();
  for (const uint64_t server : goal.servers()) servers.push_back(ServerName(map, server));
  return {{"shard", ShardName(map, goal.shard())}, {"servers", servers}, {"reason", goal.reason()}};
}

absl::Status CarryOut(CommandContext* context, const MoveFlags& flags, const v1::ClusterMap& map,
                      const v1::MoveShardsRequest& request, CoordinatorStub* coordinator,
                      nlohmann::ordered_json json) {
  if (!flags.dry_run) HOTBED_RETURN_IF_ERROR(ApplyDial(flags.dial, coordinator));
  HOTBED_ASSIGN_OR_RETURN(const v1::MoveShardsReply reply, coordinator->MoveShards(request));
  if (!context->json()) *context->out << AskedText(reply, flags.dry_run) << std::flush;
  json.update(AskedJson(map, reply, flags.dry_run));
  json["done"] = false;
  if (!flags.dry_run && flags.wait && reply.goals_size() > 0) {
    const Clock* const clock = Clock::Real();
    const int64_t start_ns = clock->NowNs();
    MoveWatchOptions options;
    options.label = "moving";
    options.number = reply.number();
    options.work = {static_cast<uint64_t>(reply.goals_size()), reply.bytes()};
    options.ended = [&reply](const v1::ClusterMap& now) { return Fulfilled(reply, now); };
    HOTBED_RETURN_IF_ERROR(WatchMoves(*context, coordinator, options, clock));
    const double seconds = static_cast<double>(clock->NowNs() - start_ns) * 1e-9;
    json["done"] = true;
    json["seconds"] = seconds;
    if (!context->json()) *context->out << "done in " << ShortSeconds(seconds) << "\n";
  } else if (!flags.dry_run && !context->json()) {
    *context->out << "watch them: hotbed shard moves --watch " << reply.number() << "\n";
  }
  if (context->json()) *context->out << json.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace hotbed
