#include "planner/json/write_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/plan_names.h"

namespace hotbed {
namespace {

constexpr size_t kColumns = 180;  // a shard is a line

std::string Compact(const PlanJson& json) {
  return json.dump(-1, ' ', false, PlanJson::error_handler_t::replace);
}

// Adds `json` on one line to `out`; false, with part of it added, once `out` has more than `limit`
// characters.
bool PrintLine(const PlanJson& json, size_t limit, std::string* out) {
  if (!json.is_structured()) {
    out->append(Compact(json));
    return out->size() <= limit;
  }
  out->append(json.is_array() ? "[" : "{");
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (!first) out->append(", ");
    first = false;
    if (json.is_object()) absl::StrAppend(out, Compact(PlanJson(key)), ": ");
    if (!PrintLine(value, limit, out)) return false;
  }
  out->append(json.is_array() ? "]" : "}");
  return out->size() <= limit;
}

// `column` is where the value begins, `indent` the indentation of its line.
void Print(const PlanJson& json, size_t column, size_t indent, std::string* out) {
  std::string line;
  // One column is kept for the comma that may follow.
  if (PrintLine(json, kColumns - 1 - std::min(column, kColumns - 1), &line) ||
      !json.is_structured() || json.empty()) {
    out->append(line);
    return;
  }
  out->append(json.is_array() ? "[\n" : "{\n");
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (!first) out->append(",\n");
    first = false;
    out->append(indent + 2, ' ');
    std::string name;
    if (json.is_object()) name = absl::StrCat(Compact(PlanJson(key)), ": ");
    out->append(name);
    Print(value, indent + 2 + name.size(), indent + 2, out);
  }
  out->append("\n");
  out->append(indent, ' ');
  out->append(json.is_array() ? "]" : "}");
}

PlanJson PerfJson(const TablePerf& perf) {
  return {{"forward_compute_ms", perf.forward_compute_ms},
          {"forward_comms_ms", perf.forward_comms_ms},
          {"backward_compute_ms", perf.backward_compute_ms},
          {"backward_comms_ms", perf.backward_comms_ms},
          {"prefetch_ms", perf.prefetch_ms}};
}

PlanJson ShardJson(const PlacedRange& range, const PlannerOutput& plan) {
  PlanJson json = {{"server", plan.servers[range.server].name},
                   {"role", RoleName(range.role)},
                   {"rows", {range.row_first, range.row_limit}},
                   {"columns", {range.column_first, range.column_limit}},
                   {"elements", range.elements},
                   {"weight_bytes", range.weight_bytes},
                   {"bytes", range.bytes}};
  if (!range.kernel.empty()) json["kernel"] = range.kernel;
  return json;
}

PlanJson TableJson(const PlacedTable& table, const PlannerOutput& plan) {
  PlanJson json = {{"name", table.name}, {"sharding", ShardingName(table.sharding)}};
  PlanJson& shards = json["shards"] = PlanJson::array();
  for (const PlacedRange& range : table.ranges) shards.push_back(ShardJson(range, plan));
  if (table.perf) json["perf"] = PerfJson(*table.perf);
  return json;
}

PlanJson ServerJson(const PlacedServer& server) {
  PlanJson json = {{"name", server.name},
                   {"elements", server.elements},
                   {"bytes",
                    {{"device", server.bytes.device},
                     {"host", server.bytes.host},
                     {"spill", server.bytes.spill}}}};
  PlanJson& groups = json["groups"] = PlanJson::array();
  for (const FusedGroup& group : server.groups) {
    groups.push_back({{"dim", group.dim},
                      {"combiner", group.combiner},
                      {"tables", group.tables},
                      {"row_offsets", group.row_offsets}});
  }
  if (server.perf) json["perf"] = PerfJson(*server.perf);
  if (server.row_base) {
    json["row_base"] = *server.row_base;
    json["features"] = server.features;
    json["feature_offsets"] = server.feature_offsets;
  }
  return json;
}

PlanJson MoveJson(const PlannedMove& move) {
  return {{"table", move.table},
          {"rows", {move.row_first, move.row_limit}},
          {"columns", {move.column_first, move.column_limit}},
          {"from", move.from},
          {"to", move.to},
          {"bytes", move.bytes},
          {"reason", move.reason}};
}

}  // namespace

std::string PrettyJson(const PlanJson& json) {
  std::string out;
  Print(json, 0, 0, &out);
  out.append("\n");
  return out;
}

PlanJson PlanToJson(const PlannerOutput& plan) {
  PlanJson json = {{"strategy", plan.strategy}};
  PlanJson& tables = json["tables"] = PlanJson::array();
  for (const PlacedTable& table : plan.tables) tables.push_back(TableJson(table, plan));
  PlanJson& servers = json["servers"] = PlanJson::array();
  for (const PlacedServer& server : plan.servers) servers.push_back(ServerJson(server));
  PlanJson& outputs = json["outputs"] = PlanJson::array();
  for (const FeatureOutput& output : plan.outputs) {
    outputs.push_back({{"feature", output.feature},
                       {"table", output.table},
                       {"width", output.width},
                       {"position", output.position}});
  }
  json["cost"] = {{"max_server_ms", plan.cost.max_server_ms},
                  {"lower_bound_ms", plan.cost.lower_bound_ms},
                  {"gap", plan.cost.gap},
                  {"binding", plan.cost.binding}};
  PlanJson& moves = json["moves"] = PlanJson::array();
  for (const PlannedMove& move : plan.moves) moves.push_back(MoveJson(move));
  if (!plan.cuts.empty() || plan.strategy == "fair") {
    PlanJson& cuts = json["cuts"] = PlanJson::object();
    for (const FeatureCuts& cut : plan.cuts) cuts[absl::StrCat(cut.feature)] = cut.rows;
  }
  json["context_hash"] = plan.context_hash;
  return json;
}

PlanJson ErrorToJson(const PlanError& error) {
  PlanJson json = {{"kind", PlanErrorKindName(error.kind)}};
  if (error.table) json["table"] = *error.table;
  if (error.limit) json["limit"] = *error.limit;
  if (error.missing_bytes) json["missing_bytes"] = *error.missing_bytes;
  json["message"] = error.message;
  return {{"error", std::move(json)}};
}

std::string WritePlan(const PlannerOutput& plan) { return PrettyJson(PlanToJson(plan)); }

std::string WritePlanError(const PlanError& error) { return PrettyJson(ErrorToJson(error)); }

}  // namespace hotbed
