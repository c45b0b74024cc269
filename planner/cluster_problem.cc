#include "planner/cluster_problem.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/model/finish_plan.h"
#include "planner/model/table_bytes.h"
#include "planner/plan_by_cost.h"

namespace hotbed {
namespace {

constexpr uint64_t kUncountedSpill = 1ull << 50;
constexpr uint64_t kRoomMax = 1ull << 60;
// The user waits while a table is created; this many evaluations take some tens of milliseconds.
constexpr uint64_t kEvaluationsMax = 20000;
// Mean reads per table and step if loads are measured: large enough that the cost per request,
// which is not measured, hardly counts.
constexpr double kMeasuredReads = 65536;

static_assert(static_cast<int>(PlannerWeight::kFp32) == static_cast<int>(WeightType::kFp32) &&
                  static_cast<int>(PlannerWeight::kFp16) == static_cast<int>(WeightType::kFp16) &&
                  static_cast<int>(PlannerWeight::kBf16) == static_cast<int>(WeightType::kBf16),
              "a table's weight types have the same numbers in the planner");

}  // namespace

uint32_t ClusterTable::PlaceOf(ShardId shard) const {
  const auto is = [&](uint32_t place) { return IdOf(place) == shard; };
  uint32_t place = shard.index;
  if (place < shards.size() && is(place)) return place;
  for (place = 0; place + 1 < shards.size() && !is(place);) ++place;
  return place;
}

void SortByPosition(std::vector<ClusterShard>* shards) {
  std::sort(shards->begin(), shards->end(), [](const ClusterShard& a, const ClusterShard& b) {
    return std::tie(a.range.column_first, a.range.first) <
           std::tie(b.range.column_first, b.range.first);
  });
}

InputTable PlannerTable(const TableSpec& spec) {
  InputTable table;
  table.name = spec.name;
  // A hashed table may be created without an expected size; one row per bucket is a guess.
  table.rows = spec.hashed && spec.rows == 0 ? kHashBuckets : spec.rows;
  table.dim = spec.dim;
  table.weight = static_cast<PlannerWeight>(spec.weight_type);
  table.optimizer = spec.optimizer.kind;
  table.state_bf16 = spec.optimizer.state_type == StateType::kBf16;
  OptimizerParams bare;
  bare.kind = spec.optimizer.kind;
  const StateLayout layout = LayoutOfState(spec.optimizer);
  table.row_counters =
      (layout.CounterBytes() + layout.TouchBytes() - LayoutOfState(bare).CounterBytes()) / 4;
  table.hashed = spec.hashed;
  table.row_statistics = spec.row_statistics;
  table.replicas = spec.replicas;
  return table;
}

namespace {

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
      const auto add = [&](ServerId holder, Role role) {
        const auto server = indices.find(holder);
        if (server == indices.end()) return;
        PlacedRange& range = placed.ranges.emplace_back();
        range.server = server->second;
        range.role = role;
        range.row_first = shard.range.first;
        range.row_limit = shard.range.limit;
        range.column_first = shard.range.column_first;
        range.column_limit = shard.range.column_limit;
      };
      add(shard.primary, Role::kPrimary);
      for (const ServerId backup : shard.backups) add(backup, Role::kBackup);
    }
  }
  return plan;
}

void TakeMeasuredBytes(ClusterView* view) {
  absl::flat_hash_map<uint64_t, uint64_t> most;
  for (const ClusterServer& server : view->servers) {
    for (const ReplicaLoad& replica : server.replicas) {
      uint64_t& bytes = most[replica.shard.packed()];
      bytes = std::max(bytes, replica.bytes);
    }
  }
  for (ClusterTable& table : view->tables) {
    for (uint32_t i = 0; i < table.shards.size(); ++i) {
      const auto it = most.find(table.IdOf(i).packed());
      if (it != most.end()) table.shards[i].bytes = it->second;
    }
  }
}

namespace {

bool IsMember(const ClusterShard& shard, ServerId id) {
  return shard.primary == id || Contains(shard.backups, id);
}

// The bytes of one replica as the planner counts them.
uint64_t CountedBytes(const InputTable& table, const ClusterShard& shard) {
  const ShardRange& range = shard.range;
  const uint64_t row_bytes = RowBytes(table, range.column_limit - range.column_first);
  return std::max(shard.bytes, RangeBytesOf(table, range.first, range.limit, row_bytes));
}

}  // namespace

void TakeFreeBytes(ClusterView* view) {
  absl::flat_hash_map<ServerId, absl::uint128> counted;
  for (const ClusterTable& table : view->tables) {
    const InputTable input = PlannerTable(table.spec);
    for (const ClusterShard& shard : table.shards) {
      const uint64_t bytes = CountedBytes(input, shard);
      counted[shard.primary] += bytes;
      for (const ServerId backup : shard.backups) counted[backup] += bytes;
      if (!table.spec.data_parallel) continue;
      for (const ClusterServer& server : view->servers) {
        if (!IsMember(shard, server.id)) counted[server.id] += bytes;
      }
    }
  }
  for (ClusterServer& server : view->servers) {
    if (!server.free_bytes.has_value()) continue;
    const absl::uint128 room =
        std::min<absl::uint128>(counted[server.id] + *server.free_bytes / 5 * 4, kRoomMax);
    const uint64_t total = absl::Uint128Low64(room);
    server.host_bytes = std::min(server.host_bytes, total);
    server.spill_bytes =
        std::max<uint64_t>(1, total - std::min(total, server.host_bytes + server.device_bytes));
  }
}

namespace {

// The rows that a shard serves per step; `per_row` converts the view's rows into rows per step.
// Below 0: unknown.
MeasuredRange MeasuredOf(const ClusterShard& shard, double per_row) {
  MeasuredRange range;
  range.row_first = shard.range.first;
  range.column_first = shard.range.column_first;
  range.bytes = shard.bytes;
  if (per_row > 0) {
    range.reads = shard.rows_pulled * per_row;
    range.updates = shard.rows_pushed * per_row;
  }
  return range;
}

double StepsPerRow(const ClusterView& view) {
  double rows = 0;
  double tables = 0;
  for (const ClusterTable& table : view.tables) {
    if (!table.shards.empty()) ++tables;
    for (const ClusterShard& shard : table.shards) rows += shard.rows_pulled + shard.rows_pushed;
  }
  return rows > 0 ? 2 * tables * kMeasuredReads / rows : 0;
}

void AddMeasured(const ClusterView& view, PlannerInput* input) {
  const double per_row = StepsPerRow(view);
  for (size_t t = 0; t < view.tables.size(); ++t) {
    const std::vector<ClusterShard>& shards = view.tables[t].shards;
    const bool known = std::any_of(shards.begin(), shards.end(),
                                   [](const ClusterShard& shard) { return shard.bytes > 0; });
    // A new table counts for as much as the mean of the existing tables.
    if (shards.empty() && per_row > 0) input->tables[t].reads_per_step = kMeasuredReads;
    if (shards.empty() || (!known && per_row == 0)) continue;
    std::vector<MeasuredRange>& measured = input->tables[t].measured;
    for (const ClusterShard& shard : shards) measured.push_back(MeasuredOf(shard, per_row));
    std::sort(measured.begin(), measured.end(), [](const auto& a, const auto& b) {
      return std::tie(a.column_first, a.row_first) < std::tie(b.column_first, b.row_first);
    });
  }
}

// Every server has a replica of these tables, whether it is a member or not.
void TakeRoomOfReadReplicas(const ClusterView& view, PlannerInput* input) {
  for (size_t t = 0; t < view.tables.size(); ++t) {
    if (!view.tables[t].spec.data_parallel) continue;
    for (const ClusterShard& shard : view.tables[t].shards) {
      const uint64_t bytes = CountedBytes(input->tables[t], shard);
      for (size_t s = 0; s < view.servers.size(); ++s) {
        if (IsMember(shard, view.servers[s].id)) continue;
        uint64_t& spill = input->topology.servers[s].spill_bytes;
        spill -= std::min(spill, bytes);
      }
    }
  }
}

}  // namespace

std::vector<ServerCandidate> Candidates(const ClusterView& view) {
  std::vector<ServerCandidate> servers;
  for (const ClusterServer& server : view.servers) {
    if (!server.usable) continue;
    servers.push_back(
        {server.id, server.other_bytes, server.failure_domain, server.other_primary_bytes});
  }
  AddBytes(view.tables, &servers);
  return servers;
}

void AddBytes(absl::Span<const ClusterTable> tables, std::vector<ServerCandidate>* servers) {
  absl::flat_hash_map<ServerId, uint64_t> bytes;
  absl::flat_hash_map<ServerId, uint64_t> primary_bytes;
  for (const ClusterTable& table : tables) {
    for (const ClusterShard& shard : table.shards) {
      const uint64_t held = RangeBytes(table.spec, shard.range);
      bytes[shard.primary] += held;
      primary_bytes[shard.primary] += held;
      for (const ServerId backup : shard.backups) bytes[backup] += held;
    }
  }
  for (ServerCandidate& server : *servers) {
    server.bytes += bytes[server.server];
    server.primary_bytes += primary_bytes[server.server];
  }
}

PlannerInput ClusterProblem(const ClusterView& view) {
  PlannerInput input;
  const std::vector<std::string> names = ServerNames(view.servers);
  std::vector<uint32_t> usable;
  for (uint32_t s = 0; s < view.servers.size(); ++s) {
    const ClusterServer& server = view.servers[s];
    InputServer& out = input.topology.servers.emplace_back();
    out.name = names[s];
    // A name that stands for a server alone is no domain's: those that are given come as they are.
    out.host = server.failure_domain.empty() ? absl::StrCat("\n", names[s]) : server.failure_domain;
    out.device_bytes = server.device_bytes;
    if (server.device_bytes > 0) input.topology.device = PlannerDevice::kCuda;
    out.host_bytes = server.host_bytes;
    out.spill_bytes = server.spill_bytes == 0 ? kUncountedSpill : server.spill_bytes;
    out.draining = server.draining;
    out.unreachable = !server.reachable || (!server.usable && !server.draining);
    if (server.usable) usable.push_back(s);
  }
  for (const ClusterTable& table : view.tables) {
    const uint32_t t = static_cast<uint32_t>(input.tables.size());
    input.tables.push_back(PlannerTable(table.spec));
    InputFeature& feature = input.features.emplace_back();
    feature.name = table.spec.name;
    feature.table = t;
    TableConstraint& constraint = input.options.constraints.emplace_back();
    constraint.table = t;
    constraint.sharding = {Sharding::kTableWise};
    if (table.spec.column_slices > 1) constraint.column_slices = table.spec.column_slices;
    // Without a known workload a table of one shard is not worth spreading. A table whose creator
    // asked for finer shards keeps them.
    const bool whole = table.shards.size() <= 1 && FitsOneShard(table.spec);
    if (!whole) constraint.sharding.push_back(Sharding::kRowWise);
    if (table.shards.empty()) constraint.servers = usable;
  }
  AddMeasured(view, &input);
  TakeRoomOfReadReplicas(view, &input);
  input.options.strategy = PlannerStrategy::kCost;
  input.options.replicas_as_they_are = true;
  PlannerOutput live = LivePlan(view);
  if (!live.tables.empty()) input.current = std::move(live);
  return input;
}

PlannerOutput LivePlanOf(PlannerInput problem) {
  for (InputServer& server : problem.topology.servers) server.draining = false;
  problem.options.move_bytes_max = 0;
  PlanResult<PlannerOutput> planned = PlanCluster(problem);
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

namespace {

// The shards of one new table, each with its primary first.
void AddPlanned(const ClusterView& view, const TableSpec& spec, std::vector<PlacedRange> ranges,
                Plan* plan) {
  std::sort(ranges.begin(), ranges.end(), [](const PlacedRange& a, const PlacedRange& b) {
    return std::tie(a.column_first, a.row_first, a.role, a.server) <
           std::tie(b.column_first, b.row_first, b.role, b.server);
  });
  uint32_t index = 0;
  for (const PlacedRange& range : ranges) {
    const Assignment assignment{view.servers[range.server].id, range.role};
    if (range.role != Role::kPrimary) {
      plan->shards.back().assignments.push_back(assignment);
      continue;
    }
    plan->shards.push_back(
        {.shard = {spec.id, index++},
         .range = {range.row_first, range.row_limit, range.column_first, range.column_limit},
         .bytes = range.bytes,
         .weight_bytes = range.weight_bytes,
         .assignments = {assignment}});
  }
}

absl::Status CheckDomains(const ClusterView& view) {
  std::set<std::string> domains;
  uint64_t usable = 0;
  for (const ClusterServer& server : view.servers) {
    if (!server.usable) continue;
    ++usable;
    domains.insert(server.failure_domain.empty() ? absl::StrCat("\n", server.id)
                                                 : server.failure_domain);
  }
  for (const ClusterTable& table : view.tables) {
    if (!table.shards.empty() || table.spec.replicas <= domains.size()) continue;
    return TooFewDomains(table.spec, domains.size(), usable);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> PlaceNewTables(const ClusterView& view) {
  if (std::none_of(view.servers.begin(), view.servers.end(),
                   [](const ClusterServer& server) { return server.usable; })) {
    return absl::FailedPreconditionError("no table can be placed: no shard server is live");
  }
  HOTBED_RETURN_IF_ERROR(CheckDomains(view));
  PlannerInput input = ClusterProblem(view);
  // Existing shards stay, wherever they are and whatever happens to their server.
  for (InputServer& server : input.topology.servers) {
    server.draining = server.unreachable = false;
  }
  input.options.move_bytes_max = 0;
  input.options.evaluations_max = kEvaluationsMax;
  PlanResult<PlannerOutput> planned = PlanCluster(input);
  if (!planned.ok()) {
    bool disks_known = false;
    for (size_t s = 0; s < view.servers.size(); ++s) {
      if (!view.servers[s].free_bytes.has_value()) continue;
      input.topology.servers[s].spill_bytes = kUncountedSpill;
      disks_known = true;
    }
    if (disks_known) planned = PlanCluster(input);
  }
  if (!planned.ok()) return ToStatus(planned.error());
  Plan plan;
  for (size_t t = 0; t < view.tables.size(); ++t) {
    const TableSpec& spec = view.tables[t].spec;
    if (!view.tables[t].shards.empty()) continue;
    AddPlanned(view, spec, planned.value().tables[t].ranges, &plan);
  }
  return plan;
}

}  // namespace hotbed
