#include "planner/torchrec/plan_output.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/model/table_bytes.h"
#include "planner/torchrec/storage_estimator.h"

namespace hotbed::torchrec {
namespace {

// One shard with its place in the rows; columns follow later.
struct PlacedShard {
  uint32_t rank = 0;
  uint64_t unit_first = 0;
  uint64_t unit_limit = 0;
  uint32_t columns = 0;
  Storage storage;
};

std::vector<PlacedShard> ShardsOf(const ShardingOption& option,
                                  const std::vector<uint32_t>& ranks) {
  const bool uniform = option.partition_by() == PartitionBy::kUniform;
  const bool rows_cut = option.sharding == Sharding::kRowWise ||
                        option.sharding == Sharding::kTableRowWise ||
                        option.sharding == Sharding::kGrid;
  uint64_t units = 0;  // of the whole table, that is of one column block
  for (const StoredRun& run : option.runs) units += run.units * (rows_cut ? run.count : 0);
  std::vector<PlacedShard> shards;
  uint64_t next = 0;
  uint32_t shard = 0;
  for (const StoredRun& run : option.runs) {
    for (uint32_t i = 0; i < run.count; ++i, ++shard) {
      shards.push_back({.rank = uniform ? shard : ranks[shard],
                        .unit_first = next,
                        .unit_limit = next + run.units,
                        .columns = run.columns,
                        .storage = run.storage});
      if (rows_cut) next += run.units;
    }
  }
  return shards;
}

// Grid shards of one column block begin again at row 0.
void RestartRows(uint32_t ranks_per_host, std::vector<PlacedShard>* shards) {
  for (size_t i = 0; i < shards->size(); i += ranks_per_host) {
    const uint64_t base = (*shards)[i].unit_first;
    for (size_t j = i; j < std::min(shards->size(), i + ranks_per_host); ++j) {
      (*shards)[j].unit_first -= base;
      (*shards)[j].unit_limit -= base;
    }
  }
}

// Joins shards of equal rows on one rank, adding up their widths.
std::vector<PlacedShard> JoinColumns(std::vector<PlacedShard> shards,
                                     const RankTopology& topology) {
  std::stable_sort(shards.begin(), shards.end(), [&](const PlacedShard& a, const PlacedShard& b) {
    return topology.server_of_rank[a.rank] < topology.server_of_rank[b.rank];
  });
  std::vector<PlacedShard> joined;
  for (const PlacedShard& shard : shards) {
    if (!joined.empty() && joined.back().rank == shard.rank &&
        joined.back().unit_first == shard.unit_first) {
      joined.back().columns += shard.columns;
      joined.back().storage += shard.storage;
    } else {
      joined.push_back(shard);
    }
  }
  return joined;
}

PlacedRange RangeOf(const InputTable& table, const RankTopology& topology, Kernel kernel,
                    const PlacedShard& shard, uint32_t column_first) {
  PlacedRange range;
  range.server = topology.server_of_rank[shard.rank];
  range.row_first = shard.unit_first;
  range.row_limit = shard.unit_limit;
  range.column_first = column_first;
  range.column_limit = column_first + shard.columns;
  range.elements = RangeBytesOf(table, shard.unit_first, shard.unit_limit, shard.columns);
  range.weight_bytes =
      RangeBytesOf(table, shard.unit_first, shard.unit_limit, RowWeightBytes(table, shard.columns));
  range.bytes = ClampBytes(shard.storage.hbm + shard.storage.ddr);
  range.kernel = KernelName(kernel);
  return range;
}

// The column blocks of grid shards belong to hosts, those of others to ranks.
PlacedTable DescribeTable(const InputTable& table, const RankTopology& topology,
                          const ShardingOption& option, const std::vector<uint32_t>& ranks) {
  std::vector<PlacedShard> shards = ShardsOf(option, ranks);
  const uint32_t local = topology.ranks_per_host;
  const bool grid = option.sharding == Sharding::kGrid;
  if (grid) RestartRows(local, &shards);
  PlacedTable placed;
  placed.name = table.name;
  placed.sharding = option.sharding;
  placed.perf = option.perf;
  placed.cache_load_factor = option.cache_ratio;
  const bool columns_cut = grid || option.sharding == Sharding::kColumnWise ||
                           option.sharding == Sharding::kTableColumnWise;
  shards = JoinColumns(std::move(shards), topology);
  // Where the columns of each lane (a host or a rank) begin; lanes in order of their first server.
  std::vector<int64_t> lane_first(topology.ranks, -1);
  uint32_t next = 0;
  for (const PlacedShard& shard : shards) {
    const uint32_t lane = grid ? shard.rank / local : shard.rank;
    if (columns_cut && lane_first[lane] < 0) {
      lane_first[lane] = next;
      next += shard.columns;
    }
    if (shard.unit_first == shard.unit_limit) continue;
    const auto first = static_cast<uint32_t>(columns_cut ? lane_first[lane] : 0);
    placed.ranges.push_back(RangeOf(table, topology, option.kernel, shard, first));
    if (option.sharding == Sharding::kDataParallel && placed.ranges.size() > 1) {
      placed.ranges.back().role = Role::kReplica;
    }
  }
  return placed;
}

void AddToServers(const InputTable& table, const RankTopology& topology,
                  const ShardingOption& option, const std::vector<uint32_t>& ranks,
                  std::vector<Storage>* used, std::vector<PlacedServer>* servers) {
  for (const PlacedShard& shard : ShardsOf(option, ranks)) {
    PlacedServer& server = (*servers)[topology.server_of_rank[shard.rank]];
    server.elements += RangeBytesOf(table, 0, shard.unit_limit - shard.unit_first, shard.columns);
    *server.perf += option.perf;
    (*used)[shard.rank] += shard.storage;
  }
}

double LowerBound(const SearchSpace& space, uint32_t ranks) {
  double sum = 0;
  double deepest = 0;
  for (const std::deque<ShardingOption>& options : space) {
    double least_sum = std::numeric_limits<double>::infinity();
    double least_depth = least_sum;
    for (const ShardingOption& option : options) {
      least_sum = std::min(least_sum, option.sum_ms);
      least_depth = std::min(least_depth, option.shard_ms);
    }
    sum += least_sum;
    deepest = std::max(deepest, least_depth);
  }
  return std::max(sum / ranks, deepest);
}

// The fullest tier of a server where it is at least 95 % full, else the slowest server's time.
std::string Binding(const PlannerInput& input, const RankTopology& topology,
                    const Reserved& reserved, const std::vector<Storage>& used,
                    const std::vector<PlacedServer>& servers) {
  double fullest = 0.95;
  std::string binding;
  uint32_t slowest = 0;
  for (uint32_t r = 0; r < topology.ranks; ++r) {
    const uint32_t s = topology.server_of_rank[r];
    const auto weigh = [&](absl::int128 taken, absl::int128 room, const char* tier) {
      if (room <= 0) return;
      const double full = static_cast<double>(taken) / static_cast<double>(room);
      if (full < fullest || (full == fullest && !binding.empty())) return;
      fullest = full;
      binding = absl::StrCat(tier, " of ", input.topology.servers[s].name);
    };
    weigh(used[r].hbm, reserved.left[r].hbm, "device_bytes");
    weigh(used[r].ddr, reserved.left[r].ddr, "host_bytes");
    if (TotalMs(*servers[s].perf) > TotalMs(*servers[topology.server_of_rank[slowest]].perf)) {
      slowest = r;
    }
  }
  if (!binding.empty()) return binding;
  return absl::StrCat("time of ", input.topology.servers[topology.server_of_rank[slowest]].name);
}

}  // namespace

PlannerOutput DescribePlan(const PlannerInput& input, const SearchSpace& space,
                           const RankTopology& topology, const Reserved& reserved,
                           const FoundPlan& plan) {
  PlannerOutput output;
  output.strategy = "torchrec";
  for (const InputServer& server : input.topology.servers) {
    PlacedServer placed;
    placed.name = server.name;
    placed.perf = TablePerf{};
    output.servers.push_back(std::move(placed));
  }
  std::vector<Storage> used(topology.ranks);
  for (size_t t = 0; t < input.tables.size(); ++t) {
    const InputTable& table = input.tables[t];
    output.tables.push_back(DescribeTable(table, topology, *plan.options[t], plan.assignment[t]));
    AddToServers(table, topology, *plan.options[t], plan.assignment[t], &used, &output.servers);
  }
  for (uint32_t r = 0; r < topology.ranks; ++r) {
    PlacedServer& server = output.servers[topology.server_of_rank[r]];
    server.bytes.device = ClampBytes(used[r].hbm);
    server.bytes.host = ClampBytes(used[r].ddr);
  }
  output.cost.max_server_ms = plan.rating_ms;
  // Rounding must not put the bound above the time that it bounds.
  output.cost.lower_bound_ms = std::min(plan.rating_ms, LowerBound(space, topology.ranks));
  if (output.cost.lower_bound_ms > 0) {
    output.cost.gap = output.cost.max_server_ms / output.cost.lower_bound_ms - 1;
  }
  output.cost.binding = Binding(input, topology, reserved, used, output.servers);
  return output;
}

}  // namespace hotbed::torchrec
