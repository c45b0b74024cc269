// The dumb twin of the searches: every placement of a problem's units, by brute force with its own
// reading of the rules and of what a server spends. For problems of some dozen units at most.
#ifndef HOTBED_TESTS_PLANNER_EXHAUSTIVE_PLANNER_H_
#define HOTBED_TESTS_PLANNER_EXHAUSTIVE_PLANNER_H_

#include <cstdint>
#include <vector>

#include "planner/cost/problem.h"

namespace hotbed {

struct BestPlacement {
  bool feasible = false;
  uint64_t zone_conflicts = 0;  // pairs of members of a group in one known zone
  double ms = 0;                // of the slowest server
};

// The placement with the fewest zone conflicts, and the least time of the slowest server among
// these.
BestPlacement PlaceExhaustively(const Problem& problem);

// Milliseconds a step of `server` with `units` on it, from the definition in tier_load.h.
double ServerMs(const Problem& problem, uint32_t server, const std::vector<uint32_t>& units);

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLANNER_EXHAUSTIVE_PLANNER_H_
