// The best placement of a small problem. Pure, deterministic, bounded by evaluations (DECISIONS
// T2).
#ifndef HOTBED_PLANNER_COST_BRANCH_SEARCH_H_
#define HOTBED_PLANNER_COST_BRANCH_SEARCH_H_

#include <cstdint>
#include <vector>

#include "planner/cost/local_search.h"
#include "planner/cost/placement_state.h"

namespace hotbed {

struct BranchResult {
  bool complete = false;            // every placement was covered
  bool found = false;               // one better than `limit`
  std::vector<uint32_t> server_of;  // by unit
};

// Depth first over all placements, largest units first, cut off by the slowest server so far and by
// the average that remains; finds the best one that is better than `limit`. With `any`, the first
// one. Leaves the state empty, as it must find it.
BranchResult SearchAll(PlacementState& state, PlacementScore limit, bool any, SearchBudget& budget);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_BRANCH_SEARCH_H_
