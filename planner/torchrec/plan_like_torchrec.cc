#include "planner/torchrec/plan_like_torchrec.h"

#include <utility>
#include <vector>

#include "planner/torchrec/enumerator.h"
#include "planner/torchrec/plan_output.h"
#include "planner/torchrec/search_error.h"

namespace hotbed {

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
  const PlanResult<torchrec::SearchSpace> space =
      torchrec::EnumerateOptions(input, topology, loads.value(), pins.value());
  if (!space.ok()) return space.error();
  const torchrec::SearchResult result =
      torchrec::SearchPlan(space.value(), topology, reserved.value().left, pins.value(),
                           {.evaluations_max = input.options.evaluations_max,
                            .partitioner = input.options.torchrec.partitioner,
                            .proposers = input.options.torchrec.proposers});
  if (!result.best) {
    return torchrec::ExplainFailure(input, space.value(), topology, reserved.value(), result);
  }
  return torchrec::DescribePlan(input, space.value(), topology, reserved.value(), *result.best);
}

}  // namespace hotbed
