#include "planner/json/read_input.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "planner/json/constants_json.h"
#include "planner/json/json_fields.h"
#include "planner/json/parse_json.h"
#include "planner/json/read_plan.h"
#include "planner/model/plan_names.h"

namespace hotbed {
namespace {

using NameIndex = absl::flat_hash_map<std::string, uint32_t>;

// The first of equal names; ValidateInput refuses the second.
template <typename T>
NameIndex IndexOf(const std::vector<T>& items) {
  NameIndex index;
  for (uint32_t i = 0; i < items.size(); ++i) index.emplace(items[i].name, i);
  return index;
}

// The index of `name`, or a failure that says which `kind` is not there.
void Resolve(const std::string& name, const NameIndex& index, const char* kind,
             const std::string& path, FieldFailure* failure, uint32_t* out) {
  if (failure->error) return;
  const auto found = index.find(name);
  if (found == index.end()) {
    failure->Set(path, absl::StrCat("no ", kind, " is named '", Shown(name), "'"));
    return;
  }
  *out = found->second;
}

void ReadHotness(const JsonFields& fields, FieldFailure* failure, InputTable* table) {
  fields.Items("hotness", false, [&](const PlanJson& json, const std::string& path) {
    std::vector<double> pair;
    ReadJson(json, path, failure, &pair);
    if (!failure->error && pair.size() != 2) {
      failure->Set(path, absl::StrCat("expected [fraction of rows, fraction of accesses], found ",
                                      pair.size(), " numbers"));
    }
    if (!failure->error) table->hotness.push_back({pair[0], pair[1]});
  });
}

bool SlicesColumns(PlannerStrategy strategy) {
  return strategy == PlannerStrategy::kBasic || strategy == PlannerStrategy::kMemoryBalanced ||
         strategy == PlannerStrategy::kMemoryOptimized || strategy == PlannerStrategy::kColumnEven;
}

void ReadTable(const PlanJson& json, const std::string& path, PlannerStrategy strategy,
               FieldFailure* failure, PlannerInput* input) {
  const JsonFields fields(json, path,
                          {"name", "rows", "dim", "weight_type", "optimizer", "combiner", "hashed",
                           "row_statistics", "replicas", "reads_per_step", "zipf", "hotness"},
                          failure);
  InputTable table;
  fields.Required("name", &table.name);
  failure->table = table.name;
  fields.Required("rows", &table.rows);
  fields.Required("dim", &table.dim);
  fields.Optional("weight_type", &table.weight);
  fields.Optional("optimizer", &table.optimizer);
  fields.Optional("combiner", &table.combiner);
  fields.Optional("hashed", &table.hashed);
  fields.Optional("row_statistics", &table.row_statistics);
  if (SlicesColumns(strategy) && !fields.Find("optimizer") && !fields.Find("row_statistics") &&
      table.weight != PlannerWeight::kInt8) {
    table.row_statistics = RowStatistics::kSlice;
  }
  fields.Optional("replicas", &table.replicas);
  fields.Optional("reads_per_step", &table.reads_per_step);
  fields.Optional("zipf", &table.zipf);
  ReadHotness(fields, failure, &table);
  failure->table.clear();
  input->tables.push_back(std::move(table));
}

void ReadFeature(const PlanJson& json, const std::string& path, const NameIndex& tables,
                 FieldFailure* failure, PlannerInput* input) {
  const JsonFields fields(json, path, {"name", "table", "pooling_factor", "weighted"}, failure);
  InputFeature feature;
  std::string table;
  fields.Required("name", &feature.name);
  fields.Required("table", &table);
  failure->table = table;
  Resolve(table, tables, "table", fields.Path("table"), failure, &feature.table);
  fields.Optional("pooling_factor", &feature.pooling_factor);
  fields.Optional("weighted", &feature.weighted);
  failure->table.clear();
  input->features.push_back(std::move(feature));
}

void ReadServer(const PlanJson& json, const std::string& path, FieldFailure* failure,
                Topology* topology) {
  const JsonFields fields(
      json, path,
      {"name", "host", "zone", "device_bytes", "host_bytes", "spill_bytes", "draining", "load"},
      failure);
  InputServer server;
  fields.Required("name", &server.name);
  server.host = server.name;
  fields.Optional("host", &server.host);
  fields.Optional("zone", &server.zone);
  fields.Optional("device_bytes", &server.device_bytes);
  fields.Required("host_bytes", &server.host_bytes);
  fields.Optional("spill_bytes", &server.spill_bytes);
  fields.Optional("draining", &server.draining);
  fields.Optional("load", &server.load);
  topology->servers.push_back(std::move(server));
}

void ReadTopology(const PlanJson& json, const std::string& path, FieldFailure* failure,
                  Topology* topology) {
  const JsonFields fields(json, path, {"servers", "device", "bandwidth"}, failure);
  fields.Items("servers", true, [&](const PlanJson& item, const std::string& item_path) {
    ReadServer(item, item_path, failure, topology);
  });
  fields.Optional("device", &topology->device);
  const PlanJson* const found = fields.Find("bandwidth");
  if (found == nullptr) return;
  const JsonFields bandwidth(*found, fields.Path("bandwidth"),
                             {"device", "host", "device_host", "intra_host", "inter_host", "spill"},
                             failure);
  bandwidth.Optional("device", &topology->bandwidth.device);
  bandwidth.Optional("host", &topology->bandwidth.host);
  bandwidth.Optional("device_host", &topology->bandwidth.device_host);
  bandwidth.Optional("intra_host", &topology->bandwidth.intra_host);
  bandwidth.Optional("inter_host", &topology->bandwidth.inter_host);
  bandwidth.Optional("spill", &topology->bandwidth.spill);
}

void ReadConstraint(const PlanJson& json, const std::string& path, const NameIndex& tables,
                    const NameIndex& servers, FieldFailure* failure, PlannerOptions* options) {
  const JsonFields fields(
      json, path,
      {"table", "sharding", "kernels", "servers", "columns_min", "cache_load_factor",
       "prefetch_passes", "batch_sizes", "pooling_factors", "num_poolings"},
      failure);
  TableConstraint constraint;
  std::string table;
  fields.Required("table", &table);
  failure->table = table;
  Resolve(table, tables, "table", fields.Path("table"), failure, &constraint.table);
  fields.Optional("sharding", &constraint.sharding);
  fields.Optional("kernels", &constraint.kernels);
  fields.Items("servers", false, [&](const PlanJson& item, const std::string& item_path) {
    std::string name;
    ReadJson(item, item_path, failure, &name);
    constraint.servers.emplace_back();
    Resolve(name, servers, "server", item_path, failure, &constraint.servers.back());
  });
  fields.Optional("columns_min", &constraint.columns_min);
  fields.Optional("cache_load_factor", &constraint.cache_load_factor);
  fields.Optional("prefetch_passes", &constraint.prefetch_passes);
  fields.Optional("batch_sizes", &constraint.batch_sizes);
  fields.Optional("pooling_factors", &constraint.pooling_factors);
  fields.Optional("num_poolings", &constraint.num_poolings);
  failure->table.clear();
  options->constraints.push_back(std::move(constraint));
}

void ReadTorchrec(const PlanJson& json, const std::string& path, FieldFailure* failure,
                  TorchrecOptions* torchrec) {
  const JsonFields fields(
      json, path, {"partitioner", "proposers", "pipeline", "run_embedding_at_peak_memory", "wire"},
      failure);
  fields.Optional("partitioner", &torchrec->partitioner);
  fields.Optional("proposers", &torchrec->proposers);
  fields.Optional("pipeline", &torchrec->pipeline);
  fields.Optional("run_embedding_at_peak_memory", &torchrec->run_embedding_at_peak_memory);
  const PlanJson* const found = fields.Find("wire");
  if (found == nullptr) return;
  const JsonFields wire(*found, fields.Path("wire"), {"forward", "backward"}, failure);
  wire.Optional("forward", &torchrec->forward_wire);
  wire.Optional("backward", &torchrec->backward_wire);
}

// All of the options but the constraints, which need the names of tables and servers.
void ReadOptions(const JsonFields& fields, FieldFailure* failure, PlannerOptions* options) {
  fields.Required("strategy", &options->strategy);
  fields.Optional("column_slice_threshold", &options->column_slice_threshold);
  fields.Optional("row_slice_threshold", &options->row_slice_threshold);
  fields.Optional("data_parallel_threshold", &options->data_parallel_threshold);
  fields.Optional("strict", &options->strict);
  fields.Optional("order", &options->order);
  fields.Optional("seed", &options->seed);
  fields.Optional("evaluations_max", &options->evaluations_max);
  fields.Optional("move_bytes_max", &options->move_bytes_max);
  if (const PlanJson* torchrec = fields.Find("torchrec")) {
    ReadTorchrec(*torchrec, fields.Path("torchrec"), failure, &options->torchrec);
  }
  const PlanJson* const found = fields.Find("reserve");
  if (found == nullptr) return;
  const JsonFields reserve(*found, fields.Path("reserve"), {"kind", "fraction", "dense_bytes"},
                           failure);
  reserve.Required("kind", &options->reserve.kind);
  reserve.Optional("fraction", &options->reserve.fraction);
  reserve.Optional("dense_bytes", &options->reserve.dense_bytes);
}

void ReadInput(const PlanJson& json, FieldFailure* failure, PlannerInput* input) {
  const JsonFields root(
      json, "", {"tables", "features", "topology", "workload", "planner", "current", "constants"},
      failure);
  const PlanJson empty = PlanJson::object();
  const PlanJson* const planner = root.FindRequired("planner");
  const JsonFields options(planner == nullptr ? empty : *planner, "planner",
                           {"strategy", "column_slice_threshold", "row_slice_threshold",
                            "data_parallel_threshold", "strict", "order", "constraints", "reserve",
                            "seed", "evaluations_max", "move_bytes_max", "torchrec"},
                           failure);
  ReadOptions(options, failure, &input->options);
  root.Items("tables", true, [&](const PlanJson& item, const std::string& path) {
    ReadTable(item, path, input->options.strategy, failure, input);
  });
  const NameIndex tables = IndexOf(input->tables);
  root.Items("features", false, [&](const PlanJson& item, const std::string& path) {
    ReadFeature(item, path, tables, failure, input);
  });
  if (const PlanJson* topology = root.FindRequired("topology")) {
    ReadTopology(*topology, "topology", failure, &input->topology);
  }
  const NameIndex servers = IndexOf(input->topology.servers);
  options.Items("constraints", false, [&](const PlanJson& item, const std::string& path) {
    ReadConstraint(item, path, tables, servers, failure, &input->options);
  });
  if (const PlanJson* found = root.Find("workload")) {
    const JsonFields workload(*found, "workload", {"batch_size", "trainers"}, failure);
    workload.Optional("batch_size", &input->workload.batch_size);
    workload.Optional("trainers", &input->workload.trainers);
  }
  if (const PlanJson* constants = root.Find("constants")) {
    input->constants.emplace();
    ReadConstantsJson(*constants, "constants", failure, &*input->constants);
  }
  const PlanJson* const current = root.Find("current");
  if (current != nullptr && !current->is_null()) {
    input->current.emplace();
    ReadPlanJson(*current, "current", failure, &*input->current);
  }
}

}  // namespace

PlanResult<PlannerInput> ReadPlannerInput(absl::string_view text) {
  const PlanResult<PlanJson> json = ParseJson(text);
  if (!json.ok()) return json.error();
  FieldFailure failure;
  PlannerInput input;
  ReadInput(json.value(), &failure, &input);
  if (failure.error) return *failure.error;
  if (input.features.empty()) {
    for (uint32_t i = 0; i < input.tables.size(); ++i) {
      input.features.push_back({.name = input.tables[i].name, .table = i});
    }
  }
  return input;
}

}  // namespace hotbed
