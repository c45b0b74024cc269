// What rows weigh in a plan (DECISIONS P7): weights, optimizer state and overhead. Pure functions.
#ifndef HOTBED_PLANNER_MODEL_TABLE_BYTES_H_
#define HOTBED_PLANNER_MODEL_TABLE_BYTES_H_

#include <cstdint>

#include "absl/numeric/int128.h"
#include "planner/model/planner_input.h"

namespace hotbed {

// Index and eviction byte of a resident row that is found by hashing (DESIGN section 5 allows 20;
// measured by tests/tiers). Rows of bounded ranges are found in a slot array of the server's own
// overhead.
constexpr uint64_t kHashedRowOverheadBytes = 14;

// Bytes of one weight.
uint64_t WeightBytes(PlannerWeight weight);

// Weight bytes of a row of `columns` elements.
uint64_t RowWeightBytes(const InputTable& table, uint32_t columns);

// Bytes of optimizer state of a row of `columns` elements: as the servers store them
// (row_math/types.h: StateLayout).
uint64_t RowStateBytes(const InputTable& table, uint32_t columns);

// Weights, optimizer state and overhead of a row of `columns` elements.
uint64_t RowBytes(const InputTable& table, uint32_t columns);

// Whether the optimizer or the weight type needs statistics of the whole row, so that columns must
// not be cut unless the table says row_statistics=slice (DECISIONS P5).
bool NeedsWholeRows(const InputTable& table);

// Rows that `range` of a table stands for, times `row_bytes`; of a hashed table the share of its
// expected rows, rounded up. Saturates at 2^64 - 1.
uint64_t RangeBytesOf(const InputTable& table, uint64_t row_first, uint64_t row_limit,
                      uint64_t row_bytes);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_TABLE_BYTES_H_
