#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/event_text.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/table_option.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "config/config.h"
#include "proto/convert.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr int kEventsShown = 5;
constexpr uint32_t kEventsKept = 4096;  // events that the coordinator keeps

std::string ServerState(const v1::ServerInfo& server) {
  if (!server.live()) return server.draining() ? "DOWN, drained" : "DOWN";
  if (server.load().read_only()) return server.draining() ? "READ-ONLY, draining" : "READ-ONLY";
  return server.draining() ? "draining" : "live";
}

// The trainer that has ended the fewest steps; null: the group is empty.
const v1::Trainer* Slowest(const v1::TrainerGroup& group) {
  const auto& trainers = group.trainers();
  const auto slowest = std::min_element(
      trainers.begin(), trainers.end(),
      [](const v1::Trainer& a, const v1::Trainer& b) { return a.ended_step() < b.ended_step(); });
  return slowest == trainers.end() ? nullptr : &*slowest;
}

nlohmann::ordered_json TrainersJson(const v1::ListTrainersReply& list) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const v1::TrainerGroup& group : list.groups()) {
    const v1::Trainer* slowest = Slowest(group);
    nlohmann::ordered_json one = {{"group", group.commit().group()},
                                  {"committed_step", group.commit().step()},
                                  {"slowest", slowest == nullptr ? "" : slowest->name()},
                                  {"joining", group.joining()},
                                  {"trainers", nlohmann::ordered_json::array()}};
    for (const v1::Trainer& trainer : group.trainers()) {
      one["trainers"].push_back({{"name", trainer.name()},
                                 {"session", trainer.session()},
                                 {"ended_step", trainer.ended_step()},
                                 {"lease_left_ms", trainer.lease_left_ms()}});
    }
    groups.push_back(std::move(one));
  }
  return groups;
}

std::string TrainersText(const v1::ListTrainersReply& list) {
  if (list.groups().empty()) return "";
  TablePrinter groups({"group", "trainers", "committed step", "slowest", "has ended", "fastest"});
  for (const v1::TrainerGroup& group : list.groups()) {
    const v1::Trainer* slowest = Slowest(group);
    uint64_t fastest = 0;
    for (const v1::Trainer& t : group.trainers()) fastest = std::max(fastest, t.ended_step());
    groups.AddRow({group.commit().group(), absl::StrCat(group.trainers_size()),
                   absl::StrCat(group.commit().step()), slowest == nullptr ? "-" : slowest->name(),
                   slowest == nullptr ? "-" : absl::StrCat(slowest->ended_step()),
                   slowest == nullptr ? "-" : absl::StrCat(fastest)});
  }
  return absl::StrCat("\n", groups.ToText());
}

// Replicas that are not primaries: server -> (backups, learners).
std::map<uint64_t, uint64_t> BackupCounts(const v1::ClusterMap& map) {
  std::map<uint64_t, uint64_t> counts;
  for (const v1::ShardRecord& record : map.shards()) {
    for (const v1::Member& member : record.members()) {
      counts[member.server()] += member.server() == record.primary().server() ? 0 : 1;
    }
    for (const v1::Member& learner : record.learners()) ++counts[learner.server()];
  }
  return counts;
}

// Reports of the coordinator in addition to the map.
struct Doings {
  v1::ListMovesReply moves;
  std::vector<v1::ClusterEvent> events;  // the latest
};

absl::StatusOr<Doings> AskDoings(CoordinatorStub* coordinator) {
  Doings doings;
  HOTBED_ASSIGN_OR_RETURN(doings.moves, coordinator->ListMoves({}));
  v1::ListEventsRequest request;
  request.set_limit(kEventsKept);
  HOTBED_ASSIGN_OR_RETURN(const v1::ListEventsReply events, coordinator->ListEvents(request));
  const int first = std::max(0, events.events_size() - kEventsShown);
  doings.events.assign(events.events().begin() + first, events.events().end());
  return doings;
}

nlohmann::ordered_json MovesJson(const v1::ListMovesReply& moves) {
  return {{"under_way", moves.moves_total()},
          {"done_total", moves.done_total()},
          {"bytes_left", moves.bytes_left()},
          {"bytes_per_s", moves.bytes_per_s()},
          {"paused", moves.paused()}};
}

constexpr int kDoubtsShown = 5;

std::string DoubtsText(const v1::ClusterMap& map, const v1::ListMovesReply& moves) {
  if (moves.doubts_total() == 0) return "";
  std::string out = absl::StrCat("\nIN DOUBT: ", moves.doubts_total(),
                                 " shards of which not every replica that may count was heard\n");
  for (int i = 0; i < std::min(kDoubtsShown, moves.doubts_size()); ++i) {
    absl::StrAppend(&out, "  ", DoubtText(map, moves.doubts(i)), "\n");
  }
  return out;
}

nlohmann::ordered_json DoubtsJson(const v1::ClusterMap& map, const v1::ListMovesReply& moves) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const v1::ShardDoubt& doubt : moves.doubts()) {
    json.push_back({{"shard", ShardName(map, doubt.shard())},
                    {"stopped", doubt.stopped()},
                    {"holds_more", doubt.holds_more()},
                    {"since_unix_ms", doubt.since_unix_ms()},
                    {"text", doubt.text()}});
  }
  return json;
}

std::string DoingsText(const Doings& doings) {
  const v1::ListMovesReply& moves = doings.moves;
  std::string out = "\nmoves: ";
  if (moves.moves_total() == 0) {
    absl::StrAppend(&out, "none in progress");
  } else {
    absl::StrAppend(&out, moves.moves_total(), " in progress or waiting, ",
                    FormatBytes(moves.bytes_left()), " left at ", FormatBytes(moves.bytes_per_s()),
                    "/s ('hotbed shard moves')");
  }
  absl::StrAppend(&out, moves.paused() ? "; PAUSED ('hotbed shard resume')" : "",
                  "\nrebalancing: ", RebalanceText(moves.rebalance()), "\n");
  if (doings.events.empty()) return out;
  absl::StrAppend(&out, "last events:\n");
  for (const v1::ClusterEvent& event : doings.events) {
    absl::StrAppend(&out, "  ", EventLine(event), "\n");
  }
  return out;
}

nlohmann::ordered_json ToJson(const v1::ClusterMap& map) {
  nlohmann::ordered_json json = {{"cluster_id", map.cluster_id()},
                                 {"plan_revision", map.plan_revision()},
                                 {"servers", nlohmann::ordered_json::array()},
                                 {"tables", nlohmann::ordered_json::array()}};
  const std::map<uint64_t, uint64_t> backups = BackupCounts(map);
  for (const v1::ServerInfo& server : map.servers()) {
    const v1::ServerLoad& load = server.load();
    const auto held = backups.find(server.server());
    json["servers"].push_back({{"name", server.name()},
                               {"address", server.address()},
                               {"admin_address", server.admin_address()},
                               {"live", server.live()},
                               {"read_only", load.read_only()},
                               {"draining", server.draining()},
                               {"failure_domain", server.failure_domain()},
                               {"feature_level", server.feature_level()},
                               {"incarnation", server.incarnation()},
                               {"shards", server.shards()},
                               {"replicas", held == backups.end() ? 0 : held->second},
                               {"bytes_held", load.bytes_held()},
                               {"pull_p99_us", load.pull_p99_us()},
                               {"rows_resident", load.rows_resident()},
                               {"hot_bytes", load.hot_bytes()},
                               {"host_bytes_limit", load.host_bytes_limit()},
                               {"spill_bytes", load.spill_bytes()},
                               {"log_bytes", load.log_bytes()},
                               {"rows_pulled_total", load.rows_pulled_total()},
                               {"rows_pushed_total", load.rows_pushed_total()}});
  }
  const ReplicaView view(map);
  for (const v1::TableSpec& table : map.tables()) {
    const absl::StatusOr<TableSpec> spec = FromProto(table);
    if (!spec.ok()) continue;  // from a newer coordinator
    nlohmann::ordered_json one = TableJson(*spec);
    const ReplicaCount count = view.CountOf(table.id());
    one["shards"] = count.shards;
    one["shards_active"] = count.active;
    one["shards_short_of_replicas"] = count.short_of;
    one["learners"] = count.learners;
    one["records_behind_max"] = count.behind_max;
    json["tables"].push_back(std::move(one));
  }
  return json;
}

std::string ServersText(const v1::ClusterMap& map) {
  const std::map<uint64_t, uint64_t> backups = BackupCounts(map);
  TablePrinter servers({"server", "state", "address", "admin", "domain", "shards", "replicas",
                        "resident rows", "hot", "of", "spill", "log", "pulled", "pushed"});
  for (const v1::ServerInfo& s : map.servers()) {
    const v1::ServerLoad& load = s.load();
    const auto held = backups.find(s.server());
    servers.AddRow(
        {s.name(), ServerState(s), s.address(), s.admin_address(), s.failure_domain(),
         absl::StrCat(s.shards()), absl::StrCat(held == backups.end() ? 0 : held->second),
         WithCommas(load.rows_resident()), FormatBytes(load.hot_bytes()),
         FormatBytes(load.host_bytes_limit()), FormatBytes(load.spill_bytes()),
         FormatBytes(load.log_bytes()), ShortCount(static_cast<double>(load.rows_pulled_total())),
         ShortCount(static_cast<double>(load.rows_pushed_total()))});
  }
  return servers.ToText();
}

std::string ToText(const v1::ClusterMap& map) {
  const ReplicaView view(map);
  uint64_t live = 0, active = 0;
  for (const v1::ServerInfo& server : map.servers()) live += server.live() ? 1 : 0;
  for (const v1::ShardRecord& shard : map.shards()) active += shard.active() ? 1 : 0;
  std::string out =
      absl::StrCat("cluster ", map.cluster_id(), ", plan revision ", map.plan_revision(), "\n",
                   live, " of ", map.servers_size(), " servers live, ", active, " of ",
                   map.shards_size(), " shards active\n\n", ServersText(map), "\n");
  if (map.tables().empty()) {
    absl::StrAppend(&out, "no tables yet: 'hotbed table create NAME --dim 64 --rows 1000000'\n");
    return out;
  }
  TablePrinter tables({"table", "kind", "dim", "optimizer", "durability", "shards active"});
  for (const v1::TableSpec& table : map.tables()) {
    const absl::StatusOr<TableSpec> spec = FromProto(table);
    if (!spec.ok()) continue;
    tables.AddRow({spec->name, KindText(*spec), absl::StrCat(spec->dim),
                   OptimizerText(spec->optimizer), FindTableOption("durability")->print(*spec),
                   ActiveText(view.CountOf(table.id()))});
  }
  return absl::StrCat(out, tables.ToText());
}

absl::Status PrintStatus(const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(v1::ClusterMap map, coordinator.GetClusterMap());
  std::sort(map.mutable_servers()->begin(), map.mutable_servers()->end(),
            [](const v1::ServerInfo& a, const v1::ServerInfo& b) { return a.name() < b.name(); });
  HOTBED_ASSIGN_OR_RETURN(const v1::ListTrainersReply trainers, coordinator.ListTrainers());
  HOTBED_ASSIGN_OR_RETURN(const Doings doings, AskDoings(&coordinator));
  nlohmann::ordered_json json = ToJson(map);
  json["trainer_groups"] = TrainersJson(trainers);
  json["in_doubt"] = DoubtsJson(map, doings.moves);
  json["moves"] = MovesJson(doings.moves);
  json["rebalance"] = RebalanceJson(doings.moves.rebalance());
  json["events"] = nlohmann::ordered_json::array();
  for (const v1::ClusterEvent& event : doings.events) json["events"].push_back(EventJson(event));
  return context.Answer(json, absl::StrCat(ToText(map), TrainersText(trainers),
                                           DoubtsText(map, doings.moves), DoingsText(doings)));
}

}  // namespace

void AddStatusCommand(CLI::App* root, CommandContext* context) {
  context->Runs(root->add_subcommand("status", "Servers and tables of the cluster at a glance"),
                [context] { return PrintStatus(*context); });
}

}  // namespace hotbed
