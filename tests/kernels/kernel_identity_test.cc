// Every kernel of every instruction set against scalar formulas, and the sets against each other,
// to the bit: row values, wire rows, index, CLOCK and dirty bits.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "common/random.h"
#include "server/kernels/cpu_kernels.h"
#include "tests/common/sanitized.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/kernel_run.h"

namespace hotbed {
namespace kernel_identity_test {

// Every dim for the kinds whose way is compiled by dim (under a sanitizer those around whole
// vectors), else those around the blocks.
std::vector<uint32_t> DimsOf(OptimizerKind kind) {
  if (!HasShortWay(kind)) return {1, 2, 7, 31, 32, 33, 64, 95, 1000};
  std::vector<uint32_t> dims;
  for (uint32_t dim = 1; dim <= 70; ++dim) {
    if (!kSanitized || (dim + 1) % 8 <= 2) dims.push_back(dim);
  }
  dims.insert(dims.end(), {128, 1000});
  return dims;
}

// One run of each set; all must leave the same memory, which is the twin's.
void CompareSets(const TableSpec& spec, Way way, uint64_t seed, float gradient_scale) {
  const CpuKernelSets sets = AvailableCpuKernelSets();
  Bytes first;
  for (int s = 0; s < sets.count; ++s) {
    SCOPED_TRACE(::testing::Message()
                 << sets.sets[s]->name << ", dim " << spec.dim << ", way " << int(way)
                 << ", initializer " << int(spec.initializer.kind));
    const Bytes trace = KernelRun(*sets.sets[s], spec, way, seed, gradient_scale).Trace();
    if (s == 0) first = trace;
    ASSERT_TRUE(trace == first) << "memory differs from that of " << sets.sets[0]->name;
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<OptimizerKind> AllKinds() {
  std::vector<OptimizerKind> kinds;
  for (int k = 0; k <= static_cast<int>(kLastOptimizerKind); ++k) {
    kinds.push_back(static_cast<OptimizerKind>(k));
  }
  return kinds;
}

class KernelIdentityTest : public ::testing::TestWithParam<std::tuple<OptimizerKind, WeightType>> {
};

TEST_P(KernelIdentityTest, EverySetComputesTheScalarBits) {
  const TestSeed seed(20260214);
  TableSpec spec;
  spec.optimizer.kind = std::get<0>(GetParam());
  spec.weight_type = std::get<1>(GetParam());
  spec.optimizer.weight_decay = 0.01f;
  spec.optimizer.initial_accumulator = 0.1f;
  spec.seed = 99;
  for (uint32_t dim : DimsOf(spec.optimizer.kind)) {
    for (Way way : {Way::kDirect, Way::kIndexed, Way::kHashed}) {
      spec.dim = dim;
      spec.hashed = way == Way::kHashed;
      spec.initializer = {static_cast<InitializerKind>((dim + int(way)) % 6), 0.25f, 0.75f};
      CompareSets(spec, way, seed.value() + dim, 1.0f);
      if (HasFailure()) return;
    }
  }
}

// All options of a step, each on in about half of the cases.
TEST_P(KernelIdentityTest, EverySetComputesTheScalarBitsWithOptions) {
  const TestSeed seed(20260215);
  Random random(seed.value() + 100 * static_cast<int>(std::get<0>(GetParam())));
  TableSpec spec;
  spec.seed = 77;
  spec.weight_type = std::get<1>(GetParam());
  OptimizerParams& o = spec.optimizer;
  o.kind = std::get<0>(GetParam());
  o.initial_accumulator = 0.1f;
  for (int turn = 0; turn < 24 && !HasFailure(); ++turn) {
    const auto some = [&](float value) { return random.OneIn(2) ? value : 0.0f; };
    spec.dim = static_cast<uint32_t>(random.OneIn(3) ? 32 * (1 + random.Uniform(4))
                                                     : 1 + random.Uniform(200));
    o.weight_decay = some(0.05f);
    o.l1 = some(0.3f);
    o.l2 = some(0.2f);
    o.clip_value = some(0.6f);
    o.clip_row_norm = some(0.9f);
    o.max_norm = some(1.5f);
    o.decay_mode = random.OneIn(2) ? DecayMode::kL2 : DecayMode::kDecoupled;
    o.lazy_decay = random.OneIn(2);
    o.lazy_decay_least = some(0.999f);
    o.max_norm_type = static_cast<float>(random.Uniform(4));
    o.counter.mode = static_cast<CounterMode>(random.Uniform(6));
    o.counter.half_life = some(2.5f);
    o.counter.from_step = random.OneIn(2) ? 3 : 0;
    o.counter.threshold = some(2.0f);
    o.counter.most = 6;
    o.counter.power = random.OneIn(2) ? 0.3f : 1.5f;
    o.counter.clip_coefficient = some(0.1f);
    o.counter.clip_least = some(0.05f);
    o.row_bias_correction = random.OneIn(2);
    o.average = {spec.dim % 2 == 0 ? some(0.4f) : 0.0f, 1 + random.Uniform(2), random.Uniform(4)};
    o.stochastic_rounding = random.OneIn(2);
    o.state_type = random.OneIn(2) ? StateType::kFp32 : StateType::kBf16;
    spec.initializer = {InitializerKind::kUniform, -0.5f, 0.5f};
    const Way way = static_cast<Way>(turn % 3);
    spec.hashed = way == Way::kHashed;
    SCOPED_TRACE(::testing::Message() << "turn " << turn);
    CompareSets(spec, way, seed.value() + turn, random.OneIn(2) ? 0.25f : 1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelIdentityTest,
                         ::testing::Combine(::testing::ValuesIn(AllKinds()),
                                            ::testing::Values(WeightType::kFp32, WeightType::kFp16,
                                                              WeightType::kBf16)));

}  // namespace kernel_identity_test
}  // namespace hotbed
