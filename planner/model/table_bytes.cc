#include "planner/model/table_bytes.h"

#include <limits>

#include "planner/model/placement.h"
#include "planner/model/plan_names.h"

namespace hotbed {

uint64_t WeightBytes(PlannerWeight weight) {
  if (weight == PlannerWeight::kInt8) return 1;
  return weight == PlannerWeight::kFp32 ? 4 : 2;
}

uint64_t RowWeightBytes(const InputTable& table, uint32_t columns) {
  // An int8 row has scale and bias in addition to the weights (fused 8-bit row: 8 bytes).
  const uint64_t scale = table.weight == PlannerWeight::kInt8 ? 8 : 0;
  return WeightBytes(table.weight) * columns + scale;
}

uint64_t RowStateBytes(const InputTable& table, uint32_t columns) {
  OptimizerParams params;
  params.kind = table.optimizer;
  params.state_type = table.state_bf16 ? StateType::kBf16 : StateType::kFp32;
  return StateBytes(params, columns) + 4 * table.row_counters;
}

uint64_t RowBytes(const InputTable& table, uint32_t columns) {
  return RowWeightBytes(table, columns) + RowStateBytes(table, columns) +
         (table.hashed ? kHashedRowOverheadBytes : 0);
}

bool NeedsWholeRows(const InputTable& table) {
  return table.weight == PlannerWeight::kInt8 || TraitsOf(table.optimizer).needs_whole_row;
}

uint64_t RangeBytesOf(const InputTable& table, uint64_t row_first, uint64_t row_limit,
                      uint64_t row_bytes) {
  const absl::uint128 units = row_limit - row_first;
  absl::uint128 rows = units;
  if (table.hashed) rows = (absl::uint128(table.rows) * units + kHashBuckets - 1) / kHashBuckets;
  const absl::uint128 bytes = rows * row_bytes;
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  return bytes > kMax ? kMax : absl::Uint128Low64(bytes);
}

}  // namespace hotbed
