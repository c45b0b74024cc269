// The bytes of rows in a plan: weights, optimizer state and overhead. Pure functions.
#ifndef HOTBED_PLANNER_MODEL_TABLE_BYTES_H_
#define HOTBED_PLANNER_MODEL_TABLE_BYTES_H_

#include <cstdint>

#include "absl/numeric/int128.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// Index entry and eviction byte of a resident row that is found by hashing (measured by
// tests/tiers; at most 20 are allowed). Rows of bounded ranges are found by a slot array, which is
// part of the server's own overhead.
constexpr uint64_t kHashedRowOverheadBytes = 14;

// Bytes of one weight.
uint64_t WeightBytes(PlannerWeight weight);

// Weight bytes of a row of `columns` elements.
uint64_t RowWeightBytes(const InputTable& table, uint32_t columns);

// Bytes of optimizer state of a row of `columns` elements, as the servers store it (StateLayout in
// row_math/types.h).
uint64_t RowStateBytes(const InputTable& table, uint32_t columns);

// Weights, optimizer state and overhead of a row of `columns` elements.
uint64_t RowBytes(const InputTable& table, uint32_t columns);

// Whether the optimizer or the weight type needs statistics of the whole row. Columns of such a
// table are cut only if it says row_statistics=slice.
bool NeedsWholeRows(const InputTable& table);

// The rows of a table's range times `row_bytes`; for a hashed table its share of the expected rows,
// rounded up. Saturates at 2^64 - 1.
uint64_t RangeBytesOf(const InputTable& table, uint64_t row_first, uint64_t row_limit,
                      uint64_t row_bytes);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_TABLE_BYTES_H_
