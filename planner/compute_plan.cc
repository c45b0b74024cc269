#include "planner/compute_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "planner/cost/plan_by_cost.h"
#include "planner/finish_plan.h"
#include "planner/plan_differences.h"
#include "planner/sources/check_plan.h"
#include "planner/sources/plan_by_row_space.h"
#include "planner/sources/plan_by_slices.h"
#include "planner/torchrec/plan_like_torchrec.h"

namespace hotbed {
namespace {

// What a strategy without costs fills first: the host memory of the server that is fullest for its
// size.
std::string FullestServer(const PlannerInput& input, const PlannerOutput& plan) {
  size_t fullest = 0;
  const auto used = [&](size_t s) { return absl::uint128(plan.servers[s].bytes.host); };
  const auto all = [&](size_t s) { return input.topology.servers[s].host_bytes; };
  for (size_t s = 1; s < plan.servers.size(); ++s) {
    if (used(s) * all(fullest) > used(fullest) * all(s)) fullest = s;
  }
  return absl::StrCat("host_bytes of ", plan.servers[fullest].name);
}

// The sources' strategies know neither capacities nor pins nor a current plan: their plans are
// checked when they are made, and compared with the current one.
PlanResult<PlannerOutput> PlanAsSource(const PlannerInput& input) {
  const PlannerStrategy strategy = input.options.strategy;
  const bool by_rows =
      strategy == PlannerStrategy::kFair || strategy == PlannerStrategy::kWholeFeature;
  PlanResult<PlannerOutput> plan = by_rows ? PlanByRowSpace(input) : PlanBySlices(input);
  if (!plan.ok()) return plan;
  FinishPlan(input, &plan.value());
  if (auto error = CheckSourcePlan(input, plan.value())) return *std::move(error);
  plan.value().cost.binding = FullestServer(input, plan.value());
  if (input.current) {
    plan.value().moves = PlanDifferences(*input.current, plan.value(),
                                         absl::StrCat("strategy ", plan.value().strategy));
  }
  return plan;
}

// It keeps to a current plan by itself, and its moves are those of a rebalance.
PlanResult<PlannerOutput> PlanAsCluster(const PlannerInput& input) {
  PlanResult<PlannerOutput> plan = PlanByCost(input);
  if (plan.ok()) FinishPlan(input, &plan.value());
  return plan;
}

PlanResult<PlannerOutput> PlanAsTorchrec(const PlannerInput& input) {
  PlanResult<PlannerOutput> plan = PlanLikeTorchrec(input);
  if (!plan.ok()) return plan;
  FinishPlan(input, &plan.value());
  if (input.current) {
    plan.value().moves = PlanDifferences(*input.current, plan.value(), "strategy torchrec");
  }
  return plan;
}

}  // namespace

PlanResult<PlannerOutput> ComputePlan(const PlannerInput& input) {
  if (auto error = ValidateInput(input)) return *std::move(error);
  switch (input.options.strategy) {
    case PlannerStrategy::kCost:
      return PlanAsCluster(input);
    case PlannerStrategy::kTorchrec:
      return PlanAsTorchrec(input);
    default:
      return PlanAsSource(input);
  }
}

}  // namespace hotbed
