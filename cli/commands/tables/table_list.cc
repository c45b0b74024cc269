#include <CLI/App.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/command.h"
#include "cli/base/coordinator_stub.h"
#include "cli/shards/shard_replicas.h"
#include "cli/tables/composed_text.h"
#include "cli/tables/table_option.h"
#include "cli/tables/table_text.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "proto/convert.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

absl::Status List(const CommandContext& context) {
  CoordinatorStub coordinator(context.coordinator, context.timeout_duration());
  HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, coordinator.GetClusterMap());
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  TablePrinter table({"table", "kind", "dim", "weights", "optimizer", "init", "consistency",
                      "durability", "shards active", "nan"});
  const ReplicaView view(map);
  for (const v1::TableSpec& message : map.tables()) {
    HOTBED_ASSIGN_OR_RETURN(const TableSpec spec, FromProto(message));
    json.push_back(TableJson(spec));
    table.AddRow({spec.name, KindText(spec), absl::StrCat(spec.dim),
                  kWeightTypeWords[static_cast<size_t>(spec.weight_type)],
                  OptimizerText(spec.optimizer), InitializerText(spec.initializer),
                  FindTableOption("consistency")->print(spec),
                  FindTableOption("durability")->print(spec), ActiveText(view.CountOf(spec.id)),
                  kNanPolicyWords[static_cast<size_t>(spec.nan_policy)]});
  }
  std::string text = table.ToText();
  std::vector<TableSpec> tables;
  for (const v1::TableSpec& message : map.tables()) {
    HOTBED_ASSIGN_OR_RETURN(tables.emplace_back(), FromProto(message));
  }
  TablePrinter composed({"composed", "rows", "dim", "compose", "parameters"});
  for (const std::vector<TableSpec>& parts : ComposedTablesOf(tables)) {
    const TableSpec spec = ComposedOf(parts);
    json.push_back(ComposedJson(parts));
    composed.AddRow({spec.name, WithCommas(spec.rows), absl::StrCat(spec.dim),
                     CompositionText(spec), SavedText(spec, parts)});
  }
  if (json.size() > tables.size()) absl::StrAppend(&text, "\n", composed.ToText());
  return context.Answer(json, text);
}

}  // namespace

void AddTableListCommand(CLI::App* table, CommandContext* context) {
  context->Runs(table->add_subcommand("list", "All tables"), [context] { return List(*context); });
}

}  // namespace hotbed
