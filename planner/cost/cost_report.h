// A placement as the planner's output: ranges with their bytes, servers with theirs by tier, times
// by term, and what binds. Pure.
//
// Each shard is a range of its own (its edges are what a later rebalance must keep). Times of
// spilling (prefetch_ms) are the table's rows outside of the fastest memory by the classes of
// tier_load.h; message parts are half forward_comms and half backward_comms of a primary, all
// forward of a replica and all backward of a backup. A server's perf leaves out its load;
// max_server_ms counts it, over the servers that aren't draining.
#ifndef HOTBED_PLANNER_COST_COST_REPORT_H_
#define HOTBED_PLANNER_COST_COST_REPORT_H_

#include <cstdint>

#include "planner/cost/placement_state.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Fills strategy, tables, servers and cost. All units must be placed.
PlannerOutput ReportPlacement(const PlannerInput& input, const PlacementState& state,
                              int64_t lower_bound);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_COST_REPORT_H_
