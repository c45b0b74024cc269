#include "planner/compute_plan.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "common/tables/table_spec.h"
#include "planner/model/finish_plan.h"
#include "planner/model/moves.h"
#include "planner/model/validate_input.h"
#include "planner/plan_by_cost.h"
#include "planner/sources/check_plan.h"
#include "planner/sources/plan_by_row_space.h"
#include "planner/sources/plan_by_slices.h"
#include "planner/torchrec/plan_like_torchrec.h"

namespace hotbed {
namespace {

// The binding limit of a strategy without costs: the memory that is fullest for its size.
std::string Fullest(const PlannerInput& input, const PlannerOutput& plan) {
  std::string name;
  absl::uint128 used = 0;
  absl::uint128 all = 1;
  const auto look = [&](uint64_t bytes, uint64_t limit, const char* tier, size_t server) {
    if (bytes * all <= used * limit) return;
    used = bytes;
    all = limit;
    name = absl::StrCat(tier, " of ", plan.servers[server].name);
  };
  for (size_t s = 0; s < plan.servers.size(); ++s) {
    const InputServer& limits = input.topology.servers[s];
    look(plan.servers[s].bytes.device, limits.device_bytes, "device_bytes", s);
    look(plan.servers[s].bytes.host, limits.host_bytes, "host_bytes", s);
  }
  return name;
}

// Adds the moves from the current plan to `plan`, for strategies that place without regard to it.
PlanResult<PlannerOutput> WithMoves(const PlannerInput& input, PlannerOutput plan) {
  if (!input.current) return plan;
  PlanResult<std::vector<PlannedMove>> moves = MovesBetween(input, *input.current, plan);
  if (!moves.ok()) return moves.error();
  plan.moves = std::move(moves.value());
  return plan;
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
  plan.value().cost.binding = Fullest(input, plan.value());
  return WithMoves(input, std::move(plan.value()));
}

PlanResult<PlannerOutput> PlanAsTorchrec(const PlannerInput& input) {
  PlanResult<PlannerOutput> plan = PlanLikeTorchrec(input);
  if (!plan.ok()) return plan;
  FinishPlan(input, &plan.value());
  return WithMoves(input, std::move(plan.value()));
}

PlanResult<PlannerOutput> PlanAsAsked(const PlannerInput& input) {
  if (input.options.strategy == PlannerStrategy::kCost) return PlanCluster(input);
  if (auto error = ValidateInput(input)) return *std::move(error);
  return input.options.strategy == PlannerStrategy::kTorchrec ? PlanAsTorchrec(input)
                                                              : PlanAsSource(input);
}

// Why no table of a cluster may have this shape.
std::optional<PlanError> BeyondTables(const PlannerInput& input) {
  for (const InputTable& table : input.tables) {
    const bool wide = table.dim > kDimMax;
    if (!wide && table.replicas <= kReplicasMax) continue;
    PlanError error;
    error.kind = PlanErrorKind::kInput;
    error.table = table.name;
    error.limit = wide ? kDimMax : kReplicasMax;
    error.message = absl::StrCat("table '", table.name, "': ", wide ? "dim" : "replicas", " is ",
                                 wide ? table.dim : table.replicas, ", allowed: 1..", *error.limit,
                                 wide ? "; cut it into several tables" : "");
    return error;
  }
  return std::nullopt;
}

}  // namespace

// A table that fits nowhere is reported before one whose shape no table can have.
PlanResult<PlannerOutput> ComputePlan(const PlannerInput& input) {
  PlanResult<PlannerOutput> plan = PlanAsAsked(input);
  if (!plan.ok()) return plan;
  if (std::optional<PlanError> error = BeyondTables(input)) return *std::move(error);
  return plan;
}

}  // namespace hotbed
