// A time that no placement can beat; the reported gap is measured against it. Pure.
//
// The largest of these bounds; each holds for every placement of the same shards that keeps the
// rules.
// 1. Work over the servers. The time W of all units with all rows in the fastest memory, and the
//    least that spilling can cost, P: all memory as one, filled by the hottest rows first, a
//    fractional knapsack over the exact heat of the entries; the cost of leaving device memory and
//    that of leaving all memory are each bounded alone. With loads l_s, no slowest time T is below
//    the one at which
//      sum over usable servers of min(max(0, T - l_s), C_s) = W + P,
//    where C_s is the most time that the room of s can take: a fractional knapsack of the units by
//    time per byte, plus the most that spilling could ever cost.
// 2. The same for each set of servers that units are pinned to, with the units pinned within it
//    (without P, and for the first 64 distinct sets only).
// 3. Large units: of the k n + 1 largest units some server among n has k + 1, so at least the k + 1
//    smallest of these, k = 1 .. 8, plus the least load.
// 4. The largest unit, on the allowed server with the least load.
// 5. The largest load of a usable server.
// 6. Replicas apart: a group of c replicas has at most one on each host, so at least c - j of them
//    lie outside of any j hosts. Outside of the j hosts with the most servers, for each j below the
//    largest c, the c - j least replicas of each group are spread over the servers as in 1.
// 7. The same for zones, where the placement has no two replicas of a group in one zone. A server
//    of unknown zone is a zone of its own.
#ifndef HOTBED_PLANNER_COST_LOWER_BOUND_H_
#define HOTBED_PLANNER_COST_LOWER_BOUND_H_

#include <cstdint>
#include <vector>

#include "planner/cost/problem.h"

namespace hotbed {

struct LowerBound {
  enum class Part : uint8_t { kWork, kHosts, kZones };
  int64_t ticks = 0;              // rounded down; 0: none is known
  Part part = Part::kWork;        // kHosts, kZones: parts 6 and 7 are above the others
  std::vector<uint32_t> servers;  // of parts 6 and 7: those that are left for the replicas
};

// `zones`: only for placements without zone conflicts.
LowerBound LowerBoundOf(const Problem& problem, bool zones);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_LOWER_BOUND_H_
