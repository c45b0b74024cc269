// A placement as the planner's output: ranges with their bytes, servers with their bytes by tier,
// times by term, and the binding limit. Pure.
//
// Each shard is a range of its own, because a later rebalance must keep its edges. Times of
// spilling (prefetch_ms) are those of the table's rows outside of the fastest memory, by the
// classes of tier_load.h. Message parts count half as forward_comms and half as backward_comms for
// a primary, all forward for a replica and all backward for a backup. A server's perf leaves out
// its load; max_server_ms includes it and is over the servers that are not draining. The binding
// limit begins with "zones of the replicas: " (or hosts) if the slowest server is one of those that
// the rule leaves for replicas, and the rule gives the lower bound.
#ifndef HOTBED_PLANNER_COST_COST_REPORT_H_
#define HOTBED_PLANNER_COST_COST_REPORT_H_

#include <cstdint>

#include "planner/cost/lower_bound.h"
#include "planner/cost/placement_state.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Fills strategy, tables, servers and cost. All units must be placed.
PlannerOutput ReportPlacement(const PlannerInput& input, const PlacementState& state,
                              const LowerBound& bound);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_COST_REPORT_H_
