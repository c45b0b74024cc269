// One optimizer step of one row by a team of 32 lanes: the steps 1 to 5 of row_math/row_update.h,
// on the elements of row_math/optimizer_elements.h, to the same bits.
//
// A row is read again for each of its sums instead of being kept: by then it is in the nearest
// cache, and any dim works without extra memory. So a step has up to four passes, each of which
// computes what it needs from the row as it was: the gradient's norm, the kind's own sums, the norm
// of the new weights, and the last pass, which alone writes. Without options it is one pass, or two
// if the kind has a sum.
#ifndef HOTBED_DEVICE_ROW_STEP_H_
#define HOTBED_DEVICE_ROW_STEP_H_

#include <cstdint>

#include "device/row_bytes.h"
#include "row_math/isa.h"
#include "row_math/optimizer_elements.h"
#include "row_math/row_update.h"

namespace hotbed {
namespace device {

template <typename Team, typename Make, typename F>
HOTBED_ROW_FN float NormOf(const Team& team, uint32_t dim, Make make, F value) {
  return __builtin_sqrtf(team.LaneSum(dim, make, [&](const auto& made) {
    const float x = value(made);
    return x * x;
  }));
}

// The factor that brings a row to the norm `limit`, as FactorToNorm of row_math/row_blocks.h;
// value(make(i)) is element i.
template <typename Team, typename Make, typename F>
HOTBED_ROW_FN float FactorTo(const Team& team, float limit, uint32_t dim, Make make, F value) {
  const float norm = NormOf(team, dim, make, value);
  if (!NormOverflows(norm)) return FactorOfNorm(limit, norm);
  return FactorOfSmallerNorm(
      limit, NormOf(team, dim, make, [&](const auto& made) { return value(made) * kSmaller; }));
}

// FactorToNormOf of row_math/row_blocks.h.
template <typename Team, typename Make, typename F>
HOTBED_ROW_FN float FactorToOf(const Team& team, float p, float limit, uint32_t dim, Make make,
                               F value) {
  if (p == 2.0f) return FactorTo(team, limit, dim, make, value);
  // Numbers of at least 0 have the order of their bits.
  const float largest = FloatFromBits(~team.Min(dim, [&](uint32_t i) {
    const float size = InLimits(limit, value(make(i)));
    return ~(size > 0.0f ? FloatBits(size) : 0u);
  }));
  const auto power = [&](const auto& made) {
    return PowerOfPart(p, largest, InLimits(limit, value(made)));
  };
  return FactorOfPowers(p, largest, p > 0.0f ? team.LaneSum(dim, make, power) : 0.0f);
}

// One element before the step; parts that the kind does not have are 0.
struct RowElement {
  Moved x;
  float g;  // raw: RowBefore::Prepared
};

// The same of kWidth elements, as they are loaded.
template <uint32_t kWidth>
struct RawRowElements {
  RawElements<kWidth> w;
  RawElements<kWidth> first;
  RawElements<kWidth> second;
  RawElements<kWidth> third;
  RawElements<kWidth> g;
};

// The row as it is before the step.
struct RowBefore {
  RowType weight_type;
  RowType state_type;
  RowType gradient_type;
  const uint8_t* weights;
  const uint8_t* first;
  const uint8_t* second;
  const uint8_t* third;
  const uint8_t* gradient;
  float gradient_scale;
  float clip_value;
  float clip_factor;

  // Step 1 without the norm.
  HOTBED_ROW_FN float Unclipped(float g) const {
    if (gradient_scale != 1.0f) g *= gradient_scale;
    return clip_value > 0.0f ? ClippedElement(g, clip_value) : g;
  }
  // Step 1.
  HOTBED_ROW_FN float Prepared(float raw) const {
    const float g = Unclipped(raw);
    return clip_factor != 1.0f ? g * clip_factor : g;
  }

  // Elements [kWidth * i, kWidth * (i + 1)), of as many vectors of state.
  template <uint32_t kWidth>
  HOTBED_ROW_FN RawRowElements<kWidth> Load(uint32_t vectors, uint32_t i) const {
    RawRowElements<kWidth> raw = {};
    raw.w = LoadRaw<kWidth>(weight_type, weights, i);
    if (vectors > 0) raw.first = LoadRaw<kWidth>(state_type, first, i);
    if (vectors > 1) raw.second = LoadRaw<kWidth>(state_type, second, i);
    if (vectors > 2) raw.third = LoadRaw<kWidth>(state_type, third, i);
    raw.g = LoadRaw<kWidth>(gradient_type, gradient, i);
    return raw;
  }
  template <uint32_t kWidth>
  HOTBED_ROW_FN RowElement At(const RawRowElements<kWidth>& raw, uint32_t vectors,
                              uint32_t j) const {
    return {
        {ElementOf(weight_type, raw.w, j), vectors > 0 ? ElementOf(state_type, raw.first, j) : 0.0f,
         vectors > 1 ? ElementOf(state_type, raw.second, j) : 0.0f,
         vectors > 2 ? ElementOf(state_type, raw.third, j) : 0.0f},
        ElementOf(gradient_type, raw.g, j)};
  }
  // For the sums over the row, which need less.
  HOTBED_ROW_FN RawElements<1> LoadG(uint32_t i) const {
    return LoadRaw<1>(gradient_type, gradient, i);
  }
  HOTBED_ROW_FN float G(const RawElements<1>& raw) const {
    return Prepared(ElementOf(gradient_type, raw, 0));
  }
  HOTBED_ROW_FN RawElements<1> LoadW(uint32_t i) const {
    return LoadRaw<1>(weight_type, weights, i);
  }
  HOTBED_ROW_FN float W(const RawElements<1>& raw) const { return ElementOf(weight_type, raw, 0); }
};

template <typename Team>
HOTBED_ROW_FN RowBefore OpenRowFor(const Team& team, const UpdatePlan& plan, const uint8_t* weights,
                                   const uint8_t* state, const uint8_t* gradient) {
  const bool fp32 = plan.params.state_type == StateType::kFp32;
  RowBefore row;
  row.weight_type = RowTypeOf(plan.weight_type);
  row.state_type = fp32 ? RowType::kFp32 : RowType::kBf16;
  row.gradient_type = plan.gradient_type;
  row.weights = weights;
  row.first = state;
  row.second = state + (fp32 ? 4ull : 2ull) * plan.dim;
  row.third = row.second + (fp32 ? 4ull : 2ull) * plan.dim;
  row.gradient = gradient;
  row.gradient_scale = plan.scalars.gradient_scale;
  row.clip_value = plan.scalars.clip_value;
  row.clip_factor = 1.0f;
  if (plan.scalars.clip_row_norm > 0.0f) {
    row.clip_factor = FactorTo(
        team, plan.scalars.clip_row_norm, plan.dim, [&](uint32_t i) { return row.LoadG(i); },
        [&](const RawElements<1>& raw) {
          return row.Unclipped(ElementOf(row.gradient_type, raw, 0));
        });
  }
  return row;
}

// The mean of the squares of d, which is g if decay is 0.
template <typename Team>
HOTBED_ROW_FN float MeanSquareOf(const Team& team, uint32_t dim, const RowBefore& row,
                                 float decay) {
  float sum;
  if (decay == 0.0f) {
    sum = team.LaneSum(
        dim, [&](uint32_t i) { return row.LoadG(i); },
        [&](const RawElements<1>& raw) {
          const float g = row.G(raw);
          return g * g;
        });
  } else {
    sum = team.LaneSum(
        dim, [&](uint32_t i) { return row.Load<1>(0, i); },
        [&](const RawRowElements<1>& raw) {
          const float d = Decayed(row.G(raw.g), row.W(raw.w), decay);
          return d * d;
        });
  }
  return sum / static_cast<float>(dim);
}

template <typename Team>
HOTBED_ROW_FN float WeightNorm(const Team& team, uint32_t dim, const RowBefore& row) {
  return NormOf(
      team, dim, [&](uint32_t i) { return row.LoadW(i); },
      [&](const RawElements<1>& raw) { return row.W(raw); });
}

// The numbers that the kind needs of the whole row; the factor of partial LAMB is its scale.
// `statistic` is the row's scalar, in and out.
template <OptimizerKind kKind, typename Team>
HOTBED_ROW_FN Measured Measure(const Team& team, const StepScalars& p, uint32_t dim,
                               const RowBefore& row, float* statistic) {
  Measured out = {p.lr, 0.0f};
  if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    *statistic = *statistic + MeanSquareOf(team, dim, row, p.decay);
    out.rate = RowwiseRate(p, *statistic);
  } else if constexpr (kKind == OptimizerKind::kRowwiseAdagradCounter) {
    const float mean = MeanSquareOf(team, dim, row, p.decay);
    *statistic = *statistic + mean;
    const bool clips = p.counter.params.mode == CounterMode::kCowClip;
    const float of_gradient = __builtin_sqrtf(mean * static_cast<float>(dim));
    out = CounterMeasured(p, *statistic, clips ? WeightNorm(team, dim, row) : 0.0f, of_gradient);
  } else if constexpr (kKind == OptimizerKind::kRowwiseRmsProp) {
    *statistic = PartialSecond(p, *statistic, MeanSquareOf(team, dim, row, p.decay));
    out.rate = RowwiseRate(p, *statistic);
  } else if constexpr (kKind == OptimizerKind::kPartialRowwiseAdam) {
    *statistic = PartialSecond(p, *statistic, MeanSquareOf(team, dim, row, p.decay));
    out.rate = p.lr * ScaleOfSecond(p, *statistic);
  } else if constexpr (kKind == OptimizerKind::kLars) {
    const float length = WeightNorm(team, dim, row);
    out.rate = LarsRateOf(p, length,
                          NormOf(
                              team, dim, [&](uint32_t i) { return row.LoadG(i); },
                              [&](const RawElements<1>& raw) { return row.G(raw); }));
  } else if constexpr (IsLambKind(kKind)) {
    if constexpr (kKind == OptimizerKind::kPartialRowwiseLamb) {
      *statistic = PartialSecond(p, *statistic, MeanSquareOf(team, dim, row, 0.0f));
      out.factor = ScaleOfSecond(p, *statistic);
    }
    constexpr uint32_t kVectors = TraitsOf(kKind).vectors;
    const float length = WeightNorm(team, dim, row);
    out.rate =
        LambRateOf(p, length,
                   NormOf(
                       team, dim, [&](uint32_t i) { return row.Load<1>(kVectors, i); },
                       [&](const RawRowElements<1>& raw) {
                         const RowElement e = row.At(raw, kVectors, 0);
                         return LambDirection<kKind>(p, out.factor, e.x, row.Prepared(e.g)).w;
                       }));
  }
  return out;
}

// An element after step 3.
template <OptimizerKind kKind>
HOTBED_ROW_FN Moved MoveElement(const StepScalars& p, const Measured& measured,
                                const RowBefore& row, const RowElement& element) {
  const Moved& x = element.x;
  const float g = row.Prepared(element.g);
  if constexpr (IsLambKind(kKind)) {
    Moved moved = LambDirection<kKind>(p, measured.factor, x, g);
    moved.w = ScaledElement(measured.rate, 0.0f, 1.0f, x.w, moved.w);
    return moved;
  } else {
    if (kKind == OptimizerKind::kFtrl && !(p.lr > 0.0f)) return x;
    return StepElement<kKind>(p, measured, x, g);
  }
}

// Step 5 of kWidth weights.
template <uint32_t kWidth>
HOTBED_ROW_FN void StoreWeights(const UpdatePlan& plan, const RowKey& key, uint8_t* weights,
                                uint32_t i, const Elements<kWidth>& values) {
  const RowType type = RowTypeOf(plan.weight_type);
  if (!plan.params.stochastic_rounding) return StoreElements(type, weights, i, values);
  StoreElements(type, weights, i, values, [&](uint32_t j) {
    const uint32_t column = key.column + kWidth * i + j;
    const uint32_t draw = RoundingQuad(key, column / 4, plan.scalars.step).v[column % 4];
    return type == RowType::kFp16 ? RoundToFp16(values.of[j], draw)
                                  : RoundToBf16(values.of[j], draw);
  });
}

// Kinds that differ only in the plan, or not at all.
HOTBED_ROW_FN constexpr OptimizerKind StepKind(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW ? OptimizerKind::kAdam : kind;
}

// The row's counters after its scalar statistic: step 2, and their new values.
struct RowCounters {
  uint8_t bytes[12];
};

// Computes the elements of the row after the step, kWidth per lane at a time. `measure()` makes the
// sums over the row and returns the factor by which its new weights are multiplied.
template <OptimizerKind kKind, uint32_t kWidth, typename Team, typename F>
HOTBED_ROW_FN void MoveElements(const Team& team, const UpdatePlan& plan, const RowKey& key,
                                const StepScalars& p, const RowBefore& row, uint8_t* weights,
                                uint8_t* state, Measured* measured, F measure) {
  constexpr uint32_t kVectors = TraitsOf(kKind).vectors;
  const uint32_t units = plan.dim / kWidth;
  const auto load = [&](uint32_t i) { return row.Load<kWidth>(kVectors, i); };
  const auto begin = team.Map([&](uint32_t lane) { return load(lane < units ? lane : 0); });
  const float factor = measure();
  team.Sync();  // every lane has read before any lane writes
  team.Flow(units, begin, load, [&](uint32_t i, const RawRowElements<kWidth>& raw) {
    Elements<kWidth> w, first, second, third;
    for (uint32_t j = 0; j < kWidth; ++j) {
      const Moved moved = MoveElement<kKind>(p, *measured, row, row.At(raw, kVectors, j));
      w.of[j] = factor != 1.0f ? moved.w * factor : moved.w;
      first.of[j] = moved.first;
      second.of[j] = moved.second;
      third.of[j] = moved.third;
    }
    StoreWeights(plan, key, weights, i, w);
    if (kVectors > 0) StoreElements(row.state_type, state, i, first);
    if (kVectors > 1) StoreElements(row.state_type, state, units + i, second);
    if (kVectors > 2) StoreElements(row.state_type, state, 2 * units + i, third);
  });
}

// The step. `shared` = MakeStepScalars of the plan. kKind is StepKind(plan.params.kind); kWidth is
// 4 only if the dim IsInFours, and then weights, state and gradient are aligned to 16 bytes, else
// to their elements. `state` may be anything if it has no bytes.
template <OptimizerKind kKind, uint32_t kWidth, typename Team>
HOTBED_ROW_FN void StepRow(const Team& team, const UpdatePlan& plan, const RowKey& key,
                           const StepScalars& shared, uint8_t* weights, uint8_t* state,
                           const uint8_t* gradient) {
  if constexpr (kKind == OptimizerKind::kNone) return;
  constexpr OptimizerKind kStep = kKind == OptimizerKind::kNone ? OptimizerKind::kSgd : kKind;
  const OptimizerParams& params = plan.params;
  const StateLayout layout = LayoutOfState(params);
  const uint32_t dim = plan.dim;
  uint8_t* const scalars = state + layout.VectorBytes(params.state_type, dim);
  uint8_t* const counters = scalars + (layout.has_statistic ? 4 : 0);
  StepScalars p = shared;
  const RowBefore row = OpenRowFor(team, plan, weights, state, gradient);
  RowCounters counted = {};
  for (uint32_t i = 0; i < layout.CounterBytes(); ++i) counted.bytes[i] = counters[i];
  if (layout.CounterBytes() > 0) RowScalars(plan, layout, counted.bytes, &p);
  if (params.average.rate > 0.0f &&
      p.average_kept != 1.0f) {  // MoveAverage of row_math/row_update.h
    const RowType type = row.weight_type;
    const uint32_t half = dim / 2;
    team.Strided(half, [&](uint32_t i) {
      StoreElement(type, weights, half + i,
                   AveragedElement(p.average_kept, LoadElement(type, weights, i),
                                   LoadElement(type, weights, half + i)));
    });
    team.Sync();
  }
  float statistic = layout.has_statistic ? LoadAligned<float>(scalars, 0) : 0.0f;
  Measured measured;
  const auto measure = [&]() {
    measured = Measure<kStep>(team, p, dim, row, &statistic);
    if (!(params.max_norm > 0.0f)) return 1.0f;
    constexpr uint32_t kVectors = TraitsOf(kStep).vectors;
    return FactorToOf(
        team, params.max_norm_type, params.max_norm, dim,
        [&](uint32_t i) { return row.Load<1>(kVectors, i); },
        [&](const RawRowElements<1>& raw) {
          return MoveElement<kStep>(p, measured, row, row.At(raw, kVectors, 0)).w;
        });
  };
  MoveElements<kStep, kWidth>(team, plan, key, p, row, weights, state, &measured, measure);
  team.Once([&]() {
    if (layout.has_statistic) StoreAligned(scalars, 0, statistic);
    for (uint32_t i = 0; i < layout.CounterBytes(); ++i) counters[i] = counted.bytes[i];
  });
}

// New weights, to nearest even whatever the table's rounding; the state starts over.
template <typename Team>
HOTBED_ROW_FN void AssignRow(const Team& team, const Table& table, uint32_t slot, RowType type,
                             const uint8_t* values) {
  WriteRow(team, table.shape.dim, RowTypeOf(table.shape.weight_type), table.WeightsAt(slot),
           [&](uint32_t i) { return LoadElement(type, values, i); });
  BeginState(team, table.shape, table.StateAt(slot));
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_ROW_STEP_H_
