#include "planner/torchrec/plan_like_torchrec.h"

#include <optional>
#include <utility>
#include <vector>

#include "planner/torchrec/enumerator.h"
#include "planner/torchrec/plan_output.h"
#include "planner/torchrec/search_error.h"

namespace hotbed {
namespace {

// `input`, `topology` and `loads` must outlive it.
torchrec::CacheModel CachesOf(const PlannerInput& input, const torchrec::RankTopology& topology,
                              const std::vector<torchrec::TableWorkload>& loads) {
  torchrec::CacheModel caches;
  for (const torchrec::TableWorkload& load : loads) {
    caches.tables.push_back(
        {.priority = load.cacheability * load.lookups, .ratio = load.caching_ratio.value_or(0)});
  }
  caches.estimate = [&](uint32_t table, const torchrec::ShardingOption& option,
                        torchrec::Kernel kernel, std::optional<double> ratio) {
    return torchrec::WithKernel(input.tables[table],
                                torchrec::WithCache(loads[table], input.tables[table], ratio),
                                topology, option, kernel);
  };
  return caches;
}

}  // namespace

PlanResult<PlannerOutput> PlanLikeTorchrec(const PlannerInput& input) {
  const PlanResult<torchrec::RankTopology> built = torchrec::BuildRankTopology(input);
  if (!built.ok()) return built.error();
  const torchrec::RankTopology& topology = built.value();
  const PlanResult<std::vector<torchrec::TableWorkload>> loads =
      torchrec::BuildTableWorkloads(input, topology.ranks);
  if (!loads.ok()) return loads.error();
  const PlanResult<torchrec::Reserved> reserved =
      torchrec::ReserveStorage(input, topology, loads.value());
  if (!reserved.ok()) return reserved.error();
  const PlanResult<std::vector<std::vector<uint32_t>>> pins =
      torchrec::PinnedRanks(input, topology);
  if (!pins.ok()) return pins.error();
  PlanResult<torchrec::SearchSpace> enumerated =
      torchrec::EnumerateOptions(input, topology, loads.value(), pins.value());
  if (!enumerated.ok()) return enumerated.error();
  torchrec::SearchSpace space = std::move(enumerated.value());
  const torchrec::SearchResult result =
      torchrec::SearchPlan(&space, topology, reserved.value().left, pins.value(),
                           {.evaluations_max = input.options.evaluations_max,
                            .partitioner = input.options.torchrec.partitioner,
                            .proposers = input.options.torchrec.proposers},
                           CachesOf(input, topology, loads.value()));
  if (!result.best) {
    return torchrec::ExplainFailure(input, space, topology, reserved.value(), result);
  }
  return torchrec::DescribePlan(input, space, topology, reserved.value(), *result.best);
}

}  // namespace hotbed
