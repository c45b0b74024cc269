// Completes plans: a strategy fills in the ranges and the fields that only it knows, and this fills
// in the fields that every plan has. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_MODEL_FINISH_PLAN_H_
#define HOTBED_PLANNER_MODEL_FINISH_PLAN_H_

#include <cstdint>

#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// Elements of `range`; for a hashed table, those of its share of the expected rows, rounded up.
uint64_t ElementsOf(const InputTable& table, const PlacedRange& range);

// Sets elements, weight_bytes and bytes of `range` from its rows and columns.
void MeasureRange(const InputTable& table, PlacedRange* range);

// Completes `plan`, whose tables must be those of the input in its order:
// - the strategy's name and the servers' names, where there are none;
// - ranges sorted by server, rows, columns; elements and bytes of those that have no elements yet;
// - elements and bytes of the servers, all bytes in host memory unless the strategy has set bytes;
// - fused groups: on each server the tables with primaries there, in the input's order, by equal
//   width and combiner (a view only, nothing is stored that way); basic, memory_*, fair and
//   whole_feature set their own;
// - the features' outputs in the input's order, and the context hash.
void FinishPlan(const PlannerInput& input, PlannerOutput* plan);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_FINISH_PLAN_H_
