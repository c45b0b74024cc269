#include "planner/plan_by_cost.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "planner/cost/cost_report.h"
#include "planner/cost/local_search.h"
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
  LowerBound bound = all_reachable ? LowerBoundOf(problem, /*zones=*/true) : LowerBound();
  std::vector<PlannedMove> moves;
  if (input.current.has_value()) {
    PlanResult<std::vector<PlannedMove>> made = Rebalance(input, state, bound.ticks);
    if (!made.ok()) return made.error();
    moves = std::move(made.value());
  } else {
    std::optional<PlanError> error = SolveFromNothing(input, state, bound.ticks);
    if (error.has_value()) return *std::move(error);
  }
  // Where two replicas share a zone after all, another placement may too, and be faster.
  if (bound.part == LowerBound::Part::kZones && ScoreOf(state).conflicts > 0) {
    bound = LowerBoundOf(problem, /*zones=*/false);
  }
  PlannerOutput output = ReportPlacement(input, state, bound);
  output.moves = std::move(moves);
  return output;
}

PlanResult<PlannerOutput> PlanCluster(const PlannerInput& input) {
  if (auto error = ValidateInput(input)) return *std::move(error);
  PlanResult<PlannerOutput> plan = PlanByCost(input);
  if (plan.ok()) FinishPlan(input, &plan.value());
  return plan;
}

}  // namespace hotbed
