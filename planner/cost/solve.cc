#include "planner/cost/solve.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "planner/cost/branch_search.h"
#include "planner/cost/greedy.h"
#include "planner/model/saturated.h"

namespace hotbed {
namespace {

void Clear(PlacementState& state) {
  for (uint32_t u = 0; u < state.problem().units.size(); ++u) {
    if (state.ServerOf(u) != kNobody) state.Remove(u);
  }
}

void Restore(PlacementState& state, const std::vector<uint32_t>& server_of) {
  Clear(state);
  for (uint32_t u = 0; u < server_of.size(); ++u) state.Place(u, server_of[u]);
}

std::vector<uint32_t> Placement(const PlacementState& state) {
  std::vector<uint32_t> server_of;
  for (uint32_t u = 0; u < state.problem().units.size(); ++u) {
    server_of.push_back(state.ServerOf(u));
  }
  return server_of;
}

// The bytes that the servers of a pinned set lack for the units pinned within it.
uint64_t MissingInSet(const Problem& problem, const AllowedServers& set) {
  absl::uint128 needed = 0;
  absl::uint128 room = 0;
  for (const uint32_t s : set.servers) room += problem.servers[s].capacity.Total();
  for (const Unit& unit : problem.units) {
    const AllowedServers& other = problem.allowed[unit.allowed];
    if (other.all) continue;
    const bool inside = std::all_of(other.servers.begin(), other.servers.end(),
                                    [&](uint32_t s) { return bool{set.holds[s]}; });
    if (inside) needed += unit.bytes;
  }
  return needed > room ? Saturated(needed - room) : 0;
}

std::optional<PlanError> PlaceSomehow(const PlannerInput& input, PlacementState& state,
                                      SearchBudget& budget) {
  const Problem& problem = state.problem();
  if (PlaceGreedily(state, GreedyOrder(problem, GreedyAim::kTime), GreedyAim::kTime) == kNobody) {
    return std::nullopt;
  }
  Clear(state);
  const uint32_t failed =
      PlaceGreedily(state, GreedyOrder(problem, GreedyAim::kRoom), GreedyAim::kRoom);
  if (failed == kNobody) return std::nullopt;
  PlanError error = NoRoomError(input, state, failed);
  if (problem.units.size() > kSmallUnits) return error;
  Clear(state);
  const PlacementScore worst{UINT64_MAX, INT64_MAX};
  const BranchResult result = SearchAll(state, worst, true, budget);
  if (!result.found) return error;
  Restore(state, result.server_of);
  return std::nullopt;
}

}  // namespace

PlanError NoRoomError(const PlannerInput& input, const PlacementState& state, uint32_t unit) {
  const Problem& problem = state.problem();
  const Unit& u = problem.units[unit];
  const std::string& name = input.tables[u.table].name;
  PlanError error;
  error.kind = PlanErrorKind::kInsufficientStorage;
  error.table = name;
  const AllowedServers& set = problem.allowed[u.allowed];
  const uint64_t in_set = set.all ? 0 : MissingInSet(problem, set);
  if (in_set > 0) {
    error.missing_bytes = in_set;
    error.message = absl::StrCat("table \"", name, "\" and others are pinned to ",
                                 set.servers.size(), " servers that have ", in_set,
                                 " bytes too little for them; pin to more servers, or add host or "
                                 "spill bytes there");
    return error;
  }
  uint64_t most_free = 0;
  uint64_t most_room = 0;
  uint32_t best = kNobody;
  for (uint32_t s = 0; s < problem.servers.size(); ++s) {
    if (!state.RulesAllow(unit, s)) continue;
    most_room = std::max(most_room, problem.servers[s].capacity.Total());
    if (best != kNobody && state.Free(s) <= most_free) continue;
    most_free = state.Free(s);
    best = s;
  }
  const std::string what =
      absl::StrCat("table \"", name, "\": ", u.shard_limit - u.shard_first,
                   u.role == Role::kPrimary ? " shards" : " shards of a replica",
                   " that stay together are ", u.bytes, " bytes");
  if (best == kNobody) {
    error.limit = 0;
    error.missing_bytes = u.bytes;
    error.message = absl::StrCat(what,
                                 ", and its pins, the hosts of its other replicas and the host "
                                 "that it is bound to leave no server for them; add a server "
                                 "on another host, or loosen these");
    return error;
  }
  const bool too_large = u.bytes > most_room;
  error.limit = too_large ? most_room : most_free;
  // A unit that would fit lacks all of its bytes: the units in its way cannot go elsewhere.
  error.missing_bytes = u.bytes > *error.limit ? u.bytes - *error.limit : u.bytes;
  error.message = absl::StrCat(
      what, ", the server with the most room ", too_large ? "at all" : "left",
      " among those that it may be on, ", input.topology.servers[best].name, ", has ", *error.limit,
      ": ", *error.missing_bytes,
      " bytes are missing there; add host or spill bytes or servers, or allow row_wise");
  return error;
}

std::optional<PlanError> SolveFromNothing(const PlannerInput& input, PlacementState& state,
                                          int64_t lower_bound) {
  SearchBudget budget;
  budget.evaluations_max = input.options.evaluations_max;
  std::optional<PlanError> error = PlaceSomehow(input, state, budget);
  if (error.has_value()) return error;
  const int64_t target = static_cast<int64_t>(static_cast<double>(lower_bound) * kCloseEnough);
  ImproveSlowest(state, target, budget);
  const PlacementScore score = ScoreOf(state);
  const bool close = score.conflicts == 0 && score.ticks <= target;
  if (close || state.problem().units.size() > kSmallUnits) return std::nullopt;
  const std::vector<uint32_t> before = Placement(state);
  Clear(state);
  const BranchResult result = SearchAll(state, score, false, budget);
  Restore(state, result.found ? result.server_of : before);
  return std::nullopt;
}

}  // namespace hotbed
