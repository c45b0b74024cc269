// Improves a placement, and for small problems finds the best one. Both count evaluations of a
// server that would hold other units, which is what bounds them (DECISIONS T2). Pure functions on a
// state; deterministic.
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

// Takes units off the slowest server, by a move to one of the fastest or a swap with one of theirs,
// as long as the slower of the two servers becomes faster than the slowest was and no zone conflict
// is added; stops at `target` ticks, without such a change, or when the budget is spent.
void ImproveSlowest(PlacementState& state, int64_t target, SearchBudget& budget);

// A placement's worth, less is better: zone conflicts, then the slowest server's ticks.
struct PlacementScore {
  uint64_t conflicts = 0;
  int64_t ticks = 0;
  friend auto operator<=>(const PlacementScore&, const PlacementScore&) = default;
};
PlacementScore ScoreOf(const PlacementState& state);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_LOCAL_SEARCH_H_
