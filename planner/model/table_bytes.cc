#include "planner/model/table_bytes.h"

#include <iterator>
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

namespace {

// The state of one row. A statistic of the row (its norm, or a number of its state) needs all of
// its columns.
struct OptimizerState {
  uint64_t vectors;  // of one element per column
  uint64_t numbers;
  bool of_whole_rows;
};

// By PlannerOptimizer.
constexpr OptimizerState kStates[] = {
    {0, 0, false},  // none
    {0, 0, false},  // sgd
    {1, 0, false},  // momentum_sgd
    {1, 0, false},  // adagrad
    {0, 1, true},   // rowwise_adagrad
    {2, 0, false},  // adam
    {2, 0, false},  // adamw
    {1, 1, true},   // partial_rowwise_adam
    {2, 0, true},   // lamb
    {1, 1, true},   // partial_rowwise_lamb
    {1, 0, true},   // lars
    {2, 0, false},  // ftrl
    {1, 0, false},  // rmsprop
    {0, 1, true},   // rowwise_rmsprop
    {1, 0, false},  // lion
    {2, 0, false},  // adadelta
};
static_assert(std::size(kStates) == std::size(kPlanWords<PlannerOptimizer>));

const OptimizerState& StateOf(const InputTable& table) {
  return kStates[static_cast<size_t>(table.optimizer)];
}

}  // namespace

uint64_t RowStateBytes(const InputTable& table, uint32_t columns) {
  const OptimizerState& state = StateOf(table);
  const uint64_t vectors = state.vectors * columns * (table.state_bf16 ? 2 : 4);
  return (vectors + 3) / 4 * 4 + 4 * (state.numbers + table.row_counters);
}

uint64_t RowBytes(const InputTable& table, uint32_t columns) {
  return RowWeightBytes(table, columns) + RowStateBytes(table, columns) +
         (table.hashed ? kHashedRowOverheadBytes : 0);
}

bool NeedsWholeRows(const InputTable& table) {
  return table.weight == PlannerWeight::kInt8 || StateOf(table).of_whole_rows;
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
