// Assigns slices to workers: basic, memory_balanced and memory_optimized of NVIDIA's
// distributed_embeddings (dist_model_parallel.py: apply_strategy, _merge_slices), to the letter.
// Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_PLACE_SLICES_H_
#define HOTBED_PLANNER_SOURCES_PLACE_SLICES_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_input.h"

namespace hotbed {

// One slice of a table, `size` in elements.
struct TableSlice {
  uint64_t size = 0;
  uint32_t table = 0;
};

// For each worker the tables of its slices, in the order in which it got them; a table appears once
// per slice. `slices` are in the order of their tables.
// - basic: worker i takes slices i, i + workers, ...
// - memory_balanced: of the slices by size, largest first (equal ones: larger table first), worker
//   i takes every 2 x workers-th from i on, then every one from 2 x workers - 1 - i on.
// - memory_optimized: the largest slice (equal ones: larger table first) goes to the first of the
//   workers in the order of their load, equal loads in the order of their lists; the result is in
//   that order too, not in the original order of the workers.
// Other strategies must not be passed.
std::vector<std::vector<uint32_t>> PlaceSlices(PlannerStrategy strategy, uint32_t workers,
                                               const std::vector<TableSlice>& slices);

// The columns of a table that one worker has: all of its slices there merged into one.
struct MergedSlice {
  uint32_t table = 0;
  uint32_t column_first = 0;
  uint32_t column_limit = 0;
  friend bool operator==(const MergedSlice&, const MergedSlice&) = default;
};

// For each worker its tables once each, in the order in which they first appear in its list of
// `placed`. The widths of a table's slices (`widths`, by table) are dealt out in the order of the
// workers, and the columns are laid out in that order. Widths are kept, not derived from the number
// of holders as in the source, whose set_weights therefore reads a table's columns from the wrong
// place.
std::vector<std::vector<MergedSlice>> MergeSlices(const std::vector<std::vector<uint32_t>>& placed,
                                                  const std::vector<std::vector<uint32_t>>& widths);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_PLACE_SLICES_H_
