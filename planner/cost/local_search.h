// Improves a placement. The search is bounded by the number of evaluations (of a server with a
// changed set of units), never by time, so that plans are equal on every machine. Pure functions on
// a state; deterministic.
#ifndef HOTBED_PLANNER_COST_LOCAL_SEARCH_H_
#define HOTBED_PLANNER_COST_LOCAL_SEARCH_H_

#include <cstdint>
#include <vector>

#include "planner/cost/placement_state.h"

namespace hotbed {

struct SearchBudget {
  uint64_t evaluations_max = 0;
  uint64_t evaluations = 0;
  bool Spent() const { return evaluations >= evaluations_max; }
};

// Takes units off the slowest server, by moves to the fastest servers, by exchanging a primary with
// its backup, or by swaps with the fastest servers' units, as long as both servers end up faster
// than the slowest was and no zone conflict is added. Stops at `target` ticks, when no such change
// exists, or when the budget is spent.
void ImproveSlowest(PlacementState& state, int64_t target, SearchBudget& budget);

// Two units that change places by two moves, one after the other.
struct SlowestSwap {
  uint32_t unit = kNobody;   // leaves the slowest server; kNobody: no swap helps
  uint32_t other = kNobody;  // comes from `server`
  uint32_t server = kNobody;
  bool other_first = false;  // the order in which each has room while it is at both ends
  int64_t slower = 0;        // ticks of the slower of both servers afterwards
};

// The swap that leaves the slower of its two servers the fastest, and moves the fewest bytes then:
// of units that are not `locked`, and of `bytes_max` together.
SlowestSwap FindSwap(PlacementState& state, const std::vector<bool>& locked, uint64_t bytes_max,
                     SearchBudget& budget);

// A placement's worth, less is better: zone conflicts, then the slowest server's ticks.
struct PlacementScore {
  uint64_t conflicts = 0;
  int64_t ticks = 0;
  friend auto operator<=>(const PlacementScore&, const PlacementScore&) = default;
};
PlacementScore ScoreOf(const PlacementState& state);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_LOCAL_SEARCH_H_
