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
//   row-wise Adagrad with a count: s as row-wise Adagrad's, a = lr / (sqrt(s) + epsilon); count =
//                     count * 2^(-steps since the last update / half_life) + 1
//                     w = f * w - rate * g; rate = a and f = 1 up to step counter_from_step, then:
//     all but the last two:  f = 1 - (half_life / count, or 1 without one) * weight_decay * q; q =
//                     a under L2, lr if decoupled. And for rows whose count is above the threshold:
//     tail increase   rate = a * (max / (count + 1)) ^ power, the factor within [1, 10]
//     tail decrease   rate = a * ((count + 1) / max) ^ power, the factor within [0.1, 1]
//     counter SGD     rate = lr / (sqrt(power * count) + epsilon)
//     Adagrad-W       h = 1 - lr * weight_decay; n = steps since the last update, at most those
//                     since counter_from_step; rate = a * sqrt(count) * h^(n - 1); f = h^n
//     CowClip         rate = a * min(1, count * max(clip_coefficient * |w|, clip_least) / |d|)
//                     f = 1 - weight_decay * q; q = rate under L2, lr if decoupled; from step 1
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
//   AMSGrad           as Adam, with the largest v so far in place of v in the last line
//   partial row-wise Adam: as Adam, with one v per row, of (sum over the row of d * d) / dim
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
// Hutter, ICLR 2019 (decoupled decay); S. Reddi et al., ICLR 2018 (AMSGrad, as PyTorch has it); Y.
// You et al., ICLR 2020 (LAMB) and arXiv 1708.03888 (LARS); H. B. McMahan et al., KDD 2013 (FTRL);
// T. Tieleman, G. Hinton, 2012 (RMSProp, as PyTorch has it); X. Chen et al., arXiv 2302.06675
// (Lion); M. Zeiler, arXiv 1212.5701 (Adadelta, as PyTorch has it); FBGEMM's
// rowwise_adagrad_with_counter, and Z. Zheng et al., AAAI 2023 (CowClip).
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

// The elements of a row, block by block; at most two vectors of state.
template <OptimizerKind kKind, typename Weight, typename Gradient>
HOTBED_ROW_FN void UpdateElements(const StepScalars& p, float rate, uint32_t dim, uint8_t* weights,
                                  uint8_t* state, const uint8_t* gradient) {
  constexpr uint32_t kVectors = TraitsOf(kKind).vectors;
  static_assert(kVectors <= 2);
  const Measured row = {rate, 0.0f};
  BlockPlaces at = {weights, state, kVectors > 1 ? state + 4ull * dim : state, nullptr, gradient};
  for (; dim >= kLanes; dim -= kLanes) {
    StepBlock<kKind, Weight, Gradient>(p, row, at);
    at.w += Weight::kBytes * kLanes;
    if constexpr (kVectors > 0) at.first += 4 * kLanes;
    if constexpr (kVectors > 1) at.second += 4 * kLanes;
    at.g += Gradient::kBytes * kLanes;
  }
  if (dim == 0) return;
  float w[kLanes], first[kLanes], second[kLanes], g[kLanes];
  LoadTail<Weight>(at.w, dim, w);
  if constexpr (kVectors > 0) LoadTail<Fp32Codec>(at.first, dim, first);
  if constexpr (kVectors > 1) LoadTail<Fp32Codec>(at.second, dim, second);
  LoadTail<Gradient>(at.g, dim, g);
  StepBlock<kKind, Fp32Codec, Fp32Codec>(
      p, row, {AsBytes(w), AsBytes(first), AsBytes(second), nullptr, AsBytes(g)});
  if constexpr (kVectors > 0) StoreTail<Fp32Codec>(at.first, dim, first);
  if constexpr (kVectors > 1) StoreTail<Fp32Codec>(at.second, dim, second);
  StoreTail<Weight>(at.w, dim, w);
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
  float rate = p.lr;
  if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    const float sum = SumOfSquares<Weight, Gradient>(p.decay, dim, weights, gradient);
    const float s = Fp32Codec::Load(state, 0) + sum / static_cast<float>(dim);
    Fp32Codec::Store(state, 0, s);
    rate = RowwiseRate(p, s);
  }
  UpdateElements<kKind, Weight, Gradient>(p, rate, dim, weights, state, gradient);
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
