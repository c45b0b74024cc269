// A table cut by columns is the same table, to the bit, for every optimizer that works element by
// element: a slice's columns are those of the table, also in what is drawn at random.
#include <gtest/gtest.h>

#include <vector>

#include "common/random.h"
#include "row_math/optimizer.h"
#include "server/kernels/cpu_kernels.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/kernel_rows.h"

namespace hotbed {
namespace column_slices_test {

constexpr uint32_t kDim = 100;
constexpr uint32_t kRows = 30;
constexpr uint64_t kSteps = 6;

// Weights of all rows after kSteps pushes to columns [first, first + width).
std::vector<Bytes> Trained(const CpuKernelSet& set, TableSpec spec, uint32_t first, uint32_t width,
                           const std::vector<std::vector<float>>& gradients) {
  spec.dim = width;
  KernelRows rows(spec, first, /*direct=*/true);
  std::vector<uint64_t> positions;
  std::vector<uint32_t> slots;
  const std::vector<const uint8_t*> sources(kRows, nullptr);
  for (uint32_t slot = 0; slot < kRows; ++slot) {
    slots.push_back(slot);
    positions.push_back(KernelRows::kFirst + slot);
  }
  InsertBatch insert;
  insert.table = &rows.table;
  insert.positions = positions.data();
  insert.slots = slots.data();
  insert.sources = sources.data();
  insert.count = kRows;
  set.insert(&insert);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    std::vector<const uint8_t*> pointers;
    for (uint32_t r = 0; r < kRows; ++r) {
      pointers.push_back(
          reinterpret_cast<const uint8_t*>(gradients[(step - 1) * kRows + r].data() + first));
    }
    ApplyBatch apply;
    apply.table = &rows.table;
    apply.slots = slots.data();
    apply.count = kRows;
    apply.gradients = pointers.data();
    apply.scalars = ResolveScalars(spec.optimizer, 0.05f, 3 * step);
    set.apply(&apply);
  }
  std::vector<Bytes> weights;
  for (uint32_t slot = 0; slot < kRows; ++slot) {
    weights.push_back(rows.RowAt(slot));
    weights.back().resize(rows.table.weight_bytes);
  }
  return weights;
}

class ColumnSlicesTest : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(ColumnSlicesTest, ChangeNoBit) {
  const TestSeed seed(20260305);
  Random random(seed.value());
  std::vector<std::vector<float>> gradients(kSteps * kRows, std::vector<float>(kDim));
  for (auto& gradient : gradients) {
    for (float& g : gradient) g = static_cast<float>(random.Double() * 2 - 1);
  }
  TableSpec spec;
  spec.seed = seed.value();
  spec.initializer = {InitializerKind::kUniform, -0.1f, 0.1f};
  OptimizerParams& o = spec.optimizer;
  o.kind = GetParam();
  o.weight_decay = 0.1f;
  o.decay_mode = DecayMode::kDecoupled;
  o.lazy_decay = true;
  o.row_bias_correction = true;
  o.stochastic_rounding = true;
  o.clip_value = 0.7f;
  const CpuKernelSets sets = AvailableCpuKernelSets();
  for (WeightType type : {WeightType::kFp32, WeightType::kFp16, WeightType::kBf16}) {
    spec.weight_type = type;
    ASSERT_FALSE(NeedsRowStatistics(o));
    const std::vector<Bytes> whole = Trained(*sets.sets[0], spec, 0, kDim, gradients);
    std::vector<Bytes> joined(kRows);
    uint32_t first = 0;
    for (uint32_t width : {1u, 34u, 33u, 32u}) {
      const std::vector<Bytes> part =
          Trained(*sets.sets[sets.count - 1], spec, first, width, gradients);
      for (uint32_t r = 0; r < kRows; ++r) Append(&joined[r], part[r].data(), part[r].size());
      first += width;
    }
    ASSERT_EQ(first, kDim);
    EXPECT_EQ(joined, whole) << "weights of type " << static_cast<int>(type);
  }
}

INSTANTIATE_TEST_SUITE_P(ElementWise, ColumnSlicesTest,
                         ::testing::Values(OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                                           OptimizerKind::kAdam, OptimizerKind::kMomentumSgd,
                                           OptimizerKind::kAdamW, OptimizerKind::kFtrl,
                                           OptimizerKind::kRmsProp, OptimizerKind::kLion,
                                           OptimizerKind::kAdadelta, OptimizerKind::kAmsGrad));

}  // namespace column_slices_test
}  // namespace hotbed
