#include "row_math/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/random.h"
#include "tests/row_math/row_under_test.h"

namespace hotbed {
namespace optimizer_test {

const uint8_t* Bytes(const float* p) { return reinterpret_cast<const uint8_t*>(p); }
uint8_t* Bytes(float* p) { return reinterpret_cast<uint8_t*>(p); }

TEST(OptimizerTest, SgdByHand) {
  float w[2] = {1.0f, -2.0f};
  const float g[2] = {0.5f, 4.0f};
  OptimizerParams params;
  params.weight_decay = 0.5f;
  UpdateRow<OptimizerKind::kSgd, Fp32Codec, Fp32Codec>(params, {0.25f, 1, 1}, 2, Bytes(w), nullptr,
                                                       Bytes(g));
  EXPECT_EQ(w[0], 0.75f);   // 1 - 0.25 * (0.5 + 0.5 * 1)
  EXPECT_EQ(w[1], -2.75f);  // -2 - 0.25 * (4 + 0.5 * -2)
}

TEST(OptimizerTest, AdagradByHand) {
  float w[2] = {1.0f, 1.0f};
  float s[2] = {0.0f, 5.0f};
  const float g[2] = {4.0f, 2.0f};
  OptimizerParams params;
  params.epsilon = 1.0f;
  UpdateRow<OptimizerKind::kAdagrad, Fp32Codec, Fp32Codec>(params, {0.5f, 1, 1}, 2, Bytes(w),
                                                           Bytes(s), Bytes(g));
  EXPECT_EQ(s[0], 16.0f);
  EXPECT_EQ(s[1], 9.0f);
  EXPECT_EQ(w[0], 1.0f - 2.0f / 5.0f);
  EXPECT_EQ(w[1], 1.0f - 1.0f / 4.0f);
}

TEST(OptimizerTest, RowwiseAdagradTakesTheMeanOfSquares) {
  float w[2] = {1.0f, 1.0f};
  float s = 0.5f;
  const float g[2] = {1.0f, 4.0f};
  OptimizerParams params;
  params.epsilon = 1.0f;
  UpdateRow<OptimizerKind::kRowwiseAdagrad, Fp32Codec, Fp32Codec>(params, {2.0f, 1, 1}, 2, Bytes(w),
                                                                  Bytes(&s), Bytes(g));
  EXPECT_EQ(s, 9.0f);  // 0.5 + (1 + 16) / 2
  EXPECT_EQ(w[0], 0.5f);
  EXPECT_EQ(w[1], -1.0f);
}

// Adam's first step moves every weight by the learning rate against the gradient's sign.
TEST(OptimizerTest, AdamFirstStep) {
  std::vector<float> w(40, 0.0f);
  std::vector<float> state(80, 0.0f);
  std::vector<float> g(40);
  for (int i = 0; i < 40; ++i) g[i] = i % 2 ? 0.3f * i : -0.2f * (i + 1);
  OptimizerParams params;
  params.kind = OptimizerKind::kAdam;
  const UpdateScalars scalars = ResolveScalars(params, 0.1f, 1);
  EXPECT_FLOAT_EQ(scalars.bias_correction1, 0.1f);
  UpdateRow<OptimizerKind::kAdam, Fp32Codec, Fp32Codec>(params, scalars, 40, Bytes(w.data()),
                                                        Bytes(state.data()), Bytes(g.data()));
  for (int i = 0; i < 40; ++i) EXPECT_NEAR(w[i], g[i] > 0 ? -0.1f : 0.1f, 1e-5);
}

// FBGEMM's numbers: w = {.1, -.2, .3, -.4}, g = {.01, .02, -.03, .04} twice, lr .1, epsilon 1e-3,
// decay .01, beta .9 and .999, from a state of zeros, t = 1, 2. Its Adam and LAMB kinds have
// decoupled decay; those without decay are pushed without.
TEST(OptimizerTest, AgreesWithFbgemm) {
  const struct {
    OptimizerKind kind;
    DecayMode mode;
    float decay;
    float weights[4];
    float statistic;
  } kVectors[] = {
      {OptimizerKind::kSgd, DecayMode::kL2, 0, {.098f, -.204f, .306f, -.408f}, 0},
      {OptimizerKind::kAdagrad,
       DecayMode::kL2,
       0,
       {-.056949973f, -.363534143f, .465856584f, -.567043367f},
       0},
      {OptimizerKind::kRowwiseAdagrad,
       DecayMode::kL2,
       0,
       {.039601523f, -.320796955f, .481195432f, -.641593910f},
       .0015f},
      {OptimizerKind::kRowwiseAdagrad,
       DecayMode::kL2,
       .01f,
       {.027633251f, -.318418316f, .477627474f, -.636836632f},
       .00118814766f},
      {OptimizerKind::kAdam,
       DecayMode::kDecoupled,
       .01f,
       {-.081927173f, -.389981152f, .492851913f, -.594224790f},
       0},
      {OptimizerKind::kAdamW,
       DecayMode::kL2,
       .01f,
       {-.081927173f, -.389981152f, .492851913f, -.594224790f},
       0},
      {OptimizerKind::kPartialRowwiseAdam,
       DecayMode::kDecoupled,
       .01f,
       {.029378378f, -.340443644f, .510665465f, -.680887287f},
       1.49925e-6f},
      {OptimizerKind::kLamb,
       DecayMode::kL2,
       .01f,
       {.045486255f, -.256927087f, .357787299f, -.458198676f},
       0},
  };
  for (const auto& v : kVectors) {
    OptimizerParams params;
    params.kind = v.kind;
    params.epsilon = 1e-3f;
    params.weight_decay = v.decay;
    params.decay_mode = v.mode;
    RowUnderTest row(params, WeightType::kFp32, 4);
    const float weights[4] = {.1f, -.2f, .3f, -.4f};
    for (uint32_t i = 0; i < 4; ++i) row.SetWeight(i, weights[i]);
    for (uint64_t t : {1, 2}) {
      row.Step({.01f, .02f, -.03f, .04f}, ResolveScalars(params, .1f, t));
    }
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(row.weight(i), v.weights[i], 1e-6) << "kind " << static_cast<int>(v.kind);
    }
    if (v.statistic > 0) {
      EXPECT_NEAR(row.statistic(), v.statistic, 1e-9);
    }
  }
}

TEST(OptimizerTest, BiasCorrectionAgreesWithPow) {
  OptimizerParams params;
  params.kind = OptimizerKind::kAdam;
  for (uint64_t step : {1ull, 2ull, 10ull, 999ull, 123456ull, 1ull << 40}) {
    const UpdateScalars s = ResolveScalars(params, 0.5f, step);
    EXPECT_EQ(s.learning_rate, 0.5f);
    EXPECT_FLOAT_EQ(s.bias_correction1, 1.0 - std::pow(double{params.beta1}, double(step)));
    EXPECT_FLOAT_EQ(s.bias_correction2, 1.0 - std::pow(double{params.beta2}, double(step)));
  }
  EXPECT_EQ(ResolveScalars(params, 1, 0).bias_correction1,
            ResolveScalars(params, 1, 1).bias_correction1);
}

TEST(OptimizerTest, TreeSumJoinsLanesByHalving) {
  // 2^24 + 1 is not a float: the order decides what survives.
  float lanes[32] = {};
  lanes[0] = 16777216.0f;
  lanes[1] = 1.0f;
  lanes[17] = 1.0f;
  EXPECT_EQ(TreeSum(lanes), 16777218.0f);  // 1 + 1 meet first
  float other[32] = {};
  other[0] = 16777216.0f;
  other[16] = 1.0f;
  other[1] = 1.0f;
  EXPECT_EQ(TreeSum(other), 16777216.0f);  // each is lost by itself
}

}  // namespace optimizer_test
}  // namespace hotbed
