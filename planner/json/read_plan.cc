#include "planner/json/read_plan.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "planner/model/plan_names.h"

namespace hotbed {
namespace {

class PlanReader {
 public:
  PlanReader(FieldFailure* failure, PlannerOutput* plan) : failure_(failure), plan_(plan) {}

  void Read(const PlanJson& json, const std::string& path) {
    const JsonFields fields(
        json, path,
        {"strategy", "tables", "servers", "outputs", "cost", "moves", "cuts", "context_hash"},
        failure_);
    fields.Optional("strategy", &plan_->strategy);
    servers_given_ = fields.Find("servers") != nullptr;
    fields.Items("servers", false, std::bind_front(&PlanReader::ReadServer, this));
    fields.Items("tables", true, std::bind_front(&PlanReader::ReadTable, this));
    fields.Items("outputs", false, std::bind_front(&PlanReader::ReadOutput, this));
    if (const PlanJson* cost = fields.Find("cost")) ReadCost(*cost, fields.Path("cost"));
    fields.Items("moves", false, std::bind_front(&PlanReader::ReadMove, this));
    if (const PlanJson* cuts = fields.Find("cuts")) ReadCuts(*cuts, fields.Path("cuts"));
    fields.Optional("context_hash", &plan_->context_hash);
  }

 private:
  void ReadServer(const PlanJson& json, const std::string& path) {
    const JsonFields fields(json, path,
                            {"name", "elements", "bytes", "groups", "perf", "row_base", "features",
                             "feature_offsets", "block_dim", "buckets"},
                            failure_);
    PlacedServer server;
    fields.Required("name", &server.name);
    fields.Optional("elements", &server.elements);
    if (const PlanJson* found = fields.Find("bytes")) {
      const JsonFields bytes(*found, fields.Path("bytes"), {"device", "host", "spill"}, failure_);
      bytes.Optional("device", &server.bytes.device);
      bytes.Optional("host", &server.bytes.host);
      bytes.Optional("spill", &server.bytes.spill);
    }
    fields.Items("groups", false, [&](const PlanJson& item, const std::string& item_path) {
      const JsonFields group(item, item_path, {"dim", "combiner", "tables", "row_offsets"},
                             failure_);
      FusedGroup fused;
      group.Required("dim", &fused.dim);
      group.Required("combiner", &fused.combiner);
      group.Required("tables", &fused.tables);
      group.Required("row_offsets", &fused.row_offsets);
      server.groups.push_back(std::move(fused));
    });
    ReadPerf(fields, &server.perf);
    fields.Optional("row_base", &server.row_base);
    fields.Optional("block_dim", &server.block_dim);
    fields.Optional("buckets", &server.buckets);
    fields.Optional("features", &server.features);
    fields.Optional("feature_offsets", &server.feature_offsets);
    if (failure_->error) return;
    if (!server.row_base && !(server.features.empty() && server.feature_offsets.empty())) {
      return failure_->Set(path, "features and feature_offsets go with a row_base");
    }
    if (!server_index_.emplace(server.name, plan_->servers.size()).second) {
      return failure_->Set(path, absl::StrCat("a second server named '", server.name, "'"));
    }
    plan_->servers.push_back(std::move(server));
  }

  void ReadTable(const PlanJson& json, const std::string& path) {
    const JsonFields fields(json, path, {"name", "sharding", "shards", "perf", "cache_load_factor"},
                            failure_);
    PlacedTable table;
    fields.Required("name", &table.name);
    failure_->table = table.name;
    fields.Optional("sharding", &table.sharding);
    fields.Items("shards", true, [&](const PlanJson& item, const std::string& item_path) {
      ReadShard(item, item_path, &table);
    });
    ReadPerf(fields, &table.perf);
    fields.Optional("cache_load_factor", &table.cache_load_factor);
    failure_->table.clear();
    plan_->tables.push_back(std::move(table));
  }

  void ReadShard(const PlanJson& json, const std::string& path, PlacedTable* table) {
    const JsonFields fields(
        json, path,
        {"server", "role", "rows", "columns", "elements", "weight_bytes", "bytes", "kernel"},
        failure_);
    PlacedRange range;
    std::string server;
    fields.Required("server", &server);
    fields.Optional("role", &range.role);
    ReadRange(fields, "rows", &range.row_first, &range.row_limit);
    ReadRange(fields, "columns", &range.column_first, &range.column_limit);
    fields.Optional("elements", &range.elements);
    fields.Optional("weight_bytes", &range.weight_bytes);
    fields.Optional("bytes", &range.bytes);
    fields.Optional("kernel", &range.kernel);
    if (failure_->error) return;
    auto found = server_index_.find(server);
    if (found == server_index_.end()) {
      if (servers_given_) {
        return failure_->Set(fields.Path("server"),
                             absl::StrCat("no server is named '", Shown(server), "'"));
      }
      found = server_index_.emplace(server, plan_->servers.size()).first;
      plan_->servers.emplace_back().name = server;
    }
    range.server = found->second;
    table->ranges.push_back(std::move(range));
  }

  template <typename T>
  void ReadRange(const JsonFields& fields, absl::string_view key, T* first, T* limit) {
    std::vector<T> pair;
    fields.Required(key, &pair);
    if (failure_->error) return;
    if (pair.size() != 2 || pair[0] >= pair[1]) {
      return failure_->Set(fields.Path(key), "expected [first, limit] with first below limit");
    }
    *first = pair[0];
    *limit = pair[1];
  }

  void ReadPerf(const JsonFields& fields, std::optional<TablePerf>* perf) {
    const PlanJson* const found = fields.Find("perf");
    if (found == nullptr) return;
    std::vector<absl::string_view> known;
    for (const PerfTerm& term : kPerfTerms) known.emplace_back(term.key);
    const JsonFields terms(*found, fields.Path("perf"), known, failure_);
    perf->emplace();
    for (const PerfTerm& term : kPerfTerms) terms.Optional(term.key, &((**perf).*term.ms));
  }

  void ReadOutput(const PlanJson& json, const std::string& path) {
    const JsonFields fields(json, path, {"feature", "table", "width", "position"}, failure_);
    FeatureOutput output;
    fields.Required("feature", &output.feature);
    fields.Required("table", &output.table);
    fields.Required("width", &output.width);
    fields.Required("position", &output.position);
    plan_->outputs.push_back(std::move(output));
  }

  void ReadCost(const PlanJson& json, const std::string& path) {
    const JsonFields fields(json, path, {"max_server_ms", "lower_bound_ms", "gap", "binding"},
                            failure_);
    fields.Optional("max_server_ms", &plan_->cost.max_server_ms);
    fields.Optional("lower_bound_ms", &plan_->cost.lower_bound_ms);
    fields.Optional("gap", &plan_->cost.gap);
    fields.Optional("binding", &plan_->cost.binding);
  }

  void ReadMove(const PlanJson& json, const std::string& path) {
    const JsonFields fields(
        json, path, {"table", "rows", "columns", "from", "to", "bytes", "reason"}, failure_);
    PlannedMove move;
    fields.Required("table", &move.table);
    ReadRange(fields, "rows", &move.row_first, &move.row_limit);
    ReadRange(fields, "columns", &move.column_first, &move.column_limit);
    fields.Required("from", &move.from);
    fields.Required("to", &move.to);
    fields.Optional("bytes", &move.bytes);
    fields.Optional("reason", &move.reason);
    plan_->moves.push_back(std::move(move));
  }

  void ReadCuts(const PlanJson& json, const std::string& path) {
    if (failure_->error) return;
    if (!json.is_object()) {
      return failure_->Set(path, absl::StrCat("expected an object, found ", json.type_name()));
    }
    for (const auto& [key, value] : json.items()) {
      FeatureCuts cuts;
      const std::string key_path = absl::StrCat(path, ".", Shown(key));
      // One text a number, so that equal keys are equal numbers.
      if (!absl::SimpleAtoi(key, &cuts.feature) || absl::StrCat(cuts.feature) != key) {
        return failure_->Set(key_path, "expected the number of a feature");
      }
      ReadJson(value, key_path, failure_, &cuts.rows);
      plan_->cuts.push_back(std::move(cuts));
    }
  }

  FieldFailure* const failure_;
  PlannerOutput* const plan_;
  bool servers_given_ = false;
  absl::flat_hash_map<std::string, uint32_t> server_index_;
};

}  // namespace

void ReadPlanJson(const PlanJson& json, const std::string& path, FieldFailure* failure,
                  PlannerOutput* plan) {
  PlanReader(failure, plan).Read(json, path);
}

PlanResult<PlannerOutput> ReadPlan(absl::string_view text) {
  const PlanResult<PlanJson> json = ParseJson(text);
  if (!json.ok()) return json.error();
  FieldFailure failure;
  PlannerOutput plan;
  ReadPlanJson(json.value(), "", &failure, &plan);
  if (failure.error) return *failure.error;
  return plan;
}

}  // namespace hotbed
