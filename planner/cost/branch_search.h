// The best placement of a small problem. Pure and deterministic; bounded by a number of
// evaluations, never by time.
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

// Searches all placements depth first, largest units first, pruned by the slowest server so far and
// by the average that remains. Finds the best placement better than `limit`; with `any`, the first
// one. `state` must be empty, and is left empty.
BranchResult SearchAll(PlacementState& state, PlacementScore limit, bool any, SearchBudget& budget);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_BRANCH_SEARCH_H_
