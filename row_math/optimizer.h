// One optimizer step of one row. Gradient g, weights w, learning rate lr, all in fp32; weights are
// converted on load and store, optimizer state is fp32. d = g + weight_decay * w (L2) enters every
// formula in place of g:
//
//   SGD                w -= lr * d
//   Adagrad            s += d * d;                        w -= lr * d / (sqrt(s) + epsilon)
//   row-wise Adagrad   s += (sum over the row of d * d) / dim;  w -= (lr / (sqrt(s) + epsilon)) * d
//   Adam               m = beta1 * m + (1 - beta1) * d;  v = beta2 * v + (1 - beta2) * d * d
//                      w -= lr * (m / bias_correction1) / (sqrt(v / bias_correction2) + epsilon)
//
// Sources: J. Duchi et al., JMLR 12 (2011); D. Mudigere et al., ISCA 2022 (row-wise Adagrad: mean
// of squares, as FBGEMM); D. Kingma, J. Ba, ICLR 2015.
//
// The bits are the same on every instruction set and on CPU and GPU (DECISIONS N1): no contraction,
// IEEE division and square root, element-wise in the order written, and the one sum in 32 lanes
// (element i goes to lane i % 32 in order of i), joined by halving: lane l += lane l + 16, then 8,
// 4, 2, 1.
#ifndef HOTBED_ROW_MATH_OPTIMIZER_H_
#define HOTBED_ROW_MATH_OPTIMIZER_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/types.h"

namespace hotbed {
inline namespace HOTBED_ISA {

constexpr uint32_t kLanes = 32;

// Joins the lanes; destroys them.
HOTBED_ROW_FN float TreeSum(float* lanes) {
  for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
    for (uint32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

HOTBED_ROW_FN float Decayed(float gradient, float weight, float weight_decay) {
  return gradient + weight_decay * weight;
}

// Runs `body(i)` for i in [0, dim) in blocks of 32 with a constant trip count, which is what
// vectorises.
template <typename Body>
HOTBED_ROW_FN void ForElements(uint32_t dim, Body body) {
  uint32_t first = 0;
  for (; first + kLanes <= dim; first += kLanes) {
    for (uint32_t l = 0; l < kLanes; ++l) body(first + l, l);
  }
  for (uint32_t i = first; i < dim; ++i) body(i, i - first);
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateSgd(const OptimizerParams& params, const UpdateScalars& scalars,
                             uint32_t dim, uint8_t* weights, const uint8_t* gradient) {
  const float lr = scalars.learning_rate;
  const float decay = params.weight_decay;
  ForElements(dim, [&](uint32_t i, uint32_t) {
    const float w = Weight::Load(weights, i);
    const float d = Decayed(Gradient::Load(gradient, i), w, decay);
    Weight::Store(weights, i, w - lr * d);
  });
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateAdagrad(const OptimizerParams& params, const UpdateScalars& scalars,
                                 uint32_t dim, uint8_t* weights, uint8_t* state,
                                 const uint8_t* gradient) {
  const float lr = scalars.learning_rate;
  const float decay = params.weight_decay;
  const float epsilon = params.epsilon;
  ForElements(dim, [&](uint32_t i, uint32_t) {
    const float w = Weight::Load(weights, i);
    const float d = Decayed(Gradient::Load(gradient, i), w, decay);
    const float s = Fp32Codec::Load(state, i) + d * d;
    Fp32Codec::Store(state, i, s);
    Weight::Store(weights, i, w - lr * d / (__builtin_sqrtf(s) + epsilon));
  });
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateRowwiseAdagrad(const OptimizerParams& params, const UpdateScalars& scalars,
                                        uint32_t dim, uint8_t* weights, uint8_t* state,
                                        const uint8_t* gradient) {
  const float decay = params.weight_decay;
  float lanes[kLanes] = {};
  ForElements(dim, [&](uint32_t i, uint32_t lane) {
    const float d = Decayed(Gradient::Load(gradient, i), Weight::Load(weights, i), decay);
    lanes[lane] += d * d;
  });
  const float s = Fp32Codec::Load(state, 0) + TreeSum(lanes) / static_cast<float>(dim);
  Fp32Codec::Store(state, 0, s);
  const float step = scalars.learning_rate / (__builtin_sqrtf(s) + params.epsilon);
  ForElements(dim, [&](uint32_t i, uint32_t) {
    const float w = Weight::Load(weights, i);
    const float d = Decayed(Gradient::Load(gradient, i), w, decay);
    Weight::Store(weights, i, w - step * d);
  });
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateAdam(const OptimizerParams& params, const UpdateScalars& scalars,
                              uint32_t dim, uint8_t* weights, uint8_t* state,
                              const uint8_t* gradient) {
  uint8_t* second = state + 4ull * dim;
  const float lr = scalars.learning_rate;
  const float decay = params.weight_decay;
  const float beta1 = params.beta1;
  const float beta2 = params.beta2;
  ForElements(dim, [&](uint32_t i, uint32_t) {
    const float w = Weight::Load(weights, i);
    const float d = Decayed(Gradient::Load(gradient, i), w, decay);
    const float m = beta1 * Fp32Codec::Load(state, i) + (1.0f - beta1) * d;
    const float v = beta2 * Fp32Codec::Load(second, i) + (1.0f - beta2) * (d * d);
    Fp32Codec::Store(state, i, m);
    Fp32Codec::Store(second, i, v);
    const float denominator = __builtin_sqrtf(v / scalars.bias_correction2) + params.epsilon;
    Weight::Store(weights, i, w - lr * (m / scalars.bias_correction1) / denominator);
  });
}

// `state` holds StateElements(kind, dim) fp32 elements and may be null for SGD. Pointers need no
// alignment.
template <OptimizerKind kKind, typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateRow(const OptimizerParams& params, const UpdateScalars& scalars,
                             uint32_t dim, uint8_t* weights, uint8_t* state,
                             const uint8_t* gradient) {
  if constexpr (kKind == OptimizerKind::kSgd) {
    UpdateSgd<Weight, Gradient>(params, scalars, dim, weights, gradient);
  } else if constexpr (kKind == OptimizerKind::kAdagrad) {
    UpdateAdagrad<Weight, Gradient>(params, scalars, dim, weights, state, gradient);
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    UpdateRowwiseAdagrad<Weight, Gradient>(params, scalars, dim, weights, state, gradient);
  } else {
    UpdateAdam<Weight, Gradient>(params, scalars, dim, weights, state, gradient);
  }
}

}  // namespace HOTBED_ISA

// What a push fixes once, on the host, before it is logged (DECISIONS L6): `step` counts from 1 (0
// is taken as 1). Powers by repeated squaring in double precision: exact enough, and the same on
// every machine.
inline UpdateScalars ResolveScalars(const OptimizerParams& params, float learning_rate,
                                    uint64_t step) {
  UpdateScalars scalars;
  scalars.learning_rate = learning_rate;
  if (params.kind != OptimizerKind::kAdam) return scalars;
  const auto power = [](double base, uint64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1) {
      if (exponent & 1) result *= base;
      base *= base;
    }
    return result;
  };
  const uint64_t t = step > 0 ? step : 1;
  scalars.bias_correction1 = static_cast<float>(1.0 - power(params.beta1, t));
  scalars.bias_correction2 = static_cast<float>(1.0 - power(params.beta2, t));
  return scalars;
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_OPTIMIZER_H_
