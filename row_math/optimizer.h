// One optimizer step of one row: the formulas of all kinds, and the short path for the four most
// common kinds (row_math/row_update.h is the path for all kinds and options).
//
// Gradient g, weights w, learning rate lr, all in fp32; weights and state are converted on load and
// store. Weight decay enters in one of two ways: L2, d = g + weight_decay * w in place of g and
// shrink = 1; or decoupled, d = g and shrink = 1 - lr * weight_decay:
//
//   SGD               w = shrink * w - lr * d
//   momentum SGD      m = momentum * m + d;                w = shrink * w - lr * m
//   Adagrad           s += d * d;           w = shrink * w - lr * d / (sqrt(s) + epsilon)
//   row-wise Adagrad  s += (sum over the row of d * d) / dim
//                     w = shrink * w - (lr / (sqrt(s) + epsilon)) * d
//   RMSProp           v = beta2 * v + (1 - beta2) * d * d
//                     w = shrink * w - lr * d / (sqrt(v) + epsilon)
//   row-wise RMSProp: the same, with one v per row, of (sum over the row of d * d) / dim
//   Lion              c = beta1 * m + (1 - beta1) * g;  m = beta2 * m + (1 - beta2) * g
//                     w = shrink * w - lr * sign(c); its decay is always decoupled
//   Adadelta          v = beta2 * v + (1 - beta2) * d * d
//                     r = sqrt(u + epsilon) / sqrt(v + epsilon) * d
//                     u = beta2 * u + (1 - beta2) * r * r;  w = shrink * w - lr * r
//   Adam, AdamW       m = beta1 * m + (1 - beta1) * d;  v = beta2 * v + (1 - beta2) * d * d
//                     w = shrink * w - lr * (m / bias_correction1)
//                                    / (sqrt(v / bias_correction2) + epsilon)
//   partial row-wise Adam: the same, with one v per row, of (sum over the row of d * d) / dim
//   LAMB              m, v as Adam's, of g;
//                     r = (m / bias_correction1) / (sqrt(v / bias_correction2) + epsilon)
//                         + weight_decay * w
//                     w -= lr * (|w| / |r|) * r; the ratio is 1 where either norm is 0
//   partial row-wise LAMB: the same, with one v per row, of (sum over the row of g * g) / dim
//   LARS              rate = lr * trust * |w| / (|g| + weight_decay * |w|); lr where |w| or the
//                     denominator is 0;  m = momentum * m + rate * (g + weight_decay * w);  w -= m
//   FTRL-proximal     n' = n + g * g;  z += g - ((sqrt(n') - sqrt(n)) / lr) * w;  n = n'
//                     w = 0 where |z| <= l1, else
//                     w = (sign(z) * l1 - z) / ((ftrl_beta + sqrt(n)) / lr + l2);
//                     a learning rate of 0 leaves the row as it is
//   none              nothing
//
// Divisors that all elements of a row share are inverted once: 1 / bias_correction1,
// 1 / sqrt(bias_correction2), FTRL's 1 / lr.
//
// Sources: J. Duchi et al., JMLR 12 (2011); D. Mudigere et al., ISCA 2022 (row-wise Adagrad: mean
// of squares, epsilon outside the root, as FBGEMM); D. Kingma, J. Ba, ICLR 2015; I. Loshchilov, F.
// Hutter, ICLR 2019 (decoupled decay); Y. You et al., ICLR 2020 (LAMB) and arXiv 1708.03888 (LARS);
// H. B. McMahan et al., KDD 2013 (FTRL); T. Tieleman, G. Hinton, 2012 (RMSProp, as PyTorch has it);
// X. Chen et al., arXiv 2302.06675 (Lion); M. Zeiler, arXiv 1212.5701 (Adadelta, as PyTorch has
// it).
//
// The bits are the same on every instruction set and on CPU and GPU: no contraction,
// IEEE division and square root, element-wise in the order written, and sums over a row as
// row_math/row_blocks.h has them.
#ifndef HOTBED_ROW_MATH_OPTIMIZER_H_
#define HOTBED_ROW_MATH_OPTIMIZER_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/optimizer_blocks.h"
#include "row_math/powers.h"
#include "row_math/row_blocks.h"
#include "row_math/types.h"

namespace hotbed {
inline namespace HOTBED_ISA {

template <typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateScaled(float rate, const StepScalars& p, uint32_t dim, uint8_t* weights,
                                const uint8_t* gradient) {
  for (; dim >= kLanes; dim -= kLanes) {
    ScaledBlock<Weight, Gradient>(rate, p.decay, p.shrink, weights, gradient);
    weights += Weight::kBytes * kLanes;
    gradient += Gradient::kBytes * kLanes;
  }
  if (dim == 0) return;
  float w[kLanes], g[kLanes];
  LoadTail<Weight>(weights, dim, w);
  LoadTail<Gradient>(gradient, dim, g);
  ScaledBlock<Fp32Codec, Fp32Codec>(rate, p.decay, p.shrink, AsBytes(w), AsBytes(g));
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
  UpdateScaled<Weight, Gradient>(RowwiseRate(p, s), p, dim, weights, gradient);
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

// The kinds that UpdateRow knows; AdamW and Adam differ in the scalars alone.
HOTBED_HD constexpr bool HasShortWay(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd || kind == OptimizerKind::kAdagrad ||
         kind == OptimizerKind::kRowwiseAdagrad || kind == OptimizerKind::kAdam ||
         kind == OptimizerKind::kAdamW;
}

// The short path, for a kind of HasShortWay, fp32 state, and no option but weight decay. `state` is
// laid out as row_math/types.h says and may be null if it has no bytes. Pointers need no
// alignment.
template <OptimizerKind kKind, typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateRow(const OptimizerParams& params, const UpdateScalars& scalars,
                             uint32_t dim, uint8_t* weights, uint8_t* state,
                             const uint8_t* gradient) {
  static_assert(HasShortWay(kKind));
  const StepScalars p = MakeStepScalars(params, scalars);
  if constexpr (kKind == OptimizerKind::kSgd) {
    UpdateScaled<Weight, Gradient>(p.lr, p, dim, weights, gradient);
  } else if constexpr (kKind == OptimizerKind::kAdagrad) {
    UpdateAdagrad<Weight, Gradient>(p, dim, weights, state, gradient);
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    UpdateRowwiseAdagrad<Weight, Gradient>(p, dim, weights, state, gradient);
  } else {
    UpdateAdam<Weight, Gradient>(p, dim, weights, state, gradient);
  }
}

}  // namespace HOTBED_ISA

// The scalars of a push, resolved once on the host before the push is logged. `step` counts from 1
// (0 is taken as 1).
inline UpdateScalars ResolveScalars(const OptimizerParams& params, float learning_rate,
                                    uint64_t step) {
  UpdateScalars scalars;
  scalars.learning_rate = learning_rate;
  scalars.clip_value = params.clip_value;
  scalars.clip_row_norm = params.clip_row_norm;
  scalars.step = step;
  if (!IsAdamKind(params.kind)) return scalars;
  scalars.bias_correction1 = BiasCorrection(params.beta1, step);
  scalars.bias_correction2 = BiasCorrection(params.beta2, step);
  return scalars;
}

}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_OPTIMIZER_H_
