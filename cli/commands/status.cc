#include <CLI/App.hpp>
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/coordinator_stub.h"
#include "cli/table_printer.h"
#include "cli/table_text.h"
#include "common/status_macros.h"
#include "config/config.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

struct ShardCount {
  uint64_t active = 0;
  uint64_t all = 0;
};

std::map<uint32_t, ShardCount> CountShards(const v1::ClusterMap& map) {
  std::map<uint32_t, ShardCount> counts;
  for (const v1::ShardRecord& shard : map.shards()) {
    ShardCount& count = counts[ShardId::FromPacked(shard.shard()).table];
    ++count.all;
    count.active += shard.active() ? 1 : 0;
  }
  return counts;
}

std::string ServerState(const v1::ServerInfo& server) {
  if (!server.live()) return "DOWN";
  return server.load().read_only() ? "READ-ONLY" : "live";
}

// Who has ended the least; null: nobody is in the group.
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

nlohmann::ordered_json ToJson(const v1::ClusterMap& map) {
  nlohmann::ordered_json json = {{"cluster_id", map.cluster_id()},
                                 {"plan_revision", map.plan_revision()},
                                 {"servers", nlohmann::ordered_json::array()},
                                 {"tables", nlohmann::ordered_json::array()}};
  for (const v1::ServerInfo& server : map.servers()) {
    const v1::ServerLoad& load = server.load();
    json["servers"].push_back({{"name", server.name()},
                               {"address", server.address()},
                               {"admin_address", server.admin_address()},
                               {"live", server.live()},
                               {"read_only", load.read_only()},
                               {"incarnation", server.incarnation()},
                               {"shards", server.shards()},
                               {"rows_resident", load.rows_resident()},
                               {"hot_bytes", load.hot_bytes()},
                               {"host_bytes_limit", load.host_bytes_limit()},
                               {"spill_bytes", load.spill_bytes()},
                               {"log_bytes", load.log_bytes()},
                               {"rows_pulled_total", load.rows_pulled_total()},
                               {"rows_pushed_total", load.rows_pushed_total()}});
  }
  const std::map<uint32_t, ShardCount> counts = CountShards(map);
  for (const v1::TableSpec& table : map.tables()) {
    const absl::StatusOr<TableSpec> spec = FromProto(table);
    if (!spec.ok()) continue;  // of a newer coordinator
    nlohmann::ordered_json one = TableJson(*spec);
    const auto count = counts.find(table.id());
    one["shards"] = count == counts.end() ? 0 : count->second.all;
    one["shards_active"] = count == counts.end() ? 0 : count->second.active;
    json["tables"].push_back(std::move(one));
  }
  return json;
}

std::string ToText(const v1::ClusterMap& map) {
  const std::map<uint32_t, ShardCount> counts = CountShards(map);
  uint64_t live = 0, active = 0;
  for (const v1::ServerInfo& server : map.servers()) live += server.live() ? 1 : 0;
  for (const auto& [table, count] : counts) active += count.active;
  std::string out =
      absl::StrCat("cluster ", map.cluster_id(), ", plan revision ", map.plan_revision(), "\n",
                   live, " of ", map.servers_size(), " servers live, ", active, " of ",
                   map.shards_size(), " shards active\n\n");
  TablePrinter servers({"server", "state", "address", "admin", "shards", "rows", "hot", "of",
                        "spill", "log", "pulled", "pushed"});
  for (const v1::ServerInfo& s : map.servers()) {
    const v1::ServerLoad& load = s.load();
    servers.AddRow({s.name(), ServerState(s), s.address(), s.admin_address(),
                    absl::StrCat(s.shards()), WithCommas(load.rows_resident()),
                    FormatBytes(load.hot_bytes()), FormatBytes(load.host_bytes_limit()),
                    FormatBytes(load.spill_bytes()), FormatBytes(load.log_bytes()),
                    ShortCount(static_cast<double>(load.rows_pulled_total())),
                    ShortCount(static_cast<double>(load.rows_pushed_total()))});
  }
  absl::StrAppend(&out, servers.ToText(), "\n");
  if (map.tables().empty()) {
    absl::StrAppend(&out, "no tables yet: 'hotbed table create NAME --dim 64 --rows 1000000'\n");
    return out;
  }
  TablePrinter tables({"table", "kind", "dim", "optimizer", "durability", "shards active"});
  for (const v1::TableSpec& table : map.tables()) {
    const absl::StatusOr<TableSpec> spec = FromProto(table);
    if (!spec.ok()) continue;
    const auto count = counts.find(table.id());
    const ShardCount n = count == counts.end() ? ShardCount() : count->second;
    tables.AddRow({spec->name, KindText(*spec), absl::StrCat(spec->dim),
                   OptimizerText(spec->optimizer),
                   kDurabilityWords[static_cast<size_t>(spec->durability)],
                   absl::StrCat(n.active, " of ", n.all)});
  }
  return absl::StrCat(out, tables.ToText());
}

absl::Status PrintStatus(const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(v1::ClusterMap map, coordinator.GetClusterMap());
  std::sort(map.mutable_servers()->begin(), map.mutable_servers()->end(),
            [](const v1::ServerInfo& a, const v1::ServerInfo& b) { return a.name() < b.name(); });
  HOTBED_ASSIGN_OR_RETURN(const v1::ListTrainersReply trainers, coordinator.ListTrainers());
  if (context.json()) {
    nlohmann::ordered_json json = ToJson(map);
    json["trainer_groups"] = TrainersJson(trainers);
    *context.out << json.dump(2) << "\n";
  } else {
    *context.out << ToText(map) << TrainersText(trainers);
  }
  return absl::OkStatus();
}

}  // namespace

void AddStatusCommand(CLI::App* root, CommandContext* context) {
  root->add_subcommand("status", "Servers and tables of the cluster at a glance")
      ->callback([context] { context->run = [context] { return PrintStatus(*context); }; });
}

}  // namespace hotbed
