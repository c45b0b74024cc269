#include "planner/json/write_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/model/plan_names.h"

namespace hotbed {
namespace {

constexpr size_t kColumns = 180;  // a shard is a line

// Most of a plan is plain names and integers, for which nlohmann's writer is five times slower.
void AppendString(const std::string& text, std::string* out) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (plain) {
    absl::StrAppend(out, "\"", text, "\"");
  } else {
    out->append(PlanJson(text).dump(-1, ' ', false, PlanJson::error_handler_t::replace));
  }
}

void AppendScalar(const PlanJson& json, std::string* out) {
  if (json.is_number_unsigned()) {
    absl::StrAppend(out, json.get<uint64_t>());
  } else if (json.is_string()) {
    AppendString(json.get_ref<const std::string&>(), out);
  } else {
    out->append(json.dump());
  }
}

// Calls visit(key, value) for each item until it answers false; keys of an array are empty.
// (PlanJson::items() makes a string of each index of an array.)
template <typename F>
bool ForEachItem(const PlanJson& json, const F& visit) {
  static const std::string* const kNoKey = new std::string;
  if (json.is_array()) {
    for (const PlanJson& value : json) {
      if (!visit(*kNoKey, value)) return false;
    }
    return true;
  }
  for (const auto& [key, value] : json.get_ref<const PlanJson::object_t&>()) {
    if (!visit(key, value)) return false;
  }
  return true;
}

void AppendKey(const PlanJson& parent, const std::string& key, std::string* out) {
  if (!parent.is_object()) return;
  AppendString(key, out);
  out->append(": ");
}

// Adds `json` on one line to `out`; false, with part of it added, once `out` has more than `limit`
// characters.
bool PrintLine(const PlanJson& json, size_t limit, std::string* out) {
  if (!json.is_structured()) {
    AppendScalar(json, out);
    return out->size() <= limit;
  }
  out->append(json.is_array() ? "[" : "{");
  bool first = true;
  const bool fits = ForEachItem(json, [&](const std::string& key, const PlanJson& value) {
    if (!first) out->append(", ");
    first = false;
    AppendKey(json, key, out);
    return PrintLine(value, limit, out);
  });
  if (!fits) return false;
  out->append(json.is_array() ? "]" : "}");
  return out->size() <= limit;
}

// `column` is where the value begins, `indent` the indentation of its line.
void Print(const PlanJson& json, size_t column, size_t indent, std::string* out) {
  const size_t start = out->size();
  // One column is kept for the comma that may follow.
  const size_t room = kColumns - 1 - std::min(column, kColumns - 1);
  if (PrintLine(json, start + room, out) || !json.is_structured() || json.empty()) return;
  out->resize(start);
  out->append(json.is_array() ? "[\n" : "{\n");
  bool first = true;
  ForEachItem(json, [&](const std::string& key, const PlanJson& value) {
    if (!first) out->append(",\n");
    first = false;
    out->append(indent + 2, ' ');
    const size_t line = out->size();
    AppendKey(json, key, out);
    Print(value, indent + 2 + out->size() - line, indent + 2, out);
    return true;
  });
  out->append("\n");
  out->append(indent, ' ');
  out->append(json.is_array() ? "]" : "}");
}

PlanJson PerfJson(const TablePerf& perf) {
  PlanJson json = PlanJson::object();
  for (const PerfTerm& term : kPerfTerms) json[term.key] = perf.*term.ms;
  return json;
}

PlanJson PairJson(uint64_t first, uint64_t limit) {
  PlanJson json = PlanJson::array();
  json.get_ref<PlanJson::array_t&>().reserve(2);
  json.push_back(first);
  json.push_back(limit);
  return json;
}

// Shards are most of a plan. An initializer list would build each member as an array first, and
// operator[] would look for the key.
PlanJson ShardJson(const PlacedRange& range, const PlannerOutput& plan) {
  PlanJson json = PlanJson::object();
  PlanJson::object_t::Container& members = json.get_ref<PlanJson::object_t&>();
  members.reserve(8);
  members.emplace_back("server", plan.servers[range.server].name);
  members.emplace_back("role", PlanWord(range.role));
  members.emplace_back("rows", PairJson(range.row_first, range.row_limit));
  members.emplace_back("columns", PairJson(range.column_first, range.column_limit));
  members.emplace_back("elements", range.elements);
  members.emplace_back("weight_bytes", range.weight_bytes);
  members.emplace_back("bytes", range.bytes);
  if (!range.kernel.empty()) members.emplace_back("kernel", range.kernel);
  return json;
}

PlanJson TableJson(const PlacedTable& table, const PlannerOutput& plan) {
  PlanJson json = {{"name", table.name}, {"sharding", PlanWord(table.sharding)}};
  PlanJson& shards = json["shards"] = PlanJson::array();
  for (const PlacedRange& range : table.ranges) shards.push_back(ShardJson(range, plan));
  if (table.perf) json["perf"] = PerfJson(*table.perf);
  if (table.cache_load_factor) json["cache_load_factor"] = *table.cache_load_factor;
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
    json["block_dim"] = server.block_dim;
    json["buckets"] = server.buckets;
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
  PlanJson json = {{"kind", PlanWord(error.kind)}};
  if (error.table) json["table"] = *error.table;
  if (error.limit) json["limit"] = *error.limit;
  if (error.missing_bytes) json["missing_bytes"] = *error.missing_bytes;
  json["message"] = error.message;
  return {{"error", std::move(json)}};
}

std::string WritePlan(const PlannerOutput& plan) { return PrettyJson(PlanToJson(plan)); }

std::string WritePlanError(const PlanError& error) { return PrettyJson(ErrorToJson(error)); }

}  // namespace hotbed
