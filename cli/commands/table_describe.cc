#include <CLI/App.hpp>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/coordinator_stub.h"
#include "cli/find_table.h"
#include "cli/table_option.h"
#include "cli/table_printer.h"
#include "cli/table_text.h"
#include "common/status_macros.h"
#include "config/config.h"

namespace hotbed {
namespace {

std::string Option(const char* name, const TableSpec& spec, const char* unset = "") {
  const std::string text = FindTableOption(name)->print(spec);
  return text.empty() ? unset : text;
}

std::string ToText(const TableSpec& spec, const v1::ClusterMap& map,
                   const std::vector<v1::ShardRecord>& shards) {
  const uint64_t row_bytes = spec.weight_bytes_per_row() + spec.state_bytes_per_row();
  TablePrinter facts({"table", spec.name});
  facts.AddRow({"kind", KindText(spec)});
  facts.AddRow({"dim", absl::StrCat(spec.dim, " x ",
                                    kWeightTypeWords[static_cast<size_t>(spec.weight_type)])});
  facts.AddRow({"optimizer", OptimizerText(spec.optimizer)});
  facts.AddRow({"schedule", spec.schedule.ToText()});
  for (const TableChange& change : spec.changes) {
    facts.AddRow({absl::StrCat("from step ", change.at_step), ChangeText(change)});
  }
  facts.AddRow({"init", absl::StrCat(InitializerText(spec.initializer), " seed=", spec.seed)});
  facts.AddRow({"padding id", Option("padding-id", spec, "none")});
  facts.AddRow({"ids out of bounds", Option("bounds", spec)});
  facts.AddRow({"consistency", Option("consistency", spec)});
  facts.AddRow({"of many trainers", Option("reduction", spec)});
  facts.AddRow({"nan gradients", Option("nan", spec)});
  facts.AddRow(
      {"slice norm", spec.clip_slice_norm == 0 ? "not clipped" : Option("clip-slice-norm", spec)});
  facts.AddRow({"column slices", absl::StrCat(spec.column_slices, ", statistics of each ",
                                              Option("row-statistics", spec))});
  facts.AddRow({"durability", Option("durability", spec)});
  facts.AddRow({"row", absl::StrCat("weights ", FormatBytes(spec.weight_bytes_per_row()),
                                    " + state ", FormatBytes(spec.state_bytes_per_row()))});
  if (spec.rows > 0) facts.AddRow({"when full", FormatBytes(spec.rows * row_bytes)});
  TablePrinter placed({"server", "shards", "active", spec.hashed ? "buckets" : "rows"});
  if (spec.column_slices > 1) {
    placed = TablePrinter({"server", "shards", "active",
                           spec.hashed ? "buckets over all slices" : "rows over all slices"});
  }
  struct Held {
    uint64_t shards = 0, active = 0, units = 0;
  };
  std::map<std::string, Held> by_server;
  for (const v1::ShardRecord& shard : shards) {
    Held& held = by_server[ServerName(map, shard.primary().server())];
    ++held.shards;
    held.active += shard.active() ? 1 : 0;
    held.units += shard.range_limit() - shard.range_first();
  }
  for (const auto& [name, held] : by_server) {
    placed.AddRow(
        {name, absl::StrCat(held.shards), absl::StrCat(held.active), WithCommas(held.units)});
  }
  return absl::StrCat(facts.ToText(), "\n", placed.ToText());
}

absl::Status Describe(const CommandContext& context, const std::string& name) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FindTable(map, name));
  const std::vector<v1::ShardRecord> shards = ShardsOf(map, spec.id);
  if (!context.json()) {
    *context.out << ToText(spec, map, shards);
    return absl::OkStatus();
  }
  nlohmann::ordered_json json = TableJson(spec);
  json["shards"] = nlohmann::ordered_json::array();
  for (const v1::ShardRecord& shard : shards) json["shards"].push_back(ShardJson(map, shard));
  *context.out << json.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddTableDescribeCommand(CLI::App* table, CommandContext* context) {
  auto name = std::make_shared<std::string>();
  CLI::App* app =
      table->add_subcommand("describe", "One table: its options and where its shards are");
  app->add_option("NAME", *name, "Name of the table")->required();
  app->callback(
      [context, name] { context->run = [context, name] { return Describe(*context, *name); }; });
}

}  // namespace hotbed
