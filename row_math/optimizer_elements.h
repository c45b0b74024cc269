// Every optimizer's formula for one element of a row, and for the row's own numbers; the formulas
// are in row_math/optimizer.h. Pure functions of fp32 values: the CPU's blocks (optimizer_blocks.h,
// row_update.h) and the device's lanes (device/row_step.h) are loops around these, so that both
// give the same bits.
#ifndef HOTBED_ROW_MATH_OPTIMIZER_ELEMENTS_H_
#define HOTBED_ROW_MATH_OPTIMIZER_ELEMENTS_H_

#include <cstdint>

#include "row_math/isa.h"
#include "row_math/powers.h"
#include "row_math/types.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Whether weight decay shrinks the weights separately from the step. For SGD the two modes are one
// formula except for rounding, so lazy decay uses the decoupled one.
HOTBED_ROW_FN bool DecaysDecoupled(const OptimizerParams& params) {
  if (params.kind == OptimizerKind::kSgd && params.lazy_decay) return true;
  const DecayWay way = TraitsOf(params.kind).decay;
  return way == DecayWay::kDecoupled ||
         (way == DecayWay::kChoice && params.decay_mode == DecayMode::kDecoupled);
}

// 1 - learning_rate * weight_decay: the factor of a weight in one step of decoupled decay.
HOTBED_ROW_FN double ShrinkOfStep(const OptimizerParams& params, const UpdateScalars& scalars) {
  return 1.0 - static_cast<double>(scalars.learning_rate) * params.weight_decay;
}

// The values of a step that only kRowwiseAdagradCounter needs.
struct CounterStep {
  CounterParams params;
  float weight_decay;   // of either mode
  uint32_t steps_from;  // above params.from_step; 0: the count changes nothing yet
  float count;          // the row's
  uint32_t steps;       // since the row's last update
};

// Plain values, so that no store can change them. Divisors that all elements share are inverted
// once. One of `decay` and `shrink` is always neutral (0 and 1), so every formula may use both and
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
  float average_kept;  // what the row's average keeps of its distance from the weights; 1: it stays
  CounterStep counter;
};

HOTBED_ROW_FN void SetBiasCorrections(float correction1, float correction2, StepScalars* p) {
  p->inverse1 = 1.0f / correction1;
  p->inverse2 = 1.0f / __builtin_sqrtf(correction2);
}

HOTBED_ROW_FN StepScalars MakeStepScalars(const OptimizerParams& params,
                                          const UpdateScalars& scalars) {
  const bool decoupled = DecaysDecoupled(params);
  StepScalars p = {};
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
  p.average_kept = 1.0f;
  if (!CountsUpdates(params.kind)) return p;
  p.counter.params = params.counter;
  p.counter.weight_decay = params.weight_decay;
  const uint64_t from = params.counter.from_step;
  const uint64_t steps = scalars.step > from ? scalars.step - from : 0;
  p.counter.steps_from = steps < 0xffffffffu ? static_cast<uint32_t>(steps) : 0xffffffffu;
  return p;
}

HOTBED_ROW_FN float Decayed(float gradient, float weight, float weight_decay) {
  return gradient + weight_decay * weight;
}

// A weight and its state, before or after a step; parts that the kind does not have are anything.
// After a step of LAMB's kinds `w` is the direction; the weight stays.
struct Moved {
  float w;
  float first;
  float second;
  float third;
};

// The numbers that a row's elements share: lr or the row's own rate, and a second factor.
struct Measured {
  float rate;
  float factor;
};

// w = shrink * w - rate * d
HOTBED_ROW_FN float ScaledElement(float rate, float decay, float shrink, float w, float g) {
  const float d = Decayed(g, w, decay);
  return shrink * w - rate * d;
}

HOTBED_ROW_FN Moved AdagradElement(const StepScalars& p, float w, float s, float g) {
  const float d = Decayed(g, w, p.decay);
  const float square = s + d * d;
  return {p.shrink * w - p.lr * d / (__builtin_sqrtf(square) + p.epsilon), square, 0.0f, 0.0f};
}

HOTBED_ROW_FN Moved AdamElement(const StepScalars& p, float w, float m, float v, float g) {
  const float d = Decayed(g, w, p.decay);
  const float first = p.beta1 * m + (1.0f - p.beta1) * d;
  const float second = p.beta2 * v + (1.0f - p.beta2) * (d * d);
  const float denominator = __builtin_sqrtf(second) * p.inverse2 + p.epsilon;
  return {p.shrink * w - p.lr * (first * p.inverse1) / denominator, first, second, 0.0f};
}

// `most`: the largest second moment so far.
HOTBED_ROW_FN Moved AmsGradElement(const StepScalars& p, float w, float m, float v, float most,
                                   float g) {
  const float d = Decayed(g, w, p.decay);
  const float first = p.beta1 * m + (1.0f - p.beta1) * d;
  const float second = p.beta2 * v + (1.0f - p.beta2) * (d * d);
  const float third = second > most ? second : most;
  const float denominator = __builtin_sqrtf(third) * p.inverse2 + p.epsilon;
  return {p.shrink * w - p.lr * (first * p.inverse1) / denominator, first, second, third};
}

HOTBED_ROW_FN Moved MomentumElement(const StepScalars& p, float w, float m, float g) {
  const float d = Decayed(g, w, p.decay);
  const float velocity = p.momentum * m + d;
  return {p.shrink * w - p.lr * velocity, velocity, 0.0f, 0.0f};
}

HOTBED_ROW_FN Moved RmsPropElement(const StepScalars& p, float w, float v, float g) {
  const float d = Decayed(g, w, p.decay);
  const float second = p.beta2 * v + (1.0f - p.beta2) * (d * d);
  return {p.shrink * w - p.lr * d / (__builtin_sqrtf(second) + p.epsilon), second, 0.0f, 0.0f};
}

// Decay is decoupled.
HOTBED_ROW_FN Moved LionElement(const StepScalars& p, float w, float m, float g) {
  const float mixed = p.beta1 * m + (1.0f - p.beta1) * g;
  const float sign = mixed > 0.0f ? 1.0f : mixed < 0.0f ? -1.0f : 0.0f;
  return {p.shrink * w - p.lr * sign, p.beta2 * m + (1.0f - p.beta2) * g, 0.0f, 0.0f};
}

// v: the average of squared gradients, u: of squared steps. Epsilon is inside the roots.
HOTBED_ROW_FN Moved AdadeltaElement(const StepScalars& p, float w, float v, float u, float g) {
  const float d = Decayed(g, w, p.decay);
  const float first = p.beta2 * v + (1.0f - p.beta2) * (d * d);
  const float step = __builtin_sqrtf(u + p.epsilon) / __builtin_sqrtf(first + p.epsilon) * d;
  const float second = p.beta2 * u + (1.0f - p.beta2) * (step * step);
  return {p.shrink * w - p.lr * step, first, second, 0.0f};
}

// `rate` is the row's own: lr / bias_correction1 / (sqrt(v / bias_correction2) + epsilon).
HOTBED_ROW_FN Moved PartialAdamElement(const StepScalars& p, float rate, float w, float m,
                                       float g) {
  const float d = Decayed(g, w, p.decay);
  const float first = p.beta1 * m + (1.0f - p.beta1) * d;
  return {p.shrink * w - rate * first, first, 0.0f, 0.0f};
}

// `decay` is LAMB's own, on the direction.
HOTBED_ROW_FN Moved LambElement(const StepScalars& p, float w, float m, float v, float g) {
  const float first = p.beta1 * m + (1.0f - p.beta1) * g;
  const float second = p.beta2 * v + (1.0f - p.beta2) * (g * g);
  const float denominator = __builtin_sqrtf(second) * p.inverse2 + p.epsilon;
  return {first * p.inverse1 / denominator + p.decay * w, first, second, 0.0f};
}

// `scale` is the row's own: 1 / bias_correction1 / (sqrt(v / bias_correction2) + epsilon).
HOTBED_ROW_FN Moved PartialLambElement(const StepScalars& p, float scale, float w, float m,
                                       float g) {
  const float first = p.beta1 * m + (1.0f - p.beta1) * g;
  return {first * scale + p.decay * w, first, 0.0f, 0.0f};
}

// `rate` is the row's own.
HOTBED_ROW_FN Moved LarsElement(const StepScalars& p, float rate, float w, float m, float g) {
  const float d = Decayed(g, w, p.decay);
  const float velocity = p.momentum * m + rate * d;
  return {w - velocity, velocity, 0.0f, 0.0f};
}

// lr > 0. A denominator of zero (beta, l2 and n all zero) gives a weight of zero.
HOTBED_ROW_FN Moved FtrlElement(const StepScalars& p, float w, float z, float n, float g) {
  const float after = n + g * g;
  const float root = __builtin_sqrtf(after);
  const float sigma = (root - __builtin_sqrtf(n)) * p.inverse_lr;
  const float linear = z + (g - sigma * w);
  const float beyond = linear < 0.0f ? linear + p.l1 : linear - p.l1;
  const float size = linear < 0.0f ? -linear : linear;
  const float denominator = (p.ftrl_beta + root) * p.inverse_lr + p.l2;
  const float weight = -beyond / (denominator == 0.0f ? 1.0f : denominator);
  return {size <= p.l1 || denominator == 0.0f ? 0.0f : weight, linear, after, 0.0f};
}

// Step 3 of one element `x` with gradient g, for every kind but LAMB's and none.
template <OptimizerKind kKind>
HOTBED_ROW_FN Moved StepElement(const StepScalars& p, const Measured& row, const Moved& x,
                                float g) {
  if constexpr (kKind == OptimizerKind::kSgd || kKind == OptimizerKind::kRowwiseAdagrad ||
                kKind == OptimizerKind::kRowwiseRmsProp) {
    return {ScaledElement(row.rate, p.decay, p.shrink, x.w, g), 0.0f, 0.0f, 0.0f};
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagradCounter) {
    return {ScaledElement(row.rate, 0.0f, row.factor, x.w, g), 0.0f, 0.0f, 0.0f};
  } else if constexpr (kKind == OptimizerKind::kAdagrad) {
    return AdagradElement(p, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kAdam || kKind == OptimizerKind::kAdamW) {
    return AdamElement(p, x.w, x.first, x.second, g);
  } else if constexpr (kKind == OptimizerKind::kAmsGrad) {
    return AmsGradElement(p, x.w, x.first, x.second, x.third, g);
  } else if constexpr (kKind == OptimizerKind::kMomentumSgd) {
    return MomentumElement(p, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kRmsProp) {
    return RmsPropElement(p, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kLion) {
    return LionElement(p, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kAdadelta) {
    return AdadeltaElement(p, x.w, x.first, x.second, g);
  } else if constexpr (kKind == OptimizerKind::kPartialRowwiseAdam) {
    return PartialAdamElement(p, row.rate, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kLars) {
    return LarsElement(p, row.rate, x.w, x.first, g);
  } else {
    static_assert(kKind == OptimizerKind::kFtrl);
    return FtrlElement(p, x.w, x.first, x.second, g);
  }
}

// The direction of LAMB's kinds, as `w`.
template <OptimizerKind kKind>
HOTBED_ROW_FN Moved LambDirection(const StepScalars& p, float scale, const Moved& x, float g) {
  if constexpr (kKind == OptimizerKind::kLamb) return LambElement(p, x.w, x.first, x.second, g);
  return PartialLambElement(p, scale, x.w, x.first, g);
}

// The numbers of a whole row. `mean`: of the squares of its d or g.

// `squares`: row-wise Adagrad's sum, or row-wise RMSProp's average.
HOTBED_ROW_FN float RowwiseRate(const StepScalars& p, float squares) {
  return p.lr / (__builtin_sqrtf(squares) + p.epsilon);
}

HOTBED_ROW_FN float PartialSecond(const StepScalars& p, float before, float mean) {
  return p.beta2 * before + (1.0f - p.beta2) * mean;
}

// 1 / bias_correction1 / (the row's denominator).
HOTBED_ROW_FN float ScaleOfSecond(const StepScalars& p, float second) {
  return p.inverse1 / (__builtin_sqrtf(second) * p.inverse2 + p.epsilon);
}

// lr times LAMB's ratio, of the norms of the weights and of the direction.
HOTBED_ROW_FN float LambRateOf(const StepScalars& p, float length, float of_direction) {
  const bool zero = length == 0.0f || of_direction == 0.0f;
  return p.lr * (zero ? 1.0f : length / of_direction);
}

// From the norms of weights and gradient.
HOTBED_ROW_FN float LarsRateOf(const StepScalars& p, float length, float of_gradient) {
  const float denominator = of_gradient + p.decay * length;
  if (length == 0.0f || denominator == 0.0f) return p.lr;
  return p.lr * p.trust * length / denominator;
}

// A row's count after an update `steps` steps after its last one.
HOTBED_ROW_FN float CountAfter(float half_life, float count, uint32_t steps) {
  if (!(half_life > 0.0f)) return count + 1.0f;
  return static_cast<float>(1.0 + Exp2(-static_cast<double>(steps) / half_life) * count);
}

// The factor of the rate of row-wise Adagrad, by the row's count, in the tail modes.
HOTBED_ROW_FN float TailFactor(const CounterParams& o, float count) {
  const double above = static_cast<double>(count) + 1.0;
  if (o.mode == CounterMode::kTailIncrease) {
    const double factor = RealPower(o.most / above, o.power);
    return static_cast<float>(factor < 1.0 ? 1.0 : factor > 10.0 ? 10.0 : factor);
  }
  const double factor = RealPower(above / o.most, o.power);
  return static_cast<float>(factor < 0.1 ? 0.1 : factor > 1.0 ? 1.0 : factor);
}

HOTBED_ROW_FN Measured CowClipMeasured(const StepScalars& p, float rate, float length,
                                       float of_gradient) {
  const CounterParams& o = p.counter.params;
  const float scaled = o.clip_coefficient * length;
  const float limit = p.counter.count * (scaled > o.clip_least ? scaled : o.clip_least);
  const float clipped = of_gradient > limit ? limit / of_gradient * rate : rate;
  return {clipped, 1.0f - p.counter.weight_decay * (p.decay != 0.0f ? clipped : p.lr)};
}

HOTBED_ROW_FN Measured AdagradWMeasured(const StepScalars& p, float rate) {
  const CounterStep& c = p.counter;
  const double shrink = 1.0 - static_cast<double>(c.weight_decay) * p.lr;
  const uint32_t steps = c.steps < c.steps_from ? c.steps : c.steps_from;
  const double between = WholePower(shrink, steps > 0 ? steps - 1 : 0);
  return {static_cast<float>(rate * __builtin_sqrtf(c.count) * between),
          static_cast<float>(shrink * between)};
}

// Row-wise Adagrad with a count: the rate, and the factor of the weights. `squares`: the row's sum
// with this step's; the norms are those of w and of d.
HOTBED_ROW_FN Measured CounterMeasured(const StepScalars& p, float squares, float length,
                                       float of_gradient) {
  const CounterStep& c = p.counter;
  const CounterMode mode = c.params.mode;
  const float plain = RowwiseRate(p, squares);
  if (mode == CounterMode::kCowClip) return CowClipMeasured(p, plain, length, of_gradient);
  if (c.steps_from == 0) return {plain, 1.0f};
  if (mode == CounterMode::kAdagradW) return AdagradWMeasured(p, plain);
  float rate = plain;
  if (mode != CounterMode::kDecay && c.count > c.params.threshold) {
    rate = mode == CounterMode::kCounterSgd ? RowwiseRate(p, c.params.power * c.count)
                                            : plain * TailFactor(c.params, c.count);
  }
  const float rarity = c.params.half_life > 0.0f ? c.params.half_life / c.count : 1.0f;
  return {rate, 1.0f - rarity * c.weight_decay * (p.decay != 0.0f ? plain : p.lr)};
}

// The number of times that averages move after the steps up to `step`.
HOTBED_ROW_FN uint64_t AverageMoves(const AverageParams& params, uint64_t step) {
  const uint64_t before = params.from_step > 0 ? (params.from_step - 1) / params.every : 0;
  const uint64_t moves = step / params.every;
  return moves > before ? moves - before : 0;
}

HOTBED_ROW_FN float AveragedElement(float kept, float w, float average) {
  return w + kept * (average - w);
}

// A gradient's element to [-limit, limit]; NaN stays.
HOTBED_ROW_FN float ClippedElement(float value, float limit) {
  const float below = value > limit ? limit : value;
  return below < -limit ? -limit : below;
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_OPTIMIZER_ELEMENTS_H_
