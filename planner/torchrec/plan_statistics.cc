#include "planner/torchrec/plan_statistics.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace hotbed::torchrec {
namespace {

using ByRank = std::vector<double>;

double Slowest(const ByRank& ms) { return *std::max_element(ms.begin(), ms.end()); }

uint32_t RankOf(const ShardingOption& option, const std::vector<uint32_t>& ranks, uint32_t shard) {
  return option.partition_by() == PartitionBy::kUniform ? shard : ranks[shard];
}

}  // namespace

PlanStatistics MeasurePlan(const RankTopology& topology, const std::vector<TableWorkload>& loads,
                           const FoundPlan& plan) {
  const ByRank zero(topology.ranks, 0);
  ByRank time = zero;
  ByRank hbm = zero;
  ByRank ddr = zero;
  ByRank forward = zero;
  ByRank backward = zero;
  std::map<std::tuple<bool, bool, Sharding, bool>, ByRank> comms;
  for (size_t t = 0; t < plan.options.size(); ++t) {
    const ShardingOption& option = *plan.options[t];
    const bool weighted = loads[t].pooled && loads[t].weighted;
    ByRank& sent =
        comms.try_emplace({loads[t].pooled, weighted, option.sharding, false}, zero).first->second;
    ByRank& returned =
        comms.try_emplace({loads[t].pooled, weighted, option.sharding, true}, zero).first->second;
    uint32_t shard = 0;
    for (const StoredRun& run : option.runs) {
      for (uint32_t i = 0; i < run.count; ++i) {
        const uint32_t rank = RankOf(option, plan.assignment[t], shard++);
        time[rank] += option.shard_ms;
        hbm[rank] += static_cast<double>(run.storage.hbm);
        ddr[rank] += static_cast<double>(run.storage.ddr);
        forward[rank] += option.perf.forward_compute_ms;
        backward[rank] += option.perf.backward_compute_ms;
        sent[rank] += option.perf.forward_comms_ms;
        returned[rank] += option.perf.backward_comms_ms;
      }
    }
  }
  PlanStatistics statistics;
  statistics.time = MeasureImbalance(time);
  statistics.device_bytes = MeasureImbalance(hbm);
  statistics.host_bytes = MeasureImbalance(ddr);
  for (const auto& [group, ms] : comms) statistics.critical_comms_ms += Slowest(ms);
  statistics.critical_compute_ms = Slowest(forward) + Slowest(backward);
  return statistics;
}

}  // namespace hotbed::torchrec
