// The placements of two sources, to the letter:
// - basic, memory_balanced, memory_optimized: NVIDIA's distributed_embeddings. Tables are copied to
//   all servers, cut by rows over all servers, or cut by columns, by their thresholds; column
//   slices are placed by the strategy, and merged where they meet. With one server the strategy is
//   basic, and nothing is copied or cut by rows. `strict`: every server must get a slice.
// - column_even: the TPU notebook's column slicing. Each server owns an equal range of the columns
//   of every table; what remains goes to the first servers, or with `strict` is refused.
// With device cuda, a server with device_bytes has its tables there, but for the largest of those
// that are not copied or cut by rows, which are offloaded to host memory until the rest fits (the
// source's gpu_embedding_size, in bytes); the kernel of such a range is "offloaded".
// Where a source is wrong about shared tables or merged widths, this is right (see place_slices.h).
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_PLAN_BY_SLICES_H_
#define HOTBED_PLANNER_SOURCES_PLAN_BY_SLICES_H_

#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Ranges, strategy and fused groups of a plan, for FinishPlan; `input` must be valid, its strategy
// one of the four. A data-parallel table has its primary on server (its place among those tables)
// mod servers, and replicas on the others (DECISIONS P6). Errors: strict_constraints where a table
// whose optimizer needs whole rows would be cut by columns (DECISIONS P5), and what `strict`
// refuses.
PlanResult<PlannerOutput> PlanBySlices(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_PLAN_BY_SLICES_H_
