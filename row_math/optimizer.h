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

template <uint32_t kHalf>
HOTBED_ROW_FN void AddUpperHalf(float* lanes) {
  for (uint32_t l = 0; l < kHalf; ++l) lanes[l] += lanes[l + kHalf];
}

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

// 32 elements of a row, as fp32. Rows are worked on block by block: loops over a block have a
// constant count and touch nothing but local arrays, which is what vectorises. Elements beyond the
// row's end read as zero, which adds nothing to any sum.
struct Block {
  float v[kLanes];
};

template <typename Codec>
HOTBED_ROW_FN void LoadBlock(const uint8_t* from, uint32_t first, uint32_t dim, Block* block) {
  const uint8_t* at = from + uint64_t{Codec::kBytes} * first;
  if (dim - first >= kLanes) {
    for (uint32_t l = 0; l < kLanes; ++l) block->v[l] = Codec::Load(at, l);
    return;
  }
  for (uint32_t l = 0; l < kLanes; ++l) block->v[l] = 0.0f;
  for (uint32_t l = 0; l < dim - first; ++l) block->v[l] = Codec::Load(at, l);
}

template <typename Codec>
HOTBED_ROW_FN void StoreBlock(uint8_t* to, uint32_t first, uint32_t dim, const Block& block) {
  uint8_t* at = to + uint64_t{Codec::kBytes} * first;
  if (dim - first >= kLanes) {
    for (uint32_t l = 0; l < kLanes; ++l) Codec::Store(at, l, block.v[l]);
    return;
  }
  for (uint32_t l = 0; l < dim - first; ++l) Codec::Store(at, l, block.v[l]);
}

// Weights and the gradient with its decay.
template <typename Weight, typename Gradient>
HOTBED_ROW_FN void LoadStep(const uint8_t* weights, const uint8_t* gradient, uint32_t first,
                            uint32_t dim, float decay, Block* w, Block* d) {
  LoadBlock<Weight>(weights, first, dim, w);
  LoadBlock<Gradient>(gradient, first, dim, d);
  for (uint32_t l = 0; l < kLanes; ++l) d->v[l] = Decayed(d->v[l], w->v[l], decay);
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateSgd(const OptimizerParams& params, const UpdateScalars& scalars,
                             uint32_t dim, uint8_t* weights, const uint8_t* gradient) {
  const float lr = scalars.learning_rate;
  for (uint32_t first = 0; first < dim; first += kLanes) {
    Block w, d;
    LoadStep<Weight, Gradient>(weights, gradient, first, dim, params.weight_decay, &w, &d);
    for (uint32_t l = 0; l < kLanes; ++l) w.v[l] -= lr * d.v[l];
    StoreBlock<Weight>(weights, first, dim, w);
  }
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateAdagrad(const OptimizerParams& params, const UpdateScalars& scalars,
                                 uint32_t dim, uint8_t* weights, uint8_t* state,
                                 const uint8_t* gradient) {
  const float lr = scalars.learning_rate;
  const float epsilon = params.epsilon;
  for (uint32_t first = 0; first < dim; first += kLanes) {
    Block w, d, s;
    LoadStep<Weight, Gradient>(weights, gradient, first, dim, params.weight_decay, &w, &d);
    LoadBlock<Fp32Codec>(state, first, dim, &s);
    for (uint32_t l = 0; l < kLanes; ++l) s.v[l] += d.v[l] * d.v[l];
    for (uint32_t l = 0; l < kLanes; ++l) {
      w.v[l] -= lr * d.v[l] / (__builtin_sqrtf(s.v[l]) + epsilon);
    }
    StoreBlock<Fp32Codec>(state, first, dim, s);
    StoreBlock<Weight>(weights, first, dim, w);
  }
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateRowwiseAdagrad(const OptimizerParams& params, const UpdateScalars& scalars,
                                        uint32_t dim, uint8_t* weights, uint8_t* state,
                                        const uint8_t* gradient) {
  const float decay = params.weight_decay;
  Block sum = {};
  for (uint32_t first = 0; first < dim; first += kLanes) {
    Block w, d;
    LoadStep<Weight, Gradient>(weights, gradient, first, dim, decay, &w, &d);
    for (uint32_t l = 0; l < kLanes; ++l) sum.v[l] += d.v[l] * d.v[l];
  }
  const float s = Fp32Codec::Load(state, 0) + TreeSum(sum.v) / static_cast<float>(dim);
  Fp32Codec::Store(state, 0, s);
  const float step = scalars.learning_rate / (__builtin_sqrtf(s) + params.epsilon);
  for (uint32_t first = 0; first < dim; first += kLanes) {
    Block w, d;
    LoadStep<Weight, Gradient>(weights, gradient, first, dim, decay, &w, &d);
    for (uint32_t l = 0; l < kLanes; ++l) w.v[l] -= step * d.v[l];
    StoreBlock<Weight>(weights, first, dim, w);
  }
}

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateAdam(const OptimizerParams& params, const UpdateScalars& scalars,
                              uint32_t dim, uint8_t* weights, uint8_t* state,
                              const uint8_t* gradient) {
  uint8_t* second = state + 4ull * dim;
  const float lr = scalars.learning_rate;
  const float beta1 = params.beta1;
  const float beta2 = params.beta2;
  const float correction1 = scalars.bias_correction1;
  const float correction2 = scalars.bias_correction2;
  const float epsilon = params.epsilon;
  for (uint32_t first = 0; first < dim; first += kLanes) {
    Block w, d, m, v;
    LoadStep<Weight, Gradient>(weights, gradient, first, dim, params.weight_decay, &w, &d);
    LoadBlock<Fp32Codec>(state, first, dim, &m);
    LoadBlock<Fp32Codec>(second, first, dim, &v);
    for (uint32_t l = 0; l < kLanes; ++l) {
      m.v[l] = beta1 * m.v[l] + (1.0f - beta1) * d.v[l];
      v.v[l] = beta2 * v.v[l] + (1.0f - beta2) * (d.v[l] * d.v[l]);
    }
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float denominator = __builtin_sqrtf(v.v[l] / correction2) + epsilon;
      w.v[l] -= lr * (m.v[l] / correction1) / denominator;
    }
    StoreBlock<Fp32Codec>(state, first, dim, m);
    StoreBlock<Fp32Codec>(second, first, dim, v);
    StoreBlock<Weight>(weights, first, dim, w);
  }
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
