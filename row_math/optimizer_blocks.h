// Every optimizer's formula for one block of 32 elements; the formulas are in row_math/optimizer.h.
// Weights and gradients are read through their codecs, state is fp32 (row_math/row_update.h
// converts other state before and after).
#ifndef HOTBED_ROW_MATH_OPTIMIZER_BLOCKS_H_
#define HOTBED_ROW_MATH_OPTIMIZER_BLOCKS_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/row_blocks.h"
#include "row_math/types.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Whether weight decay shrinks the weights beside the step. For SGD the two modes are one formula
// but for rounding, so lazy decay takes the decoupled one.
HOTBED_ROW_FN bool DecaysDecoupled(const OptimizerParams& params) {
  switch (params.kind) {
    case OptimizerKind::kAdamW:
      return true;
    case OptimizerKind::kSgd:
      return params.decay_mode == DecayMode::kDecoupled || params.lazy_decay;
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kAdam:
    case OptimizerKind::kMomentumSgd:
    case OptimizerKind::kPartialRowwiseAdam:
    case OptimizerKind::kRmsProp:
      return params.decay_mode == DecayMode::kDecoupled;
    default:  // LAMB and LARS have a decay of their own, FTRL and none have none
      return false;
  }
}

// 1 - learning_rate * weight_decay: what one step leaves of a weight under decoupled decay.
HOTBED_ROW_FN double ShrinkOfStep(const OptimizerParams& params, const UpdateScalars& scalars) {
  return 1.0 - static_cast<double>(scalars.learning_rate) * params.weight_decay;
}

// Plain values, so that no store can change them. Divisors that all elements share are inverted
// once. Of `decay` and `shrink` one is always neutral (0 and 1), so every formula may have both and
// is still exact.
struct StepScalars {
  float lr;
  float decay;   // L2: d = g + decay * w
  float shrink;  // decoupled: w = shrink * w - ...
  float epsilon;
  float beta1;
  float beta2;
  float inverse1;    // 1 / bias_correction1
  float inverse2;    // 1 / sqrt(bias_correction2)
  float inverse_lr;  // FTRL; 0 for a learning rate that is not positive
  float momentum;
  float trust;
  float l1;
  float l2;
  float ftrl_beta;
};

HOTBED_ROW_FN void SetBiasCorrections(float correction1, float correction2, StepScalars* p) {
  p->inverse1 = 1.0f / correction1;
  p->inverse2 = 1.0f / __builtin_sqrtf(correction2);
}

HOTBED_ROW_FN StepScalars MakeStepScalars(const OptimizerParams& params,
                                          const UpdateScalars& scalars) {
  const bool decoupled = DecaysDecoupled(params);
  StepScalars p;
  p.lr = scalars.learning_rate;
  p.decay = decoupled ? 0.0f : params.weight_decay;
  p.shrink = decoupled ? static_cast<float>(ShrinkOfStep(params, scalars)) : 1.0f;
  p.epsilon = params.epsilon;
  p.beta1 = params.beta1;
  p.beta2 = params.beta2;
  SetBiasCorrections(scalars.bias_correction1, scalars.bias_correction2, &p);
  p.inverse_lr = p.lr > 0.0f ? 1.0f / p.lr : 0.0f;
  p.momentum = params.momentum;
  p.trust = params.trust_coefficient;
  p.l1 = params.l1;
  p.l2 = params.l2;
  p.ftrl_beta = params.ftrl_beta;
  return p;
}

HOTBED_ROW_FN float Decayed(float gradient, float weight, float weight_decay) {
  return gradient + weight_decay * weight;
}

// w = shrink * w - rate * d
template <typename Weight, typename Gradient>
HOTBED_ROW_FN void ScaledBlock(float rate, float decay, float shrink, uint8_t* w,
                               const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Weight::Load(w, l);
    const float d = Decayed(Gradient::Load(g, l), weight, decay);
    Weight::Store(w, l, shrink * weight - rate * d);
  }
}

// sum[l] += d * d. Without decay the weights are not read: they are on their way from memory.
template <typename Weight, typename Gradient>
HOTBED_ROW_FN void SquaresBlock(float decay, const uint8_t* w, const uint8_t* g, float* sum) {
  if (decay == 0.0f) {
    HOTBED_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float d = Gradient::Load(g, l);
      sum[l] += d * d;
    }
    return;
  }
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float d = Decayed(Gradient::Load(g, l), Weight::Load(w, l), decay);
    sum[l] += d * d;
  }
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void AdagradBlock(const StepScalars& p, uint8_t* w, uint8_t* s, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Weight::Load(w, l);
    const float d = Decayed(Gradient::Load(g, l), weight, p.decay);
    const float square = Fp32Codec::Load(s, l) + d * d;
    Fp32Codec::Store(s, l, square);
    Weight::Store(w, l, p.shrink * weight - p.lr * d / (__builtin_sqrtf(square) + p.epsilon));
  }
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void AdamBlock(const StepScalars& p, uint8_t* w, uint8_t* m, uint8_t* v,
                             const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Weight::Load(w, l);
    const float d = Decayed(Gradient::Load(g, l), weight, p.decay);
    const float first = p.beta1 * Fp32Codec::Load(m, l) + (1.0f - p.beta1) * d;
    const float second = p.beta2 * Fp32Codec::Load(v, l) + (1.0f - p.beta2) * (d * d);
    Fp32Codec::Store(m, l, first);
    Fp32Codec::Store(v, l, second);
    const float denominator = __builtin_sqrtf(second) * p.inverse2 + p.epsilon;
    Weight::Store(w, l, p.shrink * weight - p.lr * (first * p.inverse1) / denominator);
  }
}

// The kinds below work on fp32 alone.

HOTBED_ROW_FN void MomentumBlock(const StepScalars& p, uint8_t* w, uint8_t* m, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Fp32Codec::Load(w, l);
    const float d = Decayed(Fp32Codec::Load(g, l), weight, p.decay);
    const float velocity = p.momentum * Fp32Codec::Load(m, l) + d;
    Fp32Codec::Store(m, l, velocity);
    Fp32Codec::Store(w, l, p.shrink * weight - p.lr * velocity);
  }
}

HOTBED_ROW_FN void RmsPropBlock(const StepScalars& p, uint8_t* w, uint8_t* v, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Fp32Codec::Load(w, l);
    const float d = Decayed(Fp32Codec::Load(g, l), weight, p.decay);
    const float second = p.beta2 * Fp32Codec::Load(v, l) + (1.0f - p.beta2) * (d * d);
    Fp32Codec::Store(v, l, second);
    Fp32Codec::Store(w, l, p.shrink * weight - p.lr * d / (__builtin_sqrtf(second) + p.epsilon));
  }
}

// `rate` is the row's own: lr / bias_correction1 / (sqrt(v / bias_correction2) + epsilon).
HOTBED_ROW_FN void PartialAdamBlock(const StepScalars& p, float rate, uint8_t* w, uint8_t* m,
                                    const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Fp32Codec::Load(w, l);
    const float d = Decayed(Fp32Codec::Load(g, l), weight, p.decay);
    const float first = p.beta1 * Fp32Codec::Load(m, l) + (1.0f - p.beta1) * d;
    Fp32Codec::Store(m, l, first);
    Fp32Codec::Store(w, l, p.shrink * weight - rate * first);
  }
}

// The direction r of a LAMB step; the weights stay. `decay` is LAMB's own, on r.
HOTBED_ROW_FN void LambBlock(const StepScalars& p, const uint8_t* w, uint8_t* m, uint8_t* v,
                             const uint8_t* g, uint8_t* r) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float d = Fp32Codec::Load(g, l);
    const float first = p.beta1 * Fp32Codec::Load(m, l) + (1.0f - p.beta1) * d;
    const float second = p.beta2 * Fp32Codec::Load(v, l) + (1.0f - p.beta2) * (d * d);
    Fp32Codec::Store(m, l, first);
    Fp32Codec::Store(v, l, second);
    const float denominator = __builtin_sqrtf(second) * p.inverse2 + p.epsilon;
    Fp32Codec::Store(r, l, first * p.inverse1 / denominator + p.decay * Fp32Codec::Load(w, l));
  }
}

// `scale` is the row's own: 1 / bias_correction1 / (sqrt(v / bias_correction2) + epsilon).
HOTBED_ROW_FN void PartialLambBlock(const StepScalars& p, float scale, const uint8_t* w, uint8_t* m,
                                    const uint8_t* g, uint8_t* r) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float first = p.beta1 * Fp32Codec::Load(m, l) + (1.0f - p.beta1) * Fp32Codec::Load(g, l);
    Fp32Codec::Store(m, l, first);
    Fp32Codec::Store(r, l, first * scale + p.decay * Fp32Codec::Load(w, l));
  }
}

// `rate` is the row's own.
HOTBED_ROW_FN void LarsBlock(const StepScalars& p, float rate, uint8_t* w, uint8_t* m,
                             const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Fp32Codec::Load(w, l);
    const float d = Decayed(Fp32Codec::Load(g, l), weight, p.decay);
    const float velocity = p.momentum * Fp32Codec::Load(m, l) + rate * d;
    Fp32Codec::Store(m, l, velocity);
    Fp32Codec::Store(w, l, weight - velocity);
  }
}

// lr > 0. A denominator of zero (beta, l2 and n all zero) gives a weight of zero.
HOTBED_ROW_FN void FtrlBlock(const StepScalars& p, uint8_t* w, uint8_t* z, uint8_t* n,
                             const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float gradient = Fp32Codec::Load(g, l);
    const float before = Fp32Codec::Load(n, l);
    const float after = before + gradient * gradient;
    const float root = __builtin_sqrtf(after);
    const float sigma = (root - __builtin_sqrtf(before)) * p.inverse_lr;
    const float linear = Fp32Codec::Load(z, l) + (gradient - sigma * Fp32Codec::Load(w, l));
    Fp32Codec::Store(n, l, after);
    Fp32Codec::Store(z, l, linear);
    const float beyond = linear < 0.0f ? linear + p.l1 : linear - p.l1;
    const float size = linear < 0.0f ? -linear : linear;
    const float denominator = (p.ftrl_beta + root) * p.inverse_lr + p.l2;
    const float weight = -beyond / (denominator == 0.0f ? 1.0f : denominator);
    Fp32Codec::Store(w, l, size <= p.l1 || denominator == 0.0f ? 0.0f : weight);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_OPTIMIZER_BLOCKS_H_
