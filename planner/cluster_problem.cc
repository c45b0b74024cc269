#include "planner/cluster_problem.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/compute_plan.h"
#include "planner/finish_plan.h"
#include "planner/placement.h"

namespace hotbed {
namespace {

constexpr uint64_t kUncountedSpill = 1ull << 50;
// A table is created while its user waits; so many are some tens of milliseconds.
constexpr uint64_t kEvaluationsMax = 20000;

PlannerWeight WeightOf(WeightType type) {
  switch (type) {
    case WeightType::kFp16:
      return PlannerWeight::kFp16;
    case WeightType::kBf16:
      return PlannerWeight::kBf16;
    default:
      return PlannerWeight::kFp32;
  }
}

PlannerOptimizer OptimizerOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return PlannerOptimizer::kSgd;
    case OptimizerKind::kAdagrad:
      return PlannerOptimizer::kAdagrad;
    case OptimizerKind::kRowwiseAdagrad:
      return PlannerOptimizer::kRowwiseAdagrad;
    case OptimizerKind::kAdam:
      return PlannerOptimizer::kAdam;
    case OptimizerKind::kMomentumSgd:
      return PlannerOptimizer::kMomentumSgd;
    case OptimizerKind::kAdamW:
      return PlannerOptimizer::kAdamW;
    case OptimizerKind::kPartialRowwiseAdam:
      return PlannerOptimizer::kPartialRowwiseAdam;
    case OptimizerKind::kLamb:
      return PlannerOptimizer::kLamb;
    case OptimizerKind::kPartialRowwiseLamb:
      return PlannerOptimizer::kPartialRowwiseLamb;
    case OptimizerKind::kLars:
      return PlannerOptimizer::kLars;
    case OptimizerKind::kFtrl:
      return PlannerOptimizer::kFtrl;
    case OptimizerKind::kRmsProp:
      return PlannerOptimizer::kRmsprop;
    case OptimizerKind::kNone:
      return PlannerOptimizer::kNone;
  }
  return PlannerOptimizer::kSgd;
}

InputTable InputOf(const TableSpec& spec) {
  InputTable table;
  table.name = spec.name;
  // A hashed table may be created without an expected size; a row a bucket is a guess.
  table.rows = spec.hashed && spec.rows == 0 ? kHashBuckets : spec.rows;
  table.dim = spec.dim;
  table.weight = WeightOf(spec.weight_type);
  table.optimizer = OptimizerOf(spec.optimizer.kind);
  const StateLayout layout = LayoutOfState(spec.optimizer);
  table.state_bf16 = spec.optimizer.state_type == StateType::kBf16;
  table.row_counters = uint32_t{layout.has_updates} + uint32_t{layout.has_last_step};
  table.hashed = spec.hashed;
  table.row_statistics = spec.row_statistics;
  return table;
}

bool FitsOneShard(const TableSpec& spec) {
  const absl::StatusOr<std::vector<ShardRange>> cut = CutTable(spec, 0);
  return cut.ok() && cut->size() == 1;
}

std::vector<std::string> ServerNames(const std::vector<ClusterServer>& servers) {
  std::map<std::string, int> times;
  for (const ClusterServer& server : servers) ++times[server.name];
  std::vector<std::string> names;
  for (const ClusterServer& server : servers) {
    const bool unique = times[server.name] == 1 && !server.name.empty();
    names.push_back(unique ? server.name : absl::StrCat(server.name, "#", server.id));
  }
  return names;
}

absl::flat_hash_map<ServerId, uint32_t> ServerIndices(const ClusterView& view) {
  absl::flat_hash_map<ServerId, uint32_t> indices;
  for (uint32_t s = 0; s < view.servers.size(); ++s) indices.emplace(view.servers[s].id, s);
  return indices;
}

}  // namespace

PlannerOutput LivePlan(const ClusterView& view) {
  PlannerOutput plan;
  for (std::string& name : ServerNames(view.servers)) {
    plan.servers.emplace_back().name = std::move(name);
  }
  const absl::flat_hash_map<ServerId, uint32_t> indices = ServerIndices(view);
  for (const ClusterTable& table : view.tables) {
    if (table.shards.empty()) continue;
    PlacedTable& placed = plan.tables.emplace_back();
    placed.name = table.spec.name;
    placed.sharding = table.spec.column_slices > 1 ? Sharding::kGrid : Sharding::kRowWise;
    for (const ClusterShard& shard : table.shards) {
      const auto server = indices.find(shard.primary);
      if (server == indices.end()) continue;
      PlacedRange& range = placed.ranges.emplace_back();
      range.server = server->second;
      range.row_first = shard.range.first;
      range.row_limit = shard.range.limit;
      range.column_first = shard.range.column_first;
      range.column_limit = shard.range.column_limit;
    }
  }
  return plan;
}

PlannerInput ClusterProblem(const ClusterView& view) {
  PlannerInput input;
  const std::vector<std::string> names = ServerNames(view.servers);
  std::vector<uint32_t> usable;
  for (uint32_t s = 0; s < view.servers.size(); ++s) {
    const ClusterServer& server = view.servers[s];
    InputServer& out = input.topology.servers.emplace_back();
    out.name = out.host = names[s];
    out.host_bytes = server.host_bytes;
    out.spill_bytes = server.spill_bytes == 0 ? kUncountedSpill : server.spill_bytes;
    out.draining = server.draining;
    out.unreachable = !server.reachable;
    if (server.usable) usable.push_back(s);
  }
  for (const ClusterTable& table : view.tables) {
    const uint32_t t = static_cast<uint32_t>(input.tables.size());
    input.tables.push_back(InputOf(table.spec));
    InputFeature& feature = input.features.emplace_back();
    feature.name = table.spec.name;
    feature.table = t;
    TableConstraint& constraint = input.options.constraints.emplace_back();
    constraint.table = t;
    constraint.sharding = {Sharding::kTableWise};
    if (table.spec.column_slices > 1) constraint.column_slices = table.spec.column_slices;
    // Without a known workload a table of one shard is not worth spreading. One that was cut finer
    // because its creator asked for it stays so.
    const bool whole = table.shards.size() <= 1 && FitsOneShard(table.spec);
    if (!whole) constraint.sharding.push_back(Sharding::kRowWise);
    if (table.shards.empty()) constraint.servers = usable;
  }
  input.options.strategy = PlannerStrategy::kCost;
  PlannerOutput live = LivePlan(view);
  if (!live.tables.empty()) input.current = std::move(live);
  return input;
}

PlannerOutput LivePlanOf(PlannerInput problem) {
  for (InputServer& server : problem.topology.servers) server.draining = false;
  problem.options.move_bytes_max = 0;
  PlanResult<PlannerOutput> planned = ComputePlan(problem);
  if (planned.ok()) return std::move(planned.value());
  PlannerOutput plan = problem.current.value_or(PlannerOutput());
  plan.servers.resize(problem.topology.servers.size());
  FinishPlan(problem, &plan);
  return plan;
}

absl::Status ToStatus(const PlanError& error) {
  if (error.kind == PlanErrorKind::kInput) return absl::InvalidArgumentError(error.message);
  return absl::FailedPreconditionError(error.message);
}

absl::StatusOr<Plan> PlaceNewTables(const ClusterView& view) {
  if (std::none_of(view.servers.begin(), view.servers.end(),
                   [](const ClusterServer& server) { return server.usable; })) {
    return absl::FailedPreconditionError("no table can be placed: no shard server is live");
  }
  PlannerInput input = ClusterProblem(view);
  // What is there stays, wherever it is and whatever becomes of its server.
  for (InputServer& server : input.topology.servers) server.draining = false;
  input.options.move_bytes_max = 0;
  input.options.evaluations_max = kEvaluationsMax;
  const PlanResult<PlannerOutput> planned = ComputePlan(input);
  if (!planned.ok()) return ToStatus(planned.error());
  Plan plan;
  for (size_t t = 0; t < view.tables.size(); ++t) {
    const TableSpec& spec = view.tables[t].spec;
    if (!view.tables[t].shards.empty()) continue;
    std::vector<PlacedRange> ranges = planned.value().tables[t].ranges;
    std::sort(ranges.begin(), ranges.end(), [](const PlacedRange& a, const PlacedRange& b) {
      return std::tie(a.column_first, a.row_first) < std::tie(b.column_first, b.row_first);
    });
    for (const PlacedRange& range : ranges) {
      const uint32_t index = static_cast<uint32_t>(&range - ranges.data());
      plan.shards.push_back(
          {.shard = {spec.id, index},
           .range = {range.row_first, range.row_limit, range.column_first, range.column_limit},
           .bytes = range.bytes,
           .weight_bytes = range.weight_bytes,
           .assignments = {{view.servers[range.server].id, Role::kPrimary}}});
    }
  }
  return plan;
}

}  // namespace hotbed
