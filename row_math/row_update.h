// One optimizer step of one row, for every kind and option, including those that the short path of
// row_math/optimizer.h, which has the formulas, does not cover. The order of a step is:
//
//   1. gradient *= gradient_scale; each element to [-clip_value, clip_value]; the whole to
//      clip_row_norm if it is longer
//   2. under lazy decay, the weights shrink by (1 - lr * weight_decay) ^ (step - step of the row's
//      last update), once for a row that was never updated; under row-wise bias correction, t is
//      the row's number of updates; a row that has a count counts this update; an average catches
//      up with the steps before this one and is rounded to nearest even
//   3. the kind's formula
//   4. the weights to max_norm, in the norm of max_norm_type, if they are longer
//   5. weights are rounded to their type, to nearest even or stochastically
//      (row_math/stochastic_rounding.h); bf16 state to nearest even
//
// All in fp32 on whole blocks of 32 elements, zeros beyond the row's end, which add nothing to any
// sum. Rows and gradients that already lie in memory like this are processed in place.
#ifndef HOTBED_ROW_MATH_ROW_UPDATE_H_
#define HOTBED_ROW_MATH_ROW_UPDATE_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/optimizer.h"
#include "row_math/optimizer_blocks.h"
#include "row_math/powers.h"
#include "row_math/row_blocks.h"
#include "row_math/stochastic_rounding.h"
#include "row_math/types.h"

namespace hotbed {

// The values that all rows of one push share.
struct UpdatePlan {
  OptimizerParams params;
  UpdateScalars scalars;
  WeightType weight_type = WeightType::kFp32;
  RowType gradient_type = RowType::kFp32;  // not int8
  uint32_t dim = 0;                        // 1..kDimLimit
};

// Whether no option but weight decay is in use.
HOTBED_HD constexpr bool HasNoOptions(const UpdatePlan& plan) {
  const OptimizerParams& o = plan.params;
  const UpdateScalars& s = plan.scalars;
  return !CountsUpdates(o.kind) && o.state_type == StateType::kFp32 && s.gradient_scale == 1.0f &&
         !(s.clip_value > 0) && !(s.clip_row_norm > 0) && !(o.max_norm > 0) && !o.lazy_decay &&
         !o.row_bias_correction && !(o.average.rate > 0) &&
         !(o.stochastic_rounding && plan.weight_type != WeightType::kFp32);
}

// Whether UpdateRow of row_math/optimizer.h computes the same.
HOTBED_HD constexpr bool TakesShortWay(const UpdatePlan& plan) {
  return HasShortWay(plan.params.kind) && HasNoOptions(plan);
}

// Whether the step is step 3 alone, on rows and gradients in place. (Touches lie behind the state
// that a step knows.)
HOTBED_HD constexpr bool WorksInPlace(const UpdatePlan& plan) {
  return HasNoOptions(plan) && plan.weight_type == WeightType::kFp32 &&
         plan.gradient_type == RowType::kFp32 && plan.dim % 32 == 0;
}

inline namespace HOTBED_ISA {

template <typename Codec>
HOTBED_ROW_CALL void LoadBlocks(const uint8_t* from, uint32_t dim, float* room) {
  for (; dim >= kLanes; dim -= kLanes, from += Codec::kBytes * kLanes, room += kLanes) {
    BlockCodec<Codec>::Load(from, room);
  }
  if (dim > 0) LoadTail<Codec>(from, dim, room);
}

template <typename Codec>
HOTBED_ROW_CALL void StoreBlocks(uint8_t* to, uint32_t dim, const float* room) {
  for (; dim >= kLanes; dim -= kLanes, to += Codec::kBytes * kLanes, room += kLanes) {
    BlockCodec<Codec>::Store(to, room);
  }
  if (dim > 0) StoreTail<Codec>(to, dim, room);
}

HOTBED_ROW_FN bool WholeBlocks(uint32_t dim) { return dim % kLanes == 0; }

// fp32 in whole blocks: in place if it lies like that, else copied to `room`.
HOTBED_ROW_FN uint8_t* OpenVector(bool fp32, uint8_t* at, uint32_t dim, float* room) {
  if (fp32 && WholeBlocks(dim)) return at;
  fp32 ? LoadBlocks<Fp32Codec>(at, dim, room) : LoadBlocks<Bf16Codec>(at, dim, room);
  return AsBytes(room);
}

HOTBED_ROW_FN void CloseVector(bool fp32, uint8_t* at, uint32_t dim, const float* room) {
  if (fp32 && WholeBlocks(dim)) return;
  fp32 ? StoreBlocks<Fp32Codec>(at, dim, room) : StoreBlocks<Bf16Codec>(at, dim, room);
}

HOTBED_ROW_FN uint8_t* OpenWeights(WeightType type, uint8_t* at, uint32_t dim, float* room) {
  if (type != WeightType::kFp16) return OpenVector(type == WeightType::kFp32, at, dim, room);
  LoadBlocks<Fp16Codec>(at, dim, room);
  return AsBytes(room);
}

HOTBED_ROW_FN void CloseWeights(const UpdatePlan& plan, const RowKey& key, uint8_t* at,
                                const float* room) {
  const uint64_t step = plan.scalars.step;
  const bool fp16 = plan.weight_type == WeightType::kFp16;
  if (plan.weight_type != WeightType::kFp32 && plan.params.stochastic_rounding) {
    const uint8_t* values = reinterpret_cast<const uint8_t*>(room);
    fp16 ? StoreRounded<Fp16Rounding>(key, step, plan.dim, values, at)
         : StoreRounded<Bf16Rounding>(key, step, plan.dim, values, at);
  } else if (fp16) {
    StoreBlocks<Fp16Codec>(at, plan.dim, room);
  } else {
    CloseVector(plan.weight_type == WeightType::kFp32, at, plan.dim, room);
  }
}

HOTBED_ROW_CALL void LoadGradient(const UpdatePlan& plan, const uint8_t* from, float* room) {
  if (plan.gradient_type == RowType::kFp16) return LoadBlocks<Fp16Codec>(from, plan.dim, room);
  if (plan.gradient_type == RowType::kBf16) return LoadBlocks<Bf16Codec>(from, plan.dim, room);
  LoadBlocks<Fp32Codec>(from, plan.dim, room);
}

// Step 1, into `room`.
HOTBED_ROW_CALL void PrepareGradient(const UpdatePlan& plan, uint32_t blocks, const uint8_t* from,
                                     float* room) {
  const float scale = plan.scalars.gradient_scale;
  const float limit = plan.scalars.clip_value;
  const float norm = plan.scalars.clip_row_norm;
  LoadGradient(plan, from, room);
  if (scale != 1.0f) ScaleRow(blocks, scale, AsBytes(room));
  if (limit > 0.0f) {
    for (uint32_t i = 0; i < kLanes * blocks; ++i) room[i] = ClippedElement(room[i], limit);
  }
  if (norm > 0.0f) {
    const float factor = FactorToNorm(norm, blocks, AsBytes(room));
    if (factor != 1.0f) ScaleRow(blocks, factor, AsBytes(room));
  }
}

HOTBED_ROW_FN const uint8_t* OpenGradient(const UpdatePlan& plan, uint32_t blocks,
                                          const uint8_t* from, float* room) {
  const UpdateScalars& s = plan.scalars;
  const bool changes = s.gradient_scale != 1.0f || s.clip_value > 0.0f || s.clip_row_norm > 0.0f;
  if (!changes && plan.gradient_type == RowType::kFp32 && WholeBlocks(plan.dim)) return from;
  PrepareGradient(plan, blocks, from, room);
  return AsBytes(room);
}

// The row's counters, after its scalar statistic; both are read and written once per step.
HOTBED_ROW_FN uint32_t LoadCounter(const uint8_t* at) {
  uint32_t value;
  __builtin_memcpy(&value, at, 4);
  return value;
}
HOTBED_ROW_FN void StoreCounter(uint8_t* at, uint32_t value) { __builtin_memcpy(at, &value, 4); }

// The number of steps since the row's last update, which lazy decay catches up on: 1 for a row that
// was never updated, 0 for a step that is not newer than the row's last. Steps are kept modulo
// 2^32; 0 means never.
HOTBED_ROW_FN uint32_t StepsSince(uint8_t* last_step, uint64_t step) {
  const uint32_t now = static_cast<uint32_t>(step) != 0 ? static_cast<uint32_t>(step) : 1u;
  const uint32_t last = LoadCounter(last_step);
  if (last != 0 && now - last >= 0x80000000u) return 0;  // an older step, from a slower trainer
  StoreCounter(last_step, now);
  return last == 0 ? 1 : now - last;
}

// The factor of a weight over `steps` steps of decoupled decay, of which all but the last shrink to
// no less than lazy_decay_least.
HOTBED_ROW_FN double ShrinkOfSteps(const UpdatePlan& plan, uint32_t steps) {
  const double one = ShrinkOfStep(plan.params, plan.scalars);
  const double least = plan.params.lazy_decay_least;
  if (!(least > 0.0) || steps == 0) return WholePower(one, steps);
  const double between = WholePower(one, steps - 1);
  return one * (between < least ? least : between);
}

// The share of its distance from the weights that an average keeps, before step `step` of a row
// whose last step is at `last_step`. A step that is not newer than the row's last one moves
// nothing.
HOTBED_ROW_FN float AverageKept(const AverageParams& params, const uint8_t* last_step,
                                uint64_t step) {
  const uint32_t last = LoadCounter(last_step);
  const uint32_t since = static_cast<uint32_t>(step) - last;
  if (step == 0 || (last != 0 && since >= 0x80000000u)) return 1.0f;
  const uint64_t before = last == 0 || step <= since ? 0 : step - since - 1;
  const uint64_t moves = AverageMoves(params, step - 1) - AverageMoves(params, before);
  return static_cast<float>(WholePower(1.0 - static_cast<double>(params.rate), moves));
}

// Step 2: the scalars of this row.
HOTBED_ROW_CALL void RowScalars(const UpdatePlan& plan, const StateLayout& layout,
                                uint8_t* counters, StepScalars* p) {
  uint8_t* const count = counters;
  if (layout.has_count) counters += 4;
  if (layout.has_updates) {
    uint32_t t = LoadCounter(counters);
    t += t != 0xffffffffu;
    StoreCounter(counters, t);
    SetBiasCorrections(BiasCorrection(plan.params.beta1, t), BiasCorrection(plan.params.beta2, t),
                       p);
    counters += 4;
  }
  if (!layout.has_last_step) return;
  const AverageParams& average = plan.params.average;
  if (average.rate > 0.0f) p->average_kept = AverageKept(average, counters, plan.scalars.step);
  const uint32_t steps = StepsSince(counters, plan.scalars.step);
  if (layout.has_count) {
    const float before = Fp32Codec::Load(count, 0);
    p->counter.count = CountAfter(plan.params.counter.half_life, before, steps);
    p->counter.steps = steps;
    Fp32Codec::Store(count, 0, p->counter.count);
  }
  if (!plan.params.lazy_decay || !DecaysDecoupled(plan.params)) return;
  p->shrink = static_cast<float>(ShrinkOfSteps(plan, steps));
}

// Step 2: the second half of the stored weights as the average of the first.
template <typename Weight>
HOTBED_ROW_FN void MoveAverage(float kept, uint32_t dim, uint8_t* weights) {
  const uint32_t half = dim / 2;
  HOTBED_INDEPENDENT
  for (uint32_t i = 0; i < half; ++i) {
    Weight::Store(weights, half + i,
                  AveragedElement(kept, Weight::Load(weights, i), Weight::Load(weights, half + i)));
  }
}
HOTBED_ROW_CALL void MoveAverageOf(const UpdatePlan& plan, float kept, uint8_t* weights) {
  switch (plan.weight_type) {
    case WeightType::kFp32:
      return MoveAverage<Fp32Codec>(kept, plan.dim, weights);
    case WeightType::kFp16:
      return MoveAverage<Fp16Codec>(kept, plan.dim, weights);
    case WeightType::kBf16:
      return MoveAverage<Bf16Codec>(kept, plan.dim, weights);
  }
}

// A row opened for its step: fp32 in whole blocks; `room` is scratch.
struct OpenRow {
  uint32_t dim;
  uint32_t blocks;
  uint8_t* w;
  uint8_t* first;
  uint8_t* second;
  uint8_t* third;
  uint8_t* statistic;
  const uint8_t* g;
  uint8_t* room;

  HOTBED_ROW_FN BlockPlaces Block(uint32_t at) const {
    return {w + at, first + at, second + at, third + at, g + at};
  }
};

HOTBED_HD constexpr bool IsLambKind(OptimizerKind kind) {
  return kind == OptimizerKind::kLamb || kind == OptimizerKind::kPartialRowwiseLamb;
}

// `ahead` below is called before each block with the block's offset in the row, 0, 128, ... bytes:
// a caller that walks over rows in memory prefetches pieces of later rows there, so that memory is
// busy while rows are computed.
struct NothingAhead {
  HOTBED_ROW_FN void operator()(uint32_t) const {}
};

// Without decay the weights are not read: they may still be coming from memory.
template <typename Ahead>
HOTBED_ROW_FN float MeanSquare(const OpenRow& row, float decay, const Ahead& ahead) {
  SquareSum sum;
  if (decay == 0.0f) {
    for (uint32_t at = 0; at < 128 * row.blocks; at += 128) {
      ahead(at);
      sum.Add(row.g + at);
    }
  } else {
    for (uint32_t at = 0; at < 128 * row.blocks; at += 128) {
      ahead(at);
      sum.AddDecayed(decay, row.w + at, row.g + at);
    }
  }
  return sum.Total() / static_cast<float>(row.dim);
}

// The second moment of the partial kinds; returns 1 / bias_correction1 / (the row's denominator).
template <typename Ahead>
HOTBED_ROW_FN float PartialScale(const StepScalars& p, const OpenRow& row, float decay,
                                 const Ahead& ahead) {
  const float second =
      PartialSecond(p, Fp32Codec::Load(row.statistic, 0), MeanSquare(row, decay, ahead));
  Fp32Codec::Store(row.statistic, 0, second);
  return ScaleOfSecond(p, second);
}

// The direction of LAMB's step to row.room; returns lr times its ratio.
template <OptimizerKind kKind, typename Ahead>
HOTBED_ROW_FN float LambRate(const StepScalars& p, const OpenRow& row, const Ahead& ahead) {
  constexpr bool kPartial = kKind == OptimizerKind::kPartialRowwiseLamb;
  const float scale = kPartial ? PartialScale(p, row, 0.0f, ahead) : 0.0f;
  SquareSum of_weights, of_direction;
  for (uint32_t at = 0; at < 128 * row.blocks; at += 128) {
    if constexpr (!kPartial) ahead(at);
    LambBlock<kKind>(p, scale, row.Block(at), row.room + at);
    of_weights.Add(row.w + at);
    of_direction.Add(row.room + at);
  }
  return LambRateOf(p, __builtin_sqrtf(of_weights.Total()), __builtin_sqrtf(of_direction.Total()));
}

template <typename Ahead>
HOTBED_ROW_FN float LarsRate(const StepScalars& p, const OpenRow& row, const Ahead& ahead) {
  SquareSum of_weights, of_gradient;
  for (uint32_t at = 0; at < 128 * row.blocks; at += 128) {
    ahead(at);
    of_weights.Add(row.w + at);
    of_gradient.Add(row.g + at);
  }
  return LarsRateOf(p, __builtin_sqrtf(of_weights.Total()), __builtin_sqrtf(of_gradient.Total()));
}

// Row-wise Adagrad's sum and the numbers of a row with a count.
template <typename Ahead>
HOTBED_ROW_FN Measured CounterRate(const StepScalars& p, const OpenRow& row, const Ahead& ahead) {
  const float mean = MeanSquare(row, p.decay, ahead);
  const float s = Fp32Codec::Load(row.statistic, 0) + mean;
  Fp32Codec::Store(row.statistic, 0, s);
  const bool clips = p.counter.params.mode == CounterMode::kCowClip;
  const float of_gradient = __builtin_sqrtf(mean * static_cast<float>(row.dim));
  return CounterMeasured(p, s, clips ? RowNorm(row.blocks, row.w) : 0.0f, of_gradient);
}

// Step 3 has two parts: MeasureRow reads the whole row and returns the numbers that MoveRow then
// needs.
template <OptimizerKind kKind, typename Ahead = NothingAhead>
HOTBED_ROW_FN Measured MeasureRow(const StepScalars& p, const OpenRow& row,
                                  const Ahead& ahead = Ahead()) {
  if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    const float s = Fp32Codec::Load(row.statistic, 0) + MeanSquare(row, p.decay, ahead);
    Fp32Codec::Store(row.statistic, 0, s);
    return {RowwiseRate(p, s), 0.0f};
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagradCounter) {
    return CounterRate(p, row, ahead);
  } else if constexpr (kKind == OptimizerKind::kRowwiseRmsProp) {
    const float s =
        PartialSecond(p, Fp32Codec::Load(row.statistic, 0), MeanSquare(row, p.decay, ahead));
    Fp32Codec::Store(row.statistic, 0, s);
    return {RowwiseRate(p, s), 0.0f};
  } else if constexpr (kKind == OptimizerKind::kPartialRowwiseAdam) {
    return {p.lr * PartialScale(p, row, p.decay, ahead), 0.0f};
  } else if constexpr (kKind == OptimizerKind::kLars) {
    return {LarsRate(p, row, ahead), 0.0f};
  } else if constexpr (TraitsOf(kKind).needs_whole_row) {
    return {LambRate<kKind>(p, row, ahead), 0.0f};
  }
  return {p.lr, 0.0f};
}

template <OptimizerKind kKind, typename Ahead = NothingAhead>
HOTBED_ROW_FN void MoveRow(const StepScalars& p, const Measured& measured, const OpenRow& row,
                           const Ahead& ahead = Ahead()) {
  if (kKind == OptimizerKind::kFtrl && !(p.lr > 0.0f)) return;
  for (uint32_t at = 0; at < 128 * row.blocks; at += 128) {
    ahead(at);
    if constexpr (IsLambKind(kKind)) {
      ScaledBlock<Fp32Codec, Fp32Codec>(measured.rate, 0.0f, 1.0f, row.w + at, row.room + at);
    } else if constexpr (kKind != OptimizerKind::kNone) {
      StepBlock<kKind, Fp32Codec, Fp32Codec>(p, measured, row.Block(at));
    }
  }
}

// Steps 1 to 5. kKind is plan.params.kind. `state` is laid out as row_math/types.h says and may be
// null if it has no bytes; pointers need no alignment.
template <OptimizerKind kKind>
HOTBED_ROW_FN void UpdateRowWithOptions(const UpdatePlan& plan, const RowKey& key, uint8_t* weights,
                                        uint8_t* state, const uint8_t* gradient) {
  if constexpr (kKind == OptimizerKind::kNone) return;
  const OptimizerParams& params = plan.params;
  const StateLayout layout = LayoutOfState(params);
  const bool fp32 = params.state_type == StateType::kFp32;
  const uint32_t dim = plan.dim;
  uint8_t* const scalars = state + layout.VectorBytes(params.state_type, dim);
  constexpr uint32_t kVectors = TraitsOf(kKind).vectors;
  const uint64_t vector_bytes = (fp32 ? 4ull : 2ull) * dim;
  float w[kDimLimit], g[kDimLimit], room[IsLambKind(kKind) ? kDimLimit : 1];
  float vectors[kVectors > 0 ? kVectors : 1][kVectors > 0 ? kDimLimit : 1];
  StepScalars p = MakeStepScalars(params, plan.scalars);
  OpenRow row = {};
  row.dim = dim;
  row.blocks = (dim + kLanes - 1) / kLanes;
  row.g = OpenGradient(plan, row.blocks, gradient, g);
  if (layout.has_updates || layout.has_last_step) {
    RowScalars(plan, layout, scalars + (layout.has_statistic ? 4 : 0), &p);
  }
  if (p.average_kept != 1.0f) MoveAverageOf(plan, p.average_kept, weights);
  row.w = OpenWeights(plan.weight_type, weights, dim, w);
  row.statistic = scalars;
  row.room = AsBytes(room);
  uint8_t** const opened[] = {&row.first, &row.second, &row.third};
  for (uint32_t v = 0; v < kVectors; ++v) {
    *opened[v] = OpenVector(fp32, state + vector_bytes * v, dim, vectors[v]);
  }
  MoveRow<kKind>(p, MeasureRow<kKind>(p, row), row);
  if (params.max_norm > 0.0f) {
    const float factor = FactorToNormOf(params.max_norm_type, params.max_norm, row.blocks, row.w);
    if (factor != 1.0f) ScaleRow(row.blocks, factor, row.w);
  }
  CloseWeights(plan, key, weights, w);
  for (uint32_t v = 0; v < kVectors; ++v) {
    CloseVector(fp32, state + vector_bytes * v, dim, vectors[v]);
  }
}

// A row's new weights from a push that assigns; its state starts over (FirstState). Rounded to
// nearest even whatever the table's rounding: the caller gave values, not a step.
HOTBED_ROW_FN void AssignWeights(const UpdatePlan& plan, uint8_t* weights, const uint8_t* values) {
  float room[kDimLimit];
  LoadGradient(plan, values, room);
  switch (plan.weight_type) {
    case WeightType::kFp32:
      return StoreBlocks<Fp32Codec>(weights, plan.dim, room);
    case WeightType::kFp16:
      return StoreBlocks<Fp16Codec>(weights, plan.dim, room);
    case WeightType::kBf16:
      return StoreBlocks<Bf16Codec>(weights, plan.dim, room);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_ROW_UPDATE_H_
