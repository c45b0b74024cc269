// Where the shards of a problem are in the input's current plan. Pure.
#ifndef HOTBED_PLANNER_REBALANCE_CURRENT_PLACEMENT_H_
#define HOTBED_PLANNER_REBALANCE_CURRENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/cost/problem.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// Of each unit.
struct CurrentUnit {
  bool is_new = false;        // of a table that the current plan doesn't have
  uint32_t server = kNobody;  // all of its shards are there
  // Else, where the shards are, one by one: kNobody for the ones that are nowhere.
  std::vector<uint32_t> shard_servers;
  std::string gone;  // the server that is gone with it; empty: none
};

// A primary keeps its server, or takes that of a backup where its own is gone; the backups keep
// theirs as far as there are copies wanted.
std::vector<CurrentUnit> CurrentUnits(const PlannerInput& input, const Problem& problem);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REBALANCE_CURRENT_PLACEMENT_H_
