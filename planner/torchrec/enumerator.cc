#include "planner/torchrec/enumerator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/model/plan_names.h"
#include "planner/model/table_bytes.h"
#include "planner/torchrec/perf_estimator.h"
#include "planner/torchrec/shard_layout.h"
#include "planner/torchrec/storage_estimator.h"

namespace hotbed::torchrec {
namespace {

// The constraints of one table.
struct TableRules {
  ModuleKind module;
  const TableConstraint* constraint = nullptr;
  std::vector<Kernel> kernels;  // named by the constraint; empty: the defaults
  bool all_ranks = true;        // may use every rank
  bool whole_host = true;       // may use every rank of some host

  bool Names(Sharding sharding) const {
    return constraint != nullptr &&
           std::find(constraint->sharding.begin(), constraint->sharding.end(), sharding) !=
               constraint->sharding.end();
  }
};

bool PinsCoverSomeHost(const std::vector<uint32_t>& pins, uint32_t ranks_per_host) {
  uint32_t in_host = 0;
  for (size_t i = 0; i < pins.size(); ++i) {
    const bool same_host = i > 0 && pins[i] / ranks_per_host == pins[i - 1] / ranks_per_host;
    in_host = same_host ? in_host + 1 : 1;
    if (in_host == ranks_per_host) return true;
  }
  return false;
}

PlanError NoBackups(const InputTable& table) {
  PlanError error;
  error.kind = PlanErrorKind::kStrictConstraints;
  error.table = table.name;
  error.limit = 1;
  error.message =
      absl::StrCat("table '", table.name, "': replicas is ", table.replicas,
                   ", and strategy torchrec makes no backups; set replicas to 1, or plan "
                   "with strategy cost");
  return error;
}

PlanResult<TableRules> RulesOf(const InputTable& table, const TableConstraint* constraint,
                               const std::vector<uint32_t>& pins, const RankTopology& topology) {
  if (table.replicas > 1) return NoBackups(table);
  TableRules rules;
  rules.constraint = constraint;
  rules.module.pooled = table.combiner != PlannerCombiner::kNone;
  if (constraint != nullptr) {
    for (const std::string& name : constraint->kernels) {
      const std::optional<Kernel> kernel = FindKernel(name);
      if (!kernel) {
        PlanError error;
        error.table = table.name;
        error.message = absl::StrCat("table '", table.name, "': there is no kernel '", name,
                                     "'; kernels are ", KernelNames());
        return error;
      }
      rules.kernels.push_back(*kernel);
      rules.module.quantised = rules.module.quantised || IsQuantised(*kernel);
    }
  }
  if (!pins.empty()) {
    rules.all_ranks = pins.size() == topology.ranks;
    rules.whole_host = PinsCoverSomeHost(pins, topology.ranks_per_host);
  }
  return rules;
}

bool TypeAllowed(const InputTable& table, const TableRules& rules, Sharding sharding) {
  const bool constrained = rules.constraint != nullptr && !rules.constraint->sharding.empty();
  if (constrained ? !rules.Names(sharding) : sharding == Sharding::kGrid) return false;
  switch (PartitionOf(sharding)) {
    case PartitionBy::kUniform:
      if (!rules.all_ranks) return false;
      break;
    case PartitionBy::kHost:
      if (sharding == Sharding::kTableRowWise && !rules.whole_host) return false;
      break;
    case PartitionBy::kMultiHost:
      if (!rules.whole_host) return false;
      break;
    case PartitionBy::kDevice:
      break;
  }
  if (!NeedsWholeRows(table) || table.row_statistics == RowStatistics::kSlice) return true;
  const std::optional<uint32_t> columns_min =
      rules.constraint != nullptr ? rules.constraint->columns_min : std::nullopt;
  const bool cuts_columns =
      (sharding == Sharding::kColumnWise || sharding == Sharding::kTableColumnWise ||
       sharding == Sharding::kGrid) &&
      ColumnBlock(table.dim, columns_min) < table.dim;
  return !cuts_columns || rules.Names(sharding);
}

std::vector<Kernel> AllowedKernels(const TableRules& rules, Sharding sharding,
                                   PlannerDevice device) {
  std::vector<Kernel> allowed;
  for (const Kernel kernel : OfferedKernels(rules.module, sharding, device)) {
    const bool named =
        std::find(rules.kernels.begin(), rules.kernels.end(), kernel) != rules.kernels.end();
    if (rules.kernels.empty() ? !IsGuarded(kernel) : named) allowed.push_back(kernel);
  }
  // Fused does all that dense does.
  if (std::find(allowed.begin(), allowed.end(), Kernel::kFused) != allowed.end()) {
    std::erase(allowed, Kernel::kDense);
  }
  return allowed;
}

std::string TypeNames(const std::vector<Sharding>& types) {
  return absl::StrJoin(types, ", ", [](std::string* out, Sharding sharding) {
    absl::StrAppend(out, PlanWord(sharding));
  });
}

PlanError NoChoice(const InputTable& table, const TableRules& rules, PlannerDevice device) {
  PlanError error;
  error.kind = PlanErrorKind::kStrictConstraints;
  error.table = table.name;
  const std::vector<Sharding> offered = OfferedShardings(rules.module, device);
  error.message = absl::StrCat("table '", table.name,
                               "': its constraints leave no sharding type and kernel. On ",
                               device == PlannerDevice::kCuda ? "cuda" : "cpu",
                               " strategy torchrec offers it ", TypeNames(offered));
  if (rules.constraint != nullptr) {
    if (!rules.constraint->sharding.empty()) {
      absl::StrAppend(&error.message, "; allowed are ", TypeNames(rules.constraint->sharding));
    }
    if (!rules.kernels.empty()) {
      absl::StrAppend(&error.message, "; kernels ", absl::StrJoin(rules.constraint->kernels, ", "));
    }
    if (!rules.constraint->servers.empty()) {
      absl::StrAppend(&error.message, "; it is pinned to ", rules.constraint->servers.size(),
                      " servers (row_wise and data_parallel need all of them, table_row_wise and "
                      "grid a whole host)");
    }
  }
  absl::StrAppend(&error.message, ". Allow more types, kernels or servers");
  return error;
}

ShardingOption BuildOption(const InputTable& table, const TableWorkload& load,
                           const RankTopology& topology, Sharding sharding, Kernel kernel,
                           const std::vector<ShardRun>& layout) {
  ShardingOption option;
  option.sharding = sharding;
  option.kernel = kernel;
  TableWorkload asked = load;
  asked.inference = load.inference || IsQuantised(kernel);
  if (kernel != Kernel::kFusedUvmCaching) asked.cache_misses = 0;
  ShardShape shape;
  shape.rows = static_cast<double>(table.rows);
  const uint32_t columns = layout[0].columns;
  shape.columns = columns;
  shape.element_bytes = ElementBytes(table);
  if (IsQuantised(kernel)) {
    shape.columns = static_cast<double>(QuantisedRowBytes(columns));
    shape.element_bytes = 1;
    asked.forward_wire = asked.backward_wire = TorchrecWire::kFp32;
  }
  const std::optional<double> bandwidth =
      KernelBandwidth(topology.device, kernel, topology.memory, load.caching_ratio,
                      load.pipeline == TorchrecPipeline::kPrefetch);
  option.perf = EstimateShardPerf(topology, sharding, bandwidth.value_or(1), asked, shape);
  for (const ShardRun& run : layout) {
    option.runs.push_back(
        {.count = run.count,
         .units = run.units,
         .columns = run.columns,
         .storage = EstimateShardStorage(topology, table, asked, sharding, kernel, run)});
  }
  SumUp(&option);
  if (option.partition_by() == PartitionBy::kUniform) {
    option.work = static_cast<uint32_t>(option.runs.size());
  } else if (option.partition_by() != PartitionBy::kDevice) {
    option.work += topology.hosts();  // which are put in order
  }
  return option;
}

}  // namespace

void SumUp(ShardingOption* option) {
  option->shard_ms = TotalMs(option->perf);
  option->sum_ms = 0;
  option->shards = 0;
  option->largest = {};
  option->sum = {};
  for (const StoredRun& run : option->runs) {
    option->shards += run.count;
    // One by one: a product would round otherwise, and the sum decides between options.
    for (uint32_t i = 0; i < run.count; ++i) option->sum_ms += option->shard_ms;
    option->largest.hbm = std::max(option->largest.hbm, run.storage.hbm);
    option->largest.ddr = std::max(option->largest.ddr, run.storage.ddr);
    option->sum.hbm += run.storage.hbm * run.count;
    option->sum.ddr += run.storage.ddr * run.count;
  }
  option->work = option->shards;
}

PlanResult<std::vector<std::vector<uint32_t>>> PinnedRanks(const PlannerInput& input,
                                                           const RankTopology& topology) {
  std::vector<std::optional<uint32_t>> rank_of_server(input.topology.servers.size());
  for (uint32_t r = 0; r < topology.ranks; ++r) rank_of_server[topology.server_of_rank[r]] = r;
  std::vector<std::vector<uint32_t>> pins(input.tables.size());
  for (const TableConstraint& constraint : input.options.constraints) {
    std::vector<uint32_t>& ranks = pins[constraint.table];
    for (const uint32_t server : constraint.servers) {
      if (rank_of_server[server]) ranks.push_back(*rank_of_server[server]);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    if (ranks.empty() && !constraint.servers.empty()) {
      PlanError error;
      error.kind = PlanErrorKind::kStrictConstraints;
      error.table = input.tables[constraint.table].name;
      error.message =
          absl::StrCat("table '", *error.table, "' is pinned to ", constraint.servers.size(),
                       " servers, all of them draining; pin it to another");
      return error;
    }
  }
  return pins;
}

PlanResult<SearchSpace> EnumerateOptions(const PlannerInput& input, const RankTopology& topology,
                                         const std::vector<TableWorkload>& loads,
                                         const std::vector<std::vector<uint32_t>>& pins) {
  const std::vector<const TableConstraint*> constraints = ConstraintsByTable(input);
  const std::vector<double> memory = topology.UnevenMemory();
  const LayoutRanks ranks = {
      .ranks = topology.ranks, .ranks_per_host = topology.ranks_per_host, .uneven_memory = memory};
  SearchSpace space(input.tables.size());
  for (size_t t = 0; t < input.tables.size(); ++t) {
    const InputTable& table = input.tables[t];
    const PlanResult<TableRules> rules = RulesOf(table, constraints[t], pins[t], topology);
    if (!rules.ok()) return rules.error();
    for (const Sharding sharding : OfferedShardings(rules.value().module, topology.device)) {
      if (!TypeAllowed(table, rules.value(), sharding)) continue;
      const std::optional<uint32_t> columns_min =
          constraints[t] != nullptr ? constraints[t]->columns_min : std::nullopt;
      const std::vector<ShardRun> layout = LayOut(table, sharding, columns_min, ranks);
      if (layout.empty()) continue;
      for (const Kernel kernel : AllowedKernels(rules.value(), sharding, topology.device)) {
        space[t].push_back(BuildOption(table, loads[t], topology, sharding, kernel, layout));
      }
    }
    if (space[t].empty()) return NoChoice(table, rules.value(), topology.device);
  }
  return space;
}

ShardingOption WithKernel(const InputTable& table, const TableWorkload& load,
                          const RankTopology& topology, const ShardingOption& option,
                          Kernel kernel) {
  std::vector<ShardRun> layout;
  for (const StoredRun& run : option.runs) {
    layout.push_back({.count = run.count, .units = run.units, .columns = run.columns});
  }
  return BuildOption(table, load, topology, option.sharding, kernel, layout);
}

}  // namespace hotbed::torchrec
