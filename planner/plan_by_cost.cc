#include "planner/plan_by_cost.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "planner/cost/cost_report.h"
#include "planner/cost/lower_bound.h"
#include "planner/cost/problem.h"
#include "planner/cost/solve.h"
#include "planner/model/finish_plan.h"
#include "planner/model/validate_input.h"
#include "planner/rebalance/rebalance.h"

namespace hotbed {

PlanResult<PlannerOutput> PlanByCost(const PlannerInput& input) {
  PlanResult<Problem> built = BuildProblem(input);
  if (!built.ok()) return built.error();
  const Problem& problem = built.value();
  PlacementState state(problem);
  // The bound spreads all work over all servers; an unreachable server keeps its own part.
  const auto& servers = input.topology.servers;
  const bool all_reachable = std::none_of(servers.begin(), servers.end(),
                                          [](const InputServer& s) { return s.unreachable; });
  const int64_t lower_bound = all_reachable ? LowerBoundTicks(problem) : 0;
  if (input.current.has_value()) {
    PlanResult<std::vector<PlannedMove>> moves = Rebalance(input, state, lower_bound);
    if (!moves.ok()) return moves.error();
    PlannerOutput output = ReportPlacement(input, state, lower_bound);
    output.moves = std::move(moves.value());
    return output;
  }
  std::optional<PlanError> error = SolveFromNothing(input, state, lower_bound);
  if (error.has_value()) return *std::move(error);
  return ReportPlacement(input, state, lower_bound);
}

PlanResult<PlannerOutput> PlanCluster(const PlannerInput& input) {
  if (auto error = ValidateInput(input)) return *std::move(error);
  PlanResult<PlannerOutput> plan = PlanByCost(input);
  if (plan.ok()) FinishPlan(input, &plan.value());
  return plan;
}

}  // namespace hotbed
