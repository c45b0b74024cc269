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

#if defined(__GNUC__) && !defined(__CUDACC__)
// lanes[l] += lanes[l + kHalf] for l < kHalf, as one vector: GCC takes a plain loop apart here.
template <uint32_t kHalf>
HOTBED_ROW_FN void AddUpperHalf(float* lanes) {
  typedef float Vector __attribute__((vector_size(4 * kHalf)));
  Vector low, high;
  __builtin_memcpy(&low, lanes, sizeof(low));
  __builtin_memcpy(&high, lanes + kHalf, sizeof(high));
  low += high;
  __builtin_memcpy(lanes, &low, sizeof(low));
}
#else
template <uint32_t kHalf>
HOTBED_ROW_FN void AddUpperHalf(float* lanes) {
  for (uint32_t l = 0; l < kHalf; ++l) lanes[l] += lanes[l + kHalf];
}
#endif

// Joins the lanes; destroys them.
HOTBED_ROW_FN float TreeSum(float* lanes) {
  AddUpperHalf<16>(lanes);
  AddUpperHalf<8>(lanes);
  AddUpperHalf<4>(lanes);
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

HOTBED_ROW_FN float Decayed(float gradient, float weight, float weight_decay) {
  return gradient + weight_decay * weight;
}

// Rows are worked on in blocks of 32 elements: loops with a constant count and independent turns,
// which is what vectorises. The last, shorter piece of a row is copied to a block of its own, where
// the elements beyond the row's end are zeros and add nothing to any sum.
template <typename Codec>
HOTBED_ROW_FN void LoadTail(const uint8_t* from, uint32_t count, float* block) {
  for (uint32_t l = 0; l < kLanes; ++l) block[l] = 0.0f;
  for (uint32_t l = 0; l < count; ++l) block[l] = Codec::Load(from, l);
}

template <typename Codec>
HOTBED_ROW_FN void StoreTail(uint8_t* to, uint32_t count, const float* block) {
  for (uint32_t l = 0; l < count; ++l) Codec::Store(to, l, block[l]);
}

HOTBED_ROW_FN uint8_t* AsBytes(float* block) { return reinterpret_cast<uint8_t*>(block); }

// One block of each formula: 32 weights, 32 gradients, 32 elements of each state. Plain values, so
// that no store can change them.
struct StepScalars {
  float lr;
  float decay;
  float epsilon;
  float beta1;
  float beta2;
  float correction1;
  float correction2;
};

HOTBED_ROW_FN StepScalars MakeStepScalars(const OptimizerParams& params,
                                          const UpdateScalars& scalars) {
  return {scalars.learning_rate, params.weight_decay,      params.epsilon,          params.beta1,
          params.beta2,          scalars.bias_correction1, scalars.bias_correction2};
}

// w -= rate * d
template <typename Weight, typename Gradient>
HOTBED_ROW_FN void ScaledBlock(float rate, float decay, uint8_t* w, const uint8_t* g) {
  HOTBED_INDEPENDENT
  for (uint32_t l = 0; l < kLanes; ++l) {
    const float weight = Weight::Load(w, l);
    const float d = Decayed(Gradient::Load(g, l), weight, decay);
    Weight::Store(w, l, weight - rate * d);
  }
}

// sum[l] += d * d
template <typename Weight, typename Gradient>
HOTBED_ROW_FN void SquaresBlock(float decay, const uint8_t* w, const uint8_t* g, float* sum) {
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
    Weight::Store(w, l, weight - p.lr * d / (__builtin_sqrtf(square) + p.epsilon));
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
    const float denominator = __builtin_sqrtf(second / p.correction2) + p.epsilon;
    Weight::Store(w, l, weight - p.lr * (first / p.correction1) / denominator);
  }
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateScaled(float rate, float decay, uint32_t dim, uint8_t* weights,
                                const uint8_t* gradient) {
  for (; dim >= kLanes; dim -= kLanes) {
    ScaledBlock<Weight, Gradient>(rate, decay, weights, gradient);
    weights += Weight::kBytes * kLanes;
    gradient += Gradient::kBytes * kLanes;
  }
  if (dim == 0) return;
  float w[kLanes], g[kLanes];
  LoadTail<Weight>(weights, dim, w);
  LoadTail<Gradient>(gradient, dim, g);
  ScaledBlock<Fp32Codec, Fp32Codec>(rate, decay, AsBytes(w), AsBytes(g));
  StoreTail<Weight>(weights, dim, w);
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN float SumOfSquares(float decay, uint32_t dim, const uint8_t* weights,
                                 const uint8_t* gradient) {
  float sum[kLanes] = {};
  for (; dim >= kLanes; dim -= kLanes) {
    SquaresBlock<Weight, Gradient>(decay, weights, gradient, sum);
    weights += Weight::kBytes * kLanes;
    gradient += Gradient::kBytes * kLanes;
  }
  if (dim > 0) {
    float w[kLanes], g[kLanes];
    LoadTail<Weight>(weights, dim, w);
    LoadTail<Gradient>(gradient, dim, g);
    SquaresBlock<Fp32Codec, Fp32Codec>(decay, AsBytes(w), AsBytes(g), sum);
  }
  return TreeSum(sum);
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateRowwiseAdagrad(const StepScalars& p, uint32_t dim, uint8_t* weights,
                                        uint8_t* state, const uint8_t* gradient) {
  const float sum = SumOfSquares<Weight, Gradient>(p.decay, dim, weights, gradient);
  const float s = Fp32Codec::Load(state, 0) + sum / static_cast<float>(dim);
  Fp32Codec::Store(state, 0, s);
  UpdateScaled<Weight, Gradient>(p.lr / (__builtin_sqrtf(s) + p.epsilon), p.decay, dim, weights,
                                 gradient);
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateAdagrad(const StepScalars& p, uint32_t dim, uint8_t* weights,
                                 uint8_t* state, const uint8_t* gradient) {
  for (; dim >= kLanes; dim -= kLanes) {
    AdagradBlock<Weight, Gradient>(p, weights, state, gradient);
    weights += Weight::kBytes * kLanes;
    state += 4 * kLanes;
    gradient += Gradient::kBytes * kLanes;
  }
  if (dim == 0) return;
  float w[kLanes], s[kLanes], g[kLanes];
  LoadTail<Weight>(weights, dim, w);
  LoadTail<Fp32Codec>(state, dim, s);
  LoadTail<Gradient>(gradient, dim, g);
  AdagradBlock<Fp32Codec, Fp32Codec>(p, AsBytes(w), AsBytes(s), AsBytes(g));
  StoreTail<Fp32Codec>(state, dim, s);
  StoreTail<Weight>(weights, dim, w);
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateAdam(const StepScalars& p, uint32_t dim, uint8_t* weights, uint8_t* state,
                              const uint8_t* gradient) {
  uint8_t* second = state + 4ull * dim;
  for (; dim >= kLanes; dim -= kLanes) {
    AdamBlock<Weight, Gradient>(p, weights, state, second, gradient);
    weights += Weight::kBytes * kLanes;
    state += 4 * kLanes;
    second += 4 * kLanes;
    gradient += Gradient::kBytes * kLanes;
  }
  if (dim == 0) return;
  float w[kLanes], m[kLanes], v[kLanes], g[kLanes];
  LoadTail<Weight>(weights, dim, w);
  LoadTail<Fp32Codec>(state, dim, m);
  LoadTail<Fp32Codec>(second, dim, v);
  LoadTail<Gradient>(gradient, dim, g);
  AdamBlock<Fp32Codec, Fp32Codec>(p, AsBytes(w), AsBytes(m), AsBytes(v), AsBytes(g));
  StoreTail<Fp32Codec>(state, dim, m);
  StoreTail<Fp32Codec>(second, dim, v);
  StoreTail<Weight>(weights, dim, w);
}

// `state` is laid out as row_math/types.h says and may be null where it has no bytes. Pointers need
// no alignment.
template <OptimizerKind kKind, typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateRow(const OptimizerParams& params, const UpdateScalars& scalars,
                             uint32_t dim, uint8_t* weights, uint8_t* state,
                             const uint8_t* gradient) {
  const StepScalars p = MakeStepScalars(params, scalars);
  if constexpr (kKind == OptimizerKind::kSgd) {
    UpdateScaled<Weight, Gradient>(p.lr, p.decay, dim, weights, gradient);
  } else if constexpr (kKind == OptimizerKind::kAdagrad) {
    UpdateAdagrad<Weight, Gradient>(p, dim, weights, state, gradient);
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    UpdateRowwiseAdagrad<Weight, Gradient>(p, dim, weights, state, gradient);
  } else {
    UpdateAdam<Weight, Gradient>(p, dim, weights, state, gradient);
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
  scalars.clip_value = params.clip_value;
  scalars.clip_row_norm = params.clip_row_norm;
  scalars.step = step;
  if (!IsAdamKind(params.kind)) return scalars;
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
