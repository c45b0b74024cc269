#include "planner/cost/cost_report.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/cost/table_mode.h"
#include "planner/model/cost_constants.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

class Report {
 public:
  Report(const PlannerInput& input, const PlacementState& state)
      : input_(input), state_(state), problem_(state.problem()), model_(input) {
    for (uint32_t s = 0; s < problem_.servers.size(); ++s) {
      outside_.push_back(state.Tiers(s).OutsideByClass(problem_.servers[s].capacity));
      PlacedServer server;
      server.name = input.topology.servers[s].name;
      server.bytes = FillTiers(state.Used(s), problem_.servers[s].capacity);
      server.perf.emplace();
      output_.servers.push_back(std::move(server));
    }
  }

  PlannerOutput Build(const LowerBound& bound) {
    const int64_t lower_bound = bound.ticks;
    output_.strategy = "cost";
    for (uint32_t t = 0; t < input_.tables.size(); ++t) output_.tables.push_back(Table(t));
    output_.cost.max_server_ms = problem_.Ms(state_.SlowestTicks());
    output_.cost.lower_bound_ms = problem_.Ms(std::min(lower_bound, state_.SlowestTicks()));
    if (lower_bound > 0) {
      output_.cost.gap =
          std::max(0.0, output_.cost.max_server_ms / output_.cost.lower_bound_ms - 1);
    }
    const uint32_t slowest = std::get<2>(*state_.BySpeed().rbegin());
    output_.cost.binding = absl::StrCat(Rule(bound, slowest), Binding(slowest));
    return std::move(output_);
  }

 private:
  PlacedTable Table(uint32_t t) {
    const ProblemTable& table = problem_.tables[t];
    PlacedTable placed;
    placed.name = input_.tables[t].name;
    placed.perf.emplace();
    for (uint32_t u = table.unit_first; u < table.unit_limit; ++u) {
      AddUnit(u, placed);
    }
    std::sort(placed.ranges.begin(), placed.ranges.end(),
              [](const PlacedRange& a, const PlacedRange& b) {
                return std::tie(a.server, a.row_first, a.column_first, a.role) <
                       std::tie(b.server, b.row_first, b.column_first, b.role);
              });
    placed.sharding = Label(table);
    return placed;
  }

  void AddUnit(uint32_t u, PlacedTable& placed) {
    const Unit& unit = problem_.units[u];
    const InputTable& table = input_.tables[unit.table];
    const uint32_t s = state_.ServerOf(u);
    PlacedServer& server = output_.servers[s];
    const uint32_t members = unit.group_limit - unit.group_first;
    const double read_share = unit.fixed ? 1.0 / members : 1.0;
    TablePerf perf;
    for (uint32_t i = unit.shard_first; i < unit.shard_limit; ++i) {
      const ProblemShard& shard = problem_.shards[i];
      placed.ranges.push_back(Range(table, shard, s, unit.role));
      server.elements += placed.ranges.back().elements;
      const RowCost cost = model_.Row(table, shard.range.columns(), unit.role, members,
                                      read_share * shard.reads, shard.updates);
      const double rows = model_.trainers() * shard.unique / kNsPerMs;
      const double parts = model_.SegmentNs(unit.role, shard.unique) / kNsPerMs;
      const double pulls = unit.role == Role::kPrimary   ? parts / 2
                           : unit.role == Role::kReplica ? parts
                                                         : 0;
      perf.forward_compute_ms += cost.forward_compute * rows;
      perf.forward_comms_ms += cost.forward_comms * rows + pulls;
      perf.backward_compute_ms += cost.backward_compute * rows;
      perf.backward_comms_ms += cost.backward_comms * rows + (parts - pulls);
    }
    for (uint32_t h = unit.heat_first; h < unit.heat_limit; ++h) {
      const HeatEntry& entry = problem_.heat[h];
      const TierLoad::Outside& outside = outside_[s][entry.heat];
      const double ticks = entry.host_extra * outside.host + entry.spill_extra * outside.spill;
      perf.prefetch_ms += ticks * unit.heat_fraction / problem_.ticks_per_ns / kNsPerMs;
    }
    *placed.perf += perf;
    *server.perf += perf;
  }

  static PlacedRange Range(const InputTable& table, const ProblemShard& shard, uint32_t server,
                           Role role) {
    PlacedRange range;
    range.server = server;
    range.role = role;
    range.row_first = shard.range.row_first;
    range.row_limit = shard.range.row_limit;
    range.column_first = shard.range.column_first;
    range.column_limit = shard.range.column_limit;
    const auto times_rows = [&](uint64_t per_row) {
      return RangeBytesOf(table, range.row_first, range.row_limit, per_row);
    };
    range.elements = times_rows(shard.range.columns());
    range.weight_bytes = times_rows(RowWeightBytes(table, shard.range.columns()));
    range.bytes = shard.bytes;
    return range;
  }

  Sharding Label(const ProblemTable& table) const {
    std::set<uint32_t> servers;
    std::set<std::pair<uint32_t, uint32_t>> slice_on_server;
    std::set<uint32_t> slices;
    for (uint32_t u = table.unit_first; u < table.unit_limit; ++u) {
      const Unit& unit = problem_.units[u];
      if (unit.role != Role::kPrimary) continue;
      servers.insert(state_.ServerOf(u));
      for (uint32_t i = unit.shard_first; i < unit.shard_limit; ++i) {
        slices.insert(problem_.shards[i].range.column_first);
        slice_on_server.emplace(problem_.shards[i].range.column_first, state_.ServerOf(u));
      }
    }
    return ShardingLabel(table, servers.size() == 1, slices.size() > 1,
                         slice_on_server.size() == slices.size());
  }

  static const char* Rule(const LowerBound& bound, uint32_t slowest) {
    const auto& servers = bound.servers;
    if (std::find(servers.begin(), servers.end(), slowest) == servers.end()) return "";
    return bound.part == LowerBound::Part::kZones ? "zones of the replicas: "
                                                  : "hosts of the replicas: ";
  }

  std::string Binding(uint32_t slowest) const {
    const std::string& name = input_.topology.servers[slowest].name;
    const TablePerf& perf = *output_.servers[slowest].perf;
    const double compute = perf.forward_compute_ms + perf.backward_compute_ms;
    const double comms = perf.forward_comms_ms + perf.backward_comms_ms;
    const double load = problem_.Ms(problem_.servers[slowest].load);
    const TierCapacity& capacity = problem_.servers[slowest].capacity;
    if (perf.prefetch_ms >= std::max({compute, comms, load}) && perf.prefetch_ms > 0) {
      return absl::StrCat(capacity.device > 0 ? "device_bytes of " : "host_bytes of ", name);
    }
    if (load >= std::max(compute, comms)) return absl::StrCat("load of ", name);
    return absl::StrCat(comms >= compute ? "network of " : "compute of ", name);
  }

  const PlannerInput& input_;
  const PlacementState& state_;
  const Problem& problem_;
  const CostModel model_;
  std::vector<std::array<TierLoad::Outside, kHeatClasses>> outside_;
  PlannerOutput output_;
};

}  // namespace

PlannerOutput ReportPlacement(const PlannerInput& input, const PlacementState& state,
                              const LowerBound& bound) {
  return Report(input, state).Build(bound);
}

}  // namespace hotbed
