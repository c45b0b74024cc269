// Every optimizer with every option against formulas in double precision, and the rules at the
// edges: zero norms, first touches, slow trainers, overflowing norms.
#include "row_math/row_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/row_math/optimizer_twin.h"
#include "tests/row_math/row_under_test.h"

namespace hotbed {
namespace row_update_test {

// The largest error of rounding a weight, relative to the weight or to 1.
float Precision(WeightType type) {
  return type == WeightType::kFp32 ? 1e-6f : type == WeightType::kFp16 ? 1.0f / 1024 : 1.0f / 128;
}

OptimizerParams RandomParams(OptimizerKind kind, Random* random) {
  const auto some = [&](float value) { return random->OneIn(2) ? value : 0.0f; };
  OptimizerParams o;
  o.kind = kind;
  o.epsilon = random->OneIn(2) ? 1e-3f : 1e-6f;
  // No ratio of small numbers: Lion's sum of two gradients would be zero but for rounding.
  o.beta1 = 0.83f;
  o.beta2 = 0.947f;
  o.weight_decay = some(0.1f);
  o.initial_accumulator = some(0.5f);
  o.momentum = some(0.9f);
  o.trust_coefficient = 0.02f;
  o.l1 = some(0.2f);
  o.l2 = some(0.3f);
  o.ftrl_beta = random->OneIn(2) ? 1.0f : 0.25f;
  o.clip_value = some(0.7f);
  o.clip_row_norm = some(1.5f);
  o.max_norm = some(2.0f);
  if (o.max_norm > 0) {
    constexpr float kNorms[] = {0, 1, 1.5f, 2, 3, 17};
    o.max_norm_type = kNorms[random->Uniform(6)];
  }
  o.decay_mode = random->OneIn(2) ? DecayMode::kL2 : DecayMode::kDecoupled;
  o.lazy_decay = random->OneIn(2);
  o.lazy_decay_least = some(0.99f);
  o.row_bias_correction = random->OneIn(2);
  o.counter.mode = static_cast<CounterMode>(random->Uniform(6));
  o.counter.half_life = some(3.5f);
  o.counter.from_step = random->OneIn(2) ? 4 : 0;
  o.counter.threshold = some(1.4f);
  o.counter.most = 5;
  o.counter.power = random->OneIn(2) ? 0.7f : 1.0f;
  o.counter.clip_coefficient = some(0.3f);
  o.counter.clip_least = 0.1f;
  return o;
}

class RowUpdateTest : public ::testing::TestWithParam<int> {
 protected:
  OptimizerKind kind() const { return static_cast<OptimizerKind>(GetParam()); }
};

TEST_P(RowUpdateTest, AgreesWithDoublePrecision) {
  const TestSeed seed(20260301 + GetParam());
  Random random(seed.value());
  const auto draw = [&] { return static_cast<float>(random.Double() * 2 - 1); };
  for (uint32_t dim = 1; dim <= 200 && !HasFailure(); ++dim) {
    RowUnderTest row(RandomParams(kind(), &random), static_cast<WeightType>(random.Uniform(3)),
                     dim);
    row.plan.gradient_type = static_cast<RowType>(random.Uniform(3));
    Vector64 weights;
    for (uint32_t i = 0; i < dim; ++i) row.SetWeight(i, draw());
    for (uint32_t i = 0; i < dim; ++i) weights.push_back(row.weight(i));
    OptimizerTwin twin(row.plan.params, weights);
    const float lr = random.OneIn(2) ? 0.02f : 0.05f;  // errors of d / sqrt(v) grow with it
    const float scale = random.OneIn(2) ? 1.0f : 0.5f;
    uint64_t step = 0;
    for (int turn = 1; turn <= 5; ++turn) {
      step += 1 + random.Uniform(4);
      std::vector<float> gradient;
      for (uint32_t i = 0; i < dim; ++i) {
        uint8_t wire[4];
        StoreAs(row.plan.gradient_type, wire, 0, draw());
        gradient.push_back(LoadAs(row.plan.gradient_type, wire, 0));
      }
      UpdateScalars scalars = ResolveScalars(row.plan.params, lr, step);
      scalars.gradient_scale = scale;
      row.Step(gradient, scalars);
      twin.Step(Vector64(gradient.begin(), gradient.end()), lr, scale, step,
                row.plan.params.row_bias_correction ? turn : step);
      const float precision = Precision(row.plan.weight_type);
      for (uint32_t i = 0; i < dim; ++i) {
        ASSERT_NEAR(row.weight(i), twin.w[i], precision * std::max(1.0, std::abs(twin.w[i])))
            << "dim " << dim << ", weight " << i << " after " << turn << " steps";
        if (precision > 1e-6f) twin.w[i] = row.weight(i);  // rounding alone does not add up
      }
      if (!LayoutOfState(row.plan.params).has_statistic) continue;
      ASSERT_NEAR(row.statistic(), twin.statistic, 1e-6 * std::max(1.0, twin.statistic));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RowUpdateTest,
                         ::testing::Range(0, static_cast<int>(kLastOptimizerKind) + 1));

// A row of {3, 4} under `params`, pushed `gradient`.
RowUnderTest Pushed(const OptimizerParams& params, const std::vector<float>& weights,
                    const std::vector<float>& gradient, float lr = 0.5f, float scale = 1.0f) {
  RowUnderTest row(params, WeightType::kFp32, static_cast<uint32_t>(weights.size()));
  for (uint32_t i = 0; i < weights.size(); ++i) row.SetWeight(i, weights[i]);
  UpdateScalars scalars = ResolveScalars(params, lr, 1);
  scalars.gradient_scale = scale;
  row.Step(gradient, scalars);
  return row;
}

OptimizerParams Kind(OptimizerKind kind) {
  OptimizerParams params;
  params.kind = kind;
  return params;
}

TEST(RowUpdateEdgeTest, ScaleThenValueThenRowNorm) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.clip_value = 3;
  params.clip_row_norm = 2.5f;
  // {6, 400} / 2 = {3, 200} -> {3, 3} -> norm 2.5 -> {1.7677..., 1.7677...}
  RowUnderTest row = Pushed(params, {0, 0}, {6, 400}, 1.0f, 0.5f);
  EXPECT_NEAR(row.weight(0), -2.5f / std::sqrt(2.0f), 1e-6);
  EXPECT_NEAR(row.weight(1), -2.5f / std::sqrt(2.0f), 1e-6);
}

TEST(RowUpdateEdgeTest, AGradientWhoseNormOverflowsIsClippedNotLost) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.clip_row_norm = 5;
  RowUnderTest row = Pushed(params, {0, 0}, {3e30f, -4e30f}, 1.0f);
  EXPECT_NEAR(row.weight(0), -3.0f, 1e-5);
  EXPECT_NEAR(row.weight(1), 4.0f, 1e-5);
}

TEST(RowUpdateEdgeTest, NanPassesClippingByValue) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.clip_value = 1;
  RowUnderTest row = Pushed(params, {1, 1}, {std::numeric_limits<float>::quiet_NaN(), 7});
  EXPECT_TRUE(std::isnan(row.weight(0)));
  EXPECT_EQ(row.weight(1), 0.5f);
}

TEST(RowUpdateEdgeTest, MaxNormHoldsAfterTheStep) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.max_norm = 5;
  RowUnderTest row = Pushed(params, {0, 0}, {-60, -80}, 1.0f);
  EXPECT_NEAR(row.weight(0), 3.0f, 1e-6);
  EXPECT_NEAR(row.weight(1), 4.0f, 1e-6);
  RowUnderTest shorter = Pushed(params, {0, 0}, {-3, -2}, 1.0f);
  EXPECT_EQ(shorter.weight(0), 3.0f);  // untouched below the limit
}

TEST(RowUpdateEdgeTest, MaxNormOfAnyType) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.max_norm = 5;
  const auto shortened = [&](float p, const std::vector<float>& weights) {
    params.max_norm_type = p;
    RowUnderTest row = Pushed(params, weights, std::vector<float>(weights.size()), 1.0f);
    std::vector<float> values;
    for (uint32_t i = 0; i < weights.size(); ++i) values.push_back(row.weight(i));
    return values;
  };
  EXPECT_EQ(shortened(1, {6, -4}), (std::vector<float>{3, -2}));
  EXPECT_EQ(shortened(1, {3, -2}), (std::vector<float>{3, -2}));  // at the limit
  EXPECT_EQ(shortened(0, {20, -4}), (std::vector<float>{5, -1}));
  const std::vector<float> cubes = shortened(3, {6, -8, 10});  // 216 + 512 + 1000 = 12^3
  EXPECT_NEAR(cubes[0], 2.5f, 1e-6);
  EXPECT_NEAR(cubes[2], 6 * 10.0f / 12 - 5.0f / 6, 1e-6);
  // Powers that do not fit a float, and one row beside a NaN.
  EXPECT_NEAR(shortened(100, {3e30f, 1})[0], 5.0f, 1e-5);
  EXPECT_TRUE(std::isnan(shortened(1.5f, {std::nanf(""), 1})[0]));
}

// The second moment falls from 8 to 4.5, and the step keeps dividing by the root of 8.
TEST(RowUpdateEdgeTest, AmsGradKeepsTheLargestSecondMoment) {
  OptimizerParams params = Kind(OptimizerKind::kAmsGrad);
  params.beta1 = 0;
  params.beta2 = 0.5f;
  params.epsilon = 1e-12f;
  RowUnderTest row(params, WeightType::kFp32, 1);
  row.SetWeight(0, 0.0f);
  const auto push = [&](float g) {
    const float before = row.weight(0);
    row.Step({g}, UpdateScalars{1.0f, 1.0f, 1.0f});
    return before - row.weight(0);
  };
  EXPECT_FLOAT_EQ(push(4), 4 / std::sqrt(8.0f));
  EXPECT_FLOAT_EQ(push(1), 1 / std::sqrt(8.0f));  // v = 4.5
  EXPECT_FLOAT_EQ(row.vector(1, 0), 4.5f);
  EXPECT_FLOAT_EQ(row.vector(2, 0), 8.0f);
}

// FBGEMM's formulas for w = {3, 4}, g = {6, 8} at step 1, by hand.
TEST(RowUpdateEdgeTest, CountsChangeTheRate) {
  OptimizerParams params = Kind(OptimizerKind::kRowwiseAdagradCounter);
  params.epsilon = 1e-12f;
  CounterParams& counter = params.counter;
  const float plain = 0.5f / std::sqrt(50.0f);
  const auto rate = [&] { return (3.0f - Pushed(params, {3, 4}, {6, 8}).weight(0)) / 6.0f; };
  EXPECT_NEAR(rate(), plain, 1e-6);
  counter.most = 8;
  counter.mode = CounterMode::kTailIncrease;
  EXPECT_NEAR(rate(), plain * 4, 1e-6);  // 8 / (1 + 1)
  counter.most = 1000;
  EXPECT_NEAR(rate(), plain * 10, 1e-6);  // at most
  counter.mode = CounterMode::kTailDecrease;
  EXPECT_NEAR(rate(), plain / 10, 1e-6);  // at least
  counter.most = 4;
  EXPECT_NEAR(rate(), plain / 2, 1e-6);
  counter.threshold = 1;  // the count is not above it
  EXPECT_NEAR(rate(), plain, 1e-6);
  counter.threshold = 0;
  counter.from_step = 1;
  EXPECT_NEAR(rate(), plain, 1e-6);
  counter.from_step = 0;
  counter.mode = CounterMode::kCounterSgd;
  counter.power = 0.25f;
  EXPECT_NEAR(rate(), 1.0f, 1e-6);  // 0.5 / sqrt(0.25 * 1)
  counter.mode = CounterMode::kCowClip;
  counter.clip_coefficient = 0.2f;
  EXPECT_NEAR(rate(), plain * 0.1f, 1e-6);  // 0.2 * 5 of 10
  counter.clip_least = 4;
  EXPECT_NEAR(rate(), plain * 0.4f, 1e-6);
}

TEST(RowUpdateEdgeTest, CountsHalveWithTime) {
  OptimizerParams params = Kind(OptimizerKind::kRowwiseAdagradCounter);
  params.counter.half_life = 4;
  params.weight_decay = 0.5f;
  params.decay_mode = DecayMode::kDecoupled;
  RowUnderTest row(params, WeightType::kFp32, 1);
  row.SetWeight(0, 1024.0f);
  const auto push = [&](uint64_t step) {
    const float before = row.weight(0);
    row.Step({0.0f}, ResolveScalars(params, 0.25f, step));
    return row.weight(0) / before;
  };
  EXPECT_FLOAT_EQ(push(10), 1 - 4.0f * 0.125f);         // count 1: half_life / count = 4
  EXPECT_FLOAT_EQ(push(14), 1 - 4.0f / 1.5f * 0.125f);  // 1 / 2 + 1
  EXPECT_FLOAT_EQ(push(22), 1 - 4.0f / 1.375f * 0.125f);
}

TEST(RowUpdateEdgeTest, LambOfARowOfZerosMovesByTheLearningRate) {
  const OptimizerParams params = Kind(OptimizerKind::kLamb);
  RowUnderTest row = Pushed(params, {0, 0}, {2, -3}, 0.25f);
  EXPECT_NEAR(row.weight(0), -0.25f, 1e-6);  // ratio 1, m / sqrt(v) = sign(g)
  EXPECT_NEAR(row.weight(1), 0.25f, 1e-6);
  RowUnderTest still = Pushed(params, {3, 4}, {0, 0});
  EXPECT_EQ(still.weight(0), 3.0f);  // a direction of zero
  EXPECT_EQ(still.weight(1), 4.0f);
}

TEST(RowUpdateEdgeTest, LarsOfARowOfZerosTakesTheLearningRate) {
  OptimizerParams params = Kind(OptimizerKind::kLars);
  RowUnderTest row = Pushed(params, {0, 0}, {2, -3}, 0.25f);
  EXPECT_EQ(row.weight(0), -0.5f);
  EXPECT_EQ(row.weight(1), 0.75f);
  RowUnderTest still = Pushed(params, {3, 4}, {0, 0});  // denominator 0
  EXPECT_EQ(still.weight(0), 3.0f);
  params.weight_decay = 0.1f;
  // lr' = 0.5 * 0.001 * 5 / (0 + 0.1 * 5) = 0.005; w -= 0.005 * 0.1 * w
  RowUnderTest decayed = Pushed(params, {3, 4}, {0, 0});
  EXPECT_NEAR(decayed.weight(0), 3.0f * (1 - 0.0005f), 1e-6);
}

TEST(RowUpdateEdgeTest, FtrlWithoutALearningRateLeavesTheRow) {
  RowUnderTest row = Pushed(Kind(OptimizerKind::kFtrl), {3, 4}, {1, 2}, 0.0f);
  EXPECT_EQ(row.weight(0), 3.0f);
  EXPECT_EQ(row.vector(0, 0), 0.0f);
  EXPECT_EQ(row.vector(1, 1), 0.0f);
}

TEST(RowUpdateEdgeTest, FtrlIsZeroUpToL1) {
  OptimizerParams params = Kind(OptimizerKind::kFtrl);
  params.l1 = 1.0f;
  RowUnderTest row = Pushed(params, {0, 0, 0}, {1.0f, -1.0f, 1.5f}, 1.0f);
  EXPECT_EQ(row.weight(0), 0.0f);  // |z| = l1
  EXPECT_EQ(row.weight(1), 0.0f);
  EXPECT_FLOAT_EQ(row.weight(2), -0.5f / 2.5f);  // (1 - 1.5) / (1 + 1.5)
}

TEST(RowUpdateEdgeTest, NoneChangesNothing) {
  OptimizerParams params = Kind(OptimizerKind::kNone);
  params.max_norm = 1;
  params.weight_decay = 0.5f;
  RowUnderTest row = Pushed(params, {3, 4}, {1, 2});
  EXPECT_EQ(row.weight(0), 3.0f);
  EXPECT_EQ(row.weight(1), 4.0f);
}

// A row touched at steps 1, 4 and 5 is where one is that was touched, with gradients of zero, at
// every step.
TEST(RowUpdateEdgeTest, LazyDecayMakesUpForStepsWithoutGradients) {
  for (OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                             OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdamW}) {
    OptimizerParams params = Kind(kind);
    params.weight_decay = 0.2f;
    params.decay_mode = DecayMode::kDecoupled;
    params.beta1 = 0;  // else a step without a gradient moves the row
    RowUnderTest every(params, WeightType::kFp32, 2);
    params.lazy_decay = true;
    params.beta2 = every.plan.params.beta2 = 0.999f;
    RowUnderTest lazy(params, WeightType::kFp32, 2);
    for (RowUnderTest* row : {&every, &lazy}) {
      row->SetWeight(0, 1.0f);
      row->SetWeight(1, -2.0f);
    }
    for (uint64_t step = 1; step <= 5; ++step) {
      const bool touched = step != 2 && step != 3;
      const bool moves = kind == OptimizerKind::kAdamW ? step == 1 : touched;  // v decays with time
      const float g = moves ? 0.3f : 0.0f;
      const UpdateScalars scalars = ResolveScalars(params, 0.1f, step);
      every.Step({g, g}, scalars);
      if (touched) lazy.Step({g, g}, scalars);
    }
    EXPECT_NEAR(lazy.weight(0), every.weight(0), 1e-6) << "kind " << static_cast<int>(kind);
    EXPECT_NEAR(lazy.weight(1), every.weight(1), 1e-6) << "kind " << static_cast<int>(kind);
  }
}

TEST(RowUpdateEdgeTest, LazyDecayCountsEachStepOnce) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.weight_decay = 0.5f;
  params.lazy_decay = true;
  RowUnderTest row(params, WeightType::kFp32, 1);
  row.SetWeight(0, 1024.0f);
  const auto push = [&](uint64_t step) {
    row.Step({0.0f}, ResolveScalars(params, 1.0f, step));
    return row.weight(0);
  };
  EXPECT_EQ(push(1000), 512.0f);  // first touch: one step
  EXPECT_EQ(push(1000), 512.0f);  // another trainer, the same step
  EXPECT_EQ(push(998), 512.0f);   // a slower trainer
  EXPECT_EQ(push(1003), 64.0f);
  row.SetWeight(0, 1024.0f);
  EXPECT_EQ(push(1004 + (1ull << 32)), 512.0f);  // steps are told apart modulo 2^32
}

// FBGEMM's global weight decay: the steps in between have a bound, the row's own step has none.
TEST(RowUpdateEdgeTest, LazyDecayHasABound) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.weight_decay = 0.5f;
  params.lazy_decay = true;
  params.lazy_decay_least = 0.2f;
  RowUnderTest row(params, WeightType::kFp32, 1);
  row.SetWeight(0, 1024.0f);
  const auto push = [&](uint64_t step) {
    row.Step({0.0f}, ResolveScalars(params, 1.0f, step));
    return row.weight(0);
  };
  EXPECT_EQ(push(1000), 512.0f);
  EXPECT_EQ(push(1000), 512.0f);
  EXPECT_EQ(push(1003), 64.0f);         // 0.5^2 is above the bound
  EXPECT_NEAR(push(2000), 6.4f, 1e-5);  // 0.2 * 0.5
}

// FBGEMM's EMA in place moves every average at once; a row catches up when it is next updated.
TEST(RowUpdateEdgeTest, AnAverageCatchesUpBeforeTheStep) {
  OptimizerParams params = Kind(OptimizerKind::kSgd);
  params.average = {0.4f, 3, 8};
  RowUnderTest row(params, WeightType::kFp32, 6);
  Vector64 eager = {1, 2, 3, 30, 20, 10};
  for (uint32_t i = 0; i < 6; ++i) row.SetWeight(i, static_cast<float>(eager[i]));
  const std::vector<uint64_t> touched = {2, 3, 9, 10, 11, 30, 31, 33, 34};
  for (uint64_t step = 1; step <= 34; ++step) {
    if (std::count(touched.begin(), touched.end(), step) > 0) {
      const std::vector<float> gradient = {1, -2, 0.5f, 0, 0, 0};
      row.Step(gradient, ResolveScalars(params, 0.25f, step));
      for (uint32_t i = 0; i < 6; ++i) eager[i] -= 0.25 * gradient[i];
      for (uint32_t i = 0; i < 6; ++i) ASSERT_NEAR(row.weight(i), eager[i], 1e-5) << step;
    }
    for (uint32_t i = 0; i < 3 && step % 3 == 0 && step >= 8; ++i) {
      eager[3 + i] += 0.4 * (eager[i] - eager[3 + i]);
    }
  }
  const float average = row.weight(3);
  row.Step({0, 0, 0, 0, 0, 0}, ResolveScalars(params, 0.25f, 20));  // a slower trainer
  EXPECT_EQ(row.weight(3), average);
}

TEST(RowUpdateEdgeTest, RowBiasCorrectionCountsTheRowsOwnUpdates) {
  OptimizerParams params = Kind(OptimizerKind::kAdam);
  RowUnderTest by_step(params, WeightType::kFp32, 3);
  params.row_bias_correction = true;
  RowUnderTest by_row(params, WeightType::kFp32, 3);
  for (uint64_t t = 1; t <= 4; ++t) {
    const std::vector<float> g = {0.1f * t, -0.2f, 0.3f};
    by_step.Step(g, ResolveScalars(params, 0.1f, t));
    by_row.Step(g, ResolveScalars(params, 0.1f, 100 * t));
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(by_row.weight(i), by_step.weight(i));
  }
}

TEST(RowUpdateEdgeTest, AssignRoundsToNearestEven) {
  OptimizerParams params = Kind(OptimizerKind::kAdam);
  params.stochastic_rounding = true;
  RowUnderTest row(params, WeightType::kFp16, 3);
  const float values[3] = {1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, -0.25f};
  AssignWeights(row.plan, row.weights(), reinterpret_cast<const uint8_t*>(values));
  EXPECT_EQ(row.weight(0), 1.0f);
  EXPECT_EQ(row.weight(1), 1.0f + 0x1p-9f);
  EXPECT_EQ(row.weight(2), -0.25f);
}

TEST(RowUpdateEdgeTest, Bf16StateIsRoundedToNearestEven) {
  OptimizerParams params = Kind(OptimizerKind::kMomentumSgd);
  params.state_type = StateType::kBf16;
  EXPECT_EQ(StateBytes(params, 3), 8u);  // three of two bytes, padded
  RowUnderTest row = Pushed(params, {0, 0, 0}, {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, 1.0f}, 1.0f);
  EXPECT_EQ(row.vector(0, 0), 1.0f);
  EXPECT_EQ(row.vector(0, 1), 1.0f + 0x1p-6f);
  EXPECT_EQ(row.weight(0), -(1.0f + 0x1p-8f));  // the step itself is in fp32
}

TEST(RowUpdateEdgeTest, FirstStateByKind) {
  for (int k = 0; k <= static_cast<int>(kLastOptimizerKind); ++k) {
    OptimizerParams params = Kind(static_cast<OptimizerKind>(k));
    params.initial_accumulator = 0.75f;
    params.lazy_decay = true;
    RowUnderTest row(params, WeightType::kFp32, 5);
    const StateLayout layout = LayoutOfState(params);
    for (uint32_t v = 0; v < layout.vectors; ++v) {
      const bool sum =
          params.kind == OptimizerKind::kAdagrad || (params.kind == OptimizerKind::kFtrl && v == 1);
      EXPECT_EQ(row.vector(v, 4), sum ? 0.75f : 0.0f) << "kind " << k << ", vector " << v;
    }
    const bool rowwise =
        params.kind == OptimizerKind::kRowwiseAdagrad || CountsUpdates(params.kind);
    if (!layout.has_statistic) continue;
    EXPECT_EQ(row.statistic(), rowwise ? 0.75f : 0.0f) << "kind " << k;
  }
}

}  // namespace row_update_test
}  // namespace hotbed
