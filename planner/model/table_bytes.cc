#include "planner/model/table_bytes.h"

#include <limits>

#include "planner/model/placement.h"

namespace hotbed {

uint64_t WeightBytes(PlannerWeight weight) {
  switch (weight) {
    case PlannerWeight::kFp32:
      return 4;
    case PlannerWeight::kFp16:
    case PlannerWeight::kBf16:
      return 2;
    case PlannerWeight::kInt8:
      return 1;
  }
  return 4;
}

uint64_t RowWeightBytes(const InputTable& table, uint32_t columns) {
  // An int8 row has scale and bias in addition to the weights (fused 8-bit row: 8 bytes).
  const uint64_t scale = table.weight == PlannerWeight::kInt8 ? 8 : 0;
  return WeightBytes(table.weight) * columns + scale;
}

namespace {

// Vectors of one element per column, and scalars per row.
struct OptimizerState {
  uint64_t vectors = 0;
  uint64_t numbers = 0;
};

OptimizerState StateOf(PlannerOptimizer optimizer) {
  switch (optimizer) {
    case PlannerOptimizer::kNone:
    case PlannerOptimizer::kSgd:
      return {0, 0};
    case PlannerOptimizer::kRowwiseAdagrad:
    case PlannerOptimizer::kRowwiseRmsprop:
      return {0, 1};
    case PlannerOptimizer::kMomentumSgd:
    case PlannerOptimizer::kAdagrad:
    case PlannerOptimizer::kLars:
    case PlannerOptimizer::kRmsprop:
      return {1, 0};
    case PlannerOptimizer::kPartialRowwiseAdam:
    case PlannerOptimizer::kPartialRowwiseLamb:
      return {1, 1};
    case PlannerOptimizer::kAdam:
    case PlannerOptimizer::kAdamW:
    case PlannerOptimizer::kLamb:
    case PlannerOptimizer::kFtrl:
      return {2, 0};
  }
  return {};
}

}  // namespace

uint64_t RowStateBytes(const InputTable& table, uint32_t columns) {
  const OptimizerState state = StateOf(table.optimizer);
  const uint64_t vectors = state.vectors * columns * (table.state_bf16 ? 2 : 4);
  return (vectors + 3) / 4 * 4 + 4 * (state.numbers + table.row_counters);
}

uint64_t RowBytes(const InputTable& table, uint32_t columns) {
  return RowWeightBytes(table, columns) + RowStateBytes(table, columns) +
         (table.hashed ? kHashedRowOverheadBytes : 0);
}

bool NeedsWholeRows(const InputTable& table) {
  if (table.weight == PlannerWeight::kInt8) return true;
  switch (table.optimizer) {
    case PlannerOptimizer::kRowwiseAdagrad:
    case PlannerOptimizer::kRowwiseRmsprop:
    case PlannerOptimizer::kPartialRowwiseAdam:
    case PlannerOptimizer::kPartialRowwiseLamb:
    case PlannerOptimizer::kLamb:
    case PlannerOptimizer::kLars:
      return true;
    default:
      return false;
  }
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
