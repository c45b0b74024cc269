// Decides which tables are copied, cut by rows or cut by columns, and how wide column slices are:
// the rules of NVIDIA's distributed_embeddings (dist_model_parallel.py: init_table_groups,
// maybe_slice_table_column, create_col_sliced_configs), to the letter. Sizes are elements (rows x
// dim), below 2^63. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_SLICE_COLUMNS_H_
#define HOTBED_PLANNER_SOURCES_SLICE_COLUMNS_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace hotbed {

enum class TableGroup : uint8_t { kDataParallel, kColumn, kRow };

// Data-parallel at or under data_parallel_threshold, else row-sliced at or above
// row_slice_threshold, else by columns. A threshold that is absent or 0 is off.
TableGroup GroupOf(uint64_t size, std::optional<uint64_t> data_parallel_threshold,
                   std::optional<uint64_t> row_slice_threshold);

// The default threshold for tables of `sizes` on more `workers` than tables. As long as there are
// fewer pieces than workers, the largest is halved (rounded down); the threshold is the last size
// before halving, minus one. It then applies to every table, so that there may be more slices than
// workers. nullopt with at least as many tables as workers, or no tables. -1 once pieces without
// elements are halved, where the source would never end.
std::optional<int64_t> AutomaticColumnThreshold(const std::vector<uint64_t>& sizes,
                                                uint32_t workers);

// The widths of the slices of a table, which add up to `dim`. Their number doubles, from 1, while
// the size divided by it is above the threshold (in doubles, so without rounding down); it is at
// most `workers` and at most `dim`. The first dim % number of them are one column wider.
std::vector<uint32_t> SliceWidths(uint64_t rows, uint32_t dim, std::optional<int64_t> threshold,
                                  uint32_t workers);

// Sizes of `parts` parts of `whole`: the first whole % parts of them are one larger.
std::vector<uint64_t> EvenParts(uint64_t whole, uint32_t parts);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_SLICE_COLUMNS_H_
