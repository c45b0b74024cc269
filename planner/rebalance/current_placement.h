// The servers of a problem's shards in the input's current plan. Pure.
#ifndef HOTBED_PLANNER_REBALANCE_CURRENT_PLACEMENT_H_
#define HOTBED_PLANNER_REBALANCE_CURRENT_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/cost/problem.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// The current servers of one unit.
struct CurrentUnit {
  bool is_new = false;        // the current plan lacks its table
  uint32_t server = kNobody;  // the server of all of its shards
  // Otherwise the server of each shard; kNobody: it is nowhere.
  std::vector<uint32_t> shard_servers;
  std::string gone;  // its server, if that is gone; else empty
};

// A primary keeps its server, or takes that of a backup if its own is gone. Backups keep theirs, up
// to the number of replicas wanted.
std::vector<CurrentUnit> CurrentUnits(const PlannerInput& input, const Problem& problem);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_REBALANCE_CURRENT_PLACEMENT_H_
