// The placements of two sources, to the letter:
// - basic, memory_balanced, memory_optimized: NVIDIA's distributed_embeddings. Tables are copied to
//   all servers, cut by rows over all servers, or cut by columns, by their thresholds; column
//   slices are placed by the strategy, and merged where they meet. With one server the strategy is
//   basic, and nothing is copied or cut by rows. `strict`: every server must get a slice.
// - column_even: the TPU notebook's column slicing. Each server owns an equal range of the columns
//   of every table; the remainder goes to the first servers, or is refused with `strict`.
// With device cuda, a server with device_bytes has its tables there. The largest of those that are
// not copied or cut by rows are offloaded to host memory until the rest fits (the source's
// gpu_embedding_size, in bytes); the kernel of such a range is "offloaded". Unlike the sources,
// this is right about shared tables and merged widths (see place_slices.h). Pure; safe from any
// thread.
#ifndef HOTBED_PLANNER_SOURCES_PLAN_BY_SLICES_H_
#define HOTBED_PLANNER_SOURCES_PLAN_BY_SLICES_H_

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Fills in ranges, strategy and fused groups of a plan, for FinishPlan. `input` must be valid, and
// its strategy one of the four. A data-parallel table has its primary on server (its index among
// those tables) mod servers, and replicas on the others. Errors: strict_constraints if a table
// whose optimizer needs whole rows would be cut by columns, and for plans that `strict` refuses.
PlanResult<PlannerOutput> PlanBySlices(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_PLAN_BY_SLICES_H_
