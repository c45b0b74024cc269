#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/composed_text.h"
#include "cli/tables/find_table.h"
#include "cli/tables/table_option.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "config/config.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

std::string Option(const char* name, const TableSpec& spec, const char* unset = "") {
  const std::string text = FindTableOption(name)->print(spec);
  return text.empty() ? unset : text;
}

std::string ReplicasFact(const TableSpec& spec, const ReplicaCount& count) {
  std::string text = absl::StrCat(count.replicas, " of each shard");
  if (spec.data_parallel) absl::StrAppend(&text, ", and a read replica on every server");
  if (count.short_of > 0) {
    absl::StrAppend(&text, "; ", count.short_of, " of ", count.shards,
                    " shards have fewer now, the first is ", count.first_short);
  }
  if (count.learners > 0) absl::StrAppend(&text, "; ", count.learners, " learners");
  if (count.behind_max > 0) {
    absl::StrAppend(&text, "; the slowest replica is ", count.behind_max, " records behind");
  }
  return text;
}

// The table's rows in the memory of the servers, as of their last heartbeats.
struct InMemory {
  uint64_t rows = 0, hot_bytes = 0, device_bytes = 0, hits = 0, misses = 0;

  void Add(const v1::TableLoad& load) {
    rows += load.rows_resident();
    hot_bytes += load.hot_bytes();
    device_bytes += load.device_bytes();
    hits += load.hits();
    misses += load.misses();
  }
  std::string RatioText() const {
    if (hits + misses == 0) return "-";
    return absl::StrFormat("%.1f %%",
                           100.0 * static_cast<double>(hits) / static_cast<double>(hits + misses));
  }
  nlohmann::ordered_json ToJson() const {
    nlohmann::ordered_json json = {
        {"rows", rows}, {"hot_bytes", hot_bytes}, {"device_bytes", device_bytes}};
    json["hit_ratio"] = nullptr;
    if (hits + misses > 0) {
      json["hit_ratio"] = static_cast<double>(hits) / static_cast<double>(hits + misses);
    }
    return json;
  }
};

std::map<std::string, InMemory> MemoryByServer(const v1::ClusterMap& map, const TableSpec& spec) {
  std::map<std::string, InMemory> memory;
  for (const v1::ServerInfo& server : map.servers()) {
    for (const v1::TableLoad& load : server.load().tables()) {
      if (load.table() == spec.id) memory[ServerName(map, server.server())].Add(load);
    }
  }
  return memory;
}

InMemory MemoryOfAll(const v1::ClusterMap& map, const TableSpec& spec) {
  InMemory all;
  for (const v1::ServerInfo& server : map.servers()) {
    for (const v1::TableLoad& load : server.load().tables()) {
      if (load.table() == spec.id) all.Add(load);
    }
  }
  return all;
}

std::string MemoryFact(const TableSpec& spec, const InMemory& memory) {
  const MemoryShare share = MemoryShareOf(spec);
  std::string text =
      absl::StrCat(WithCommas(memory.rows), " rows, ", FormatBytes(memory.hot_bytes));
  if (memory.device_bytes > 0) {
    absl::StrAppend(&text, ", ", FormatBytes(memory.device_bytes), " on devices");
  }
  absl::StrAppend(&text, "; hits ", memory.RatioText(), " of the last 10 s");
  if (share.min > 0) absl::StrAppend(&text, "; at least ", 100 * share.min, " % of a server's");
  if (share.max < 1) absl::StrAppend(&text, "; at most ", 100 * share.max, " % of a server's");
  return text;
}

// By server: its roles in these shards.
std::string PlacedText(const TableSpec& spec, const ReplicaView& view,
                       const std::map<std::string, InMemory>& memory,
                       const std::vector<v1::ShardRecord>& shards) {
  // Of its ranges, whether rows exist or not.
  const std::string units = absl::StrCat(spec.hashed ? "buckets" : "ids",
                                         spec.column_slices > 1 ? " over all slices" : "");
  TablePrinter placed(
      {"server", "shards", "active", units, "backups", "learners", "behind", "in memory", "hits"});
  struct Held {
    uint64_t shards = 0, active = 0, units = 0, backups = 0, learners = 0, behind = 0;
  };
  std::map<std::string, Held> by_server;
  for (const v1::ShardRecord& shard : shards) {
    for (const ShardReplica& replica : view.ReplicasOf(shard)) {
      Held& held = by_server[replica.server];
      held.behind = std::max(held.behind, replica.behind.value_or(0));
      held.backups += replica.role == ReplicaRole::kMember ? 1 : 0;
      held.learners += replica.role == ReplicaRole::kLearner ? 1 : 0;
      if (replica.role != ReplicaRole::kPrimary) continue;
      ++held.shards;
      held.active += shard.active() ? 1 : 0;
      held.units += shard.range_limit() - shard.range_first();
    }
  }
  for (const auto& [name, held] : by_server) {
    const auto found = memory.find(name);
    const InMemory in_memory = found == memory.end() ? InMemory() : found->second;
    placed.AddRow({name, absl::StrCat(held.shards), absl::StrCat(held.active),
                   WithCommas(held.units), absl::StrCat(held.backups), absl::StrCat(held.learners),
                   WithCommas(held.behind), FormatBytes(in_memory.hot_bytes),
                   in_memory.RatioText()});
  }
  return placed.ToText();
}

std::string ToText(const v1::ClusterMap& map, const TableSpec& spec, const ReplicaView& view,
                   const std::vector<v1::ShardRecord>& shards) {
  const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
  TablePrinter facts({"table", spec.name});
  facts.AddRow({"kind", KindText(spec)});
  if (IsPart(spec)) facts.AddRow({"part of", spec.composition.table});
  facts.AddRow({"dim", absl::StrCat(spec.dim, " x ",
                                    kWeightTypeWords[static_cast<size_t>(spec.weight_type)])});
  facts.AddRow({"optimizer", OptimizerText(spec.optimizer)});
  facts.AddRow({"schedule", spec.schedule.ToText()});
  for (TableChange change : spec.changes) {
    // These act at once; their values in force are told by themselves.
    change.has_life = change.has_memory_share_min = change.has_memory_share_max = false;
    const std::string text = ChangeText(change);
    if (!text.empty()) facts.AddRow({absl::StrCat("from step ", change.at_step), text});
  }
  facts.AddRow({"init", absl::StrCat(InitializerText(spec.initializer), " seed=", spec.seed)});
  facts.AddRow({"padding id", Option("padding-id", spec, "none")});
  facts.AddRow({"ids out of bounds", Option("bounds", spec)});
  if (spec.hashed) facts.AddRow({"how long rows stay", PoliciesText(spec)});
  facts.AddRow({"consistency", Option("consistency", spec)});
  facts.AddRow({"of many trainers", Option("reduction", spec)});
  facts.AddRow({"nan gradients", Option("nan", spec)});
  facts.AddRow(
      {"slice norm", spec.clip_slice_norm == 0 ? "not clipped" : Option("clip-slice-norm", spec)});
  facts.AddRow({"column slices", absl::StrCat(spec.column_slices, ", statistics of each ",
                                              Option("row-statistics", spec))});
  facts.AddRow({"durability", Option("durability", spec)});
  const ReplicaCount count = view.CountOf(spec.id);
  facts.AddRow({"replicas", ReplicasFact(spec, count)});
  facts.AddRow({"row", absl::StrCat("weights ", FormatBytes(spec.weight_bytes_per_row()),
                                    " + state ", FormatBytes(spec.state_bytes_per_row()))});
  if (spec.rows > 0) facts.AddRow({"when full", FormatBytes(spec.rows * row_bytes)});
  facts.AddRow({"in memory", MemoryFact(spec, MemoryOfAll(map, spec))});
  return absl::StrCat(facts.ToText(), "\n",
                      PlacedText(spec, view, MemoryByServer(map, spec), shards));
}

size_t ServersOf(const v1::ClusterMap& map, const TableSpec& spec) {
  std::set<uint64_t> servers;
  for (const v1::ShardRecord& shard : ShardsOf(map, spec.id)) {
    servers.insert(shard.primary().server());
  }
  return servers.size();
}

absl::Status DescribeComposed(const CommandContext& context, const v1::ClusterMap& map,
                              const std::vector<TableSpec>& parts) {
  const TableSpec spec = ComposedOf(parts);
  TablePrinter facts({"table", spec.name});
  facts.AddRow({"kind", absl::StrCat("composed, ", WithCommas(spec.rows), " rows")});
  facts.AddRow({"compose", CompositionText(spec)});
  facts.AddRow({"dim", absl::StrCat(spec.dim, " x ",
                                    kWeightTypeWords[static_cast<size_t>(spec.weight_type)])});
  facts.AddRow({"row", RowFormula(spec)});
  facts.AddRow({"parameters", SavedText(spec, parts)});
  facts.AddRow({"optimizer", OptimizerText(spec.optimizer)});
  facts.AddRow({"padding id", Option("padding-id", spec, "none")});
  facts.AddRow({"ids out of bounds", Option("bounds", spec)});
  if (spec.hashed) facts.AddRow({"how long rows stay", PoliciesText(spec)});
  TablePrinter listed(
      {"part", "rows", "dim", "parameters", "when full", "init", "shards", "servers"});
  uint64_t bytes = 0;
  nlohmann::ordered_json json = ComposedJson(parts);
  json["parts"] = nlohmann::ordered_json::array();
  for (const TableSpec& part : parts) {
    const uint64_t full = part.rows * (part.weight_bytes_per_row() + part.state_bytes_per_row());
    const size_t shards = ShardsOf(map, part.id).size();
    bytes += full;
    listed.AddRow({part.name, WithCommas(part.rows), absl::StrCat(part.dim),
                   WithCommas(part.rows * part.dim), FormatBytes(full),
                   InitializerText(part.initializer), absl::StrCat(shards),
                   absl::StrCat(ServersOf(map, part))});
    json["parts"].push_back({{"name", part.name},
                             {"id", part.id},
                             {"rows", part.rows},
                             {"dim", part.dim},
                             {"parameters", part.rows * part.dim},
                             {"bytes_when_full", full},
                             {"shards", shards},
                             {"servers", ServersOf(map, part)}});
  }
  const uint64_t plain = spec.rows * (spec.weight_bytes_per_row() + spec.state_bytes_per_row());
  facts.AddRow({"when full", absl::StrCat(FormatBytes(bytes), " instead of ", FormatBytes(plain))});
  json["bytes_when_full"] = {{"composed", bytes}, {"plain", plain}};
  return context.Answer(json, absl::StrCat(facts.ToText(), "\n", listed.ToText()));
}

absl::Status Describe(const CommandContext& context, const std::string& name) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  if (const std::vector<TableSpec> parts = FindParts(map, name); !parts.empty()) {
    return DescribeComposed(context, map, parts);
  }
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FindTable(map, name));
  const std::vector<v1::ShardRecord> shards = ShardsOf(map, spec.id);
  const ReplicaView view(map);
  nlohmann::ordered_json json = TableJson(spec);
  json["memory"] = MemoryOfAll(map, spec).ToJson();
  json["shards"] = nlohmann::ordered_json::array();
  for (const v1::ShardRecord& shard : shards) {
    json["shards"].push_back(ShardJson(map, shard));
    json["shards"].back()["replicas"] = ReplicasJson(view.ReplicasOf(shard));
  }
  return context.Answer(json, ToText(map, spec, view, shards));
}

}  // namespace

void AddTableDescribeCommand(CLI::App* table, CommandContext* context) {
  auto name = std::make_shared<std::string>();
  CLI::App* app = table->add_subcommand(
      "describe", "Print the options of a table and the servers of its shards");
  app->add_option("NAME", *name, "Name of the table")->required();
  context->Runs(app, [context, name] { return Describe(*context, *name); });
}

}  // namespace hotbed
