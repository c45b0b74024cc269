// Whether the primary ranges of a table cover each of its elements exactly once. Pure; safe from
// any thread.
#ifndef HOTBED_PLANNER_MODEL_TILING_H_
#define HOTBED_PLANNER_MODEL_TILING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/model/planner_output.h"

namespace hotbed {

// The fault in the tiling of [0, rows) x [0, columns) by the primaries among `ranges`, in words, or
// nullopt. For a hashed table `rows` are buckets. O(n log n) in the ranges.
std::optional<std::string> TilingFault(const std::vector<PlacedRange>& ranges, uint64_t rows,
                                       uint32_t columns);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_TILING_H_
