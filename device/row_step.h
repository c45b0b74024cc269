// One optimizer step of one row by a team of 32 lanes: the steps 1 to 5 of row_math/row_update.h,
// on the elements of row_math/optimizer_elements.h, to the same bits.
//
// A row is read again for each of its sums instead of being kept: it lies in the nearest cache by
// then, and any dim works without room of its own. So a step is up to four passes, each of which
// computes what it needs from the row as it was: the gradient's norm, the kind's own sums, the
// norm of the new weights, and the last, which alone writes. Without options it is one pass, or two
// where the kind has a sum.
#ifndef HOTBED_DEVICE_ROW_STEP_H_
#define HOTBED_DEVICE_ROW_STEP_H_

#include <cstdint>

#include "device/row_bytes.h"
#include "row_math/isa.h"
#include "row_math/optimizer_elements.h"
#include "row_math/row_update.h"

namespace hotbed {
namespace device {

// What brings a row to the norm `limit`, as FactorToNorm of row_math/row_blocks.h.
template <typename Team, typename F>
HOTBED_ROW_FN float FactorTo(const Team& team, float limit, uint32_t dim, F value) {
  const float norm = __builtin_sqrtf(team.LaneSum(dim, [&](uint32_t i) {
    const float x = value(i);
    return x * x;
  }));
  if (!NormOverflows(norm)) return FactorOfNorm(limit, norm);
  const float smaller = __builtin_sqrtf(team.LaneSum(dim, [&](uint32_t i) {
    const float x = value(i) * kSmaller;
    return x * x;
  }));
  return FactorOfSmallerNorm(limit, smaller);
}

template <typename Team, typename F>
HOTBED_ROW_FN float NormOf(const Team& team, uint32_t dim, F value) {
  return __builtin_sqrtf(team.LaneSum(dim, [&](uint32_t i) {
    const float x = value(i);
    return x * x;
  }));
}

// One element as it lies in memory, before the step; what the kind does not have is 0.
struct RowElement {
  float w;
  float first;
  float second;
  float g;  // raw: RowBefore::Prepared
};

// The row as it is before the step, element by element.
struct RowBefore {
  RowType weight_type;
  RowType state_type;
  RowType gradient_type;
  const uint8_t* weights;
  const uint8_t* first;
  const uint8_t* second;
  const uint8_t* gradient;
  float gradient_scale;
  float clip_value;
  float clip_factor;

  HOTBED_ROW_FN float W(uint32_t i) const { return LoadElement(weight_type, weights, i); }
  HOTBED_ROW_FN float First(uint32_t i) const { return LoadElement(state_type, first, i); }
  HOTBED_ROW_FN float Second(uint32_t i) const { return LoadElement(state_type, second, i); }
  HOTBED_ROW_FN float RawG(uint32_t i) const { return LoadElement(gradient_type, gradient, i); }
  // Step 1 but for the norm.
  HOTBED_ROW_FN float Unclipped(float g) const {
    if (gradient_scale != 1.0f) g *= gradient_scale;
    return clip_value > 0.0f ? ClippedElement(g, clip_value) : g;
  }
  // Step 1.
  HOTBED_ROW_FN float Prepared(float raw) const {
    const float g = Unclipped(raw);
    return clip_factor != 1.0f ? g * clip_factor : g;
  }
  HOTBED_ROW_FN float G(uint32_t i) const { return Prepared(RawG(i)); }
  HOTBED_ROW_FN RowElement Load(uint32_t vectors, uint32_t i) const {
    return {W(i), vectors > 0 ? First(i) : 0.0f, vectors > 1 ? Second(i) : 0.0f, RawG(i)};
  }
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
  row.gradient = gradient;
  row.gradient_scale = plan.scalars.gradient_scale;
  row.clip_value = plan.scalars.clip_value;
  row.clip_factor = 1.0f;
  if (plan.scalars.clip_row_norm > 0.0f) {
    row.clip_factor = FactorTo(team, plan.scalars.clip_row_norm, plan.dim,
                               [&](uint32_t i) { return row.Unclipped(row.RawG(i)); });
  }
  return row;
}

// The mean of the squares of d, of g where decay is 0.
template <typename Team>
HOTBED_ROW_FN float MeanSquareOf(const Team& team, uint32_t dim, const RowBefore& row,
                                 float decay) {
  const float sum = team.LaneSum(dim, [&](uint32_t i) {
    const float d = decay == 0.0f ? row.G(i) : Decayed(row.G(i), row.W(i), decay);
    return d * d;
  });
  return sum / static_cast<float>(dim);
}

template <OptimizerKind kKind>
HOTBED_ROW_FN constexpr uint32_t VectorsOf() {
  OptimizerParams params;
  params.kind = kKind;
  return LayoutOfState(params).vectors;
}

template <OptimizerKind kKind>
HOTBED_ROW_FN Moved LambDirection(const StepScalars& p, float scale, const RowBefore& row,
                                  const RowElement& x) {
  if constexpr (kKind == OptimizerKind::kLamb) {
    return LambElement(p, x.w, x.first, x.second, row.Prepared(x.g));
  } else {
    return PartialLambElement(p, scale, x.w, x.first, row.Prepared(x.g));
  }
}

// What the kind needs to know of the whole row. `statistic` is the row's scalar, in and out.
struct Measured {
  float rate;
  float scale;  // partial LAMB's
};
template <OptimizerKind kKind, typename Team>
HOTBED_ROW_FN Measured Measure(const Team& team, const StepScalars& p, uint32_t dim,
                               const RowBefore& row, float* statistic) {
  Measured out = {p.lr, 0.0f};
  if constexpr (kKind == OptimizerKind::kRowwiseAdagrad) {
    *statistic = *statistic + MeanSquareOf(team, dim, row, p.decay);
    out.rate = RowwiseAdagradRate(p, *statistic);
  } else if constexpr (kKind == OptimizerKind::kPartialRowwiseAdam) {
    *statistic = PartialSecond(p, *statistic, MeanSquareOf(team, dim, row, p.decay));
    out.rate = p.lr * ScaleOfSecond(p, *statistic);
  } else if constexpr (kKind == OptimizerKind::kLars) {
    const float length = NormOf(team, dim, [&](uint32_t i) { return row.W(i); });
    out.rate = LarsRateOf(p, length, NormOf(team, dim, [&](uint32_t i) { return row.G(i); }));
  } else if constexpr (kKind == OptimizerKind::kLamb ||
                       kKind == OptimizerKind::kPartialRowwiseLamb) {
    if constexpr (kKind == OptimizerKind::kPartialRowwiseLamb) {
      *statistic = PartialSecond(p, *statistic, MeanSquareOf(team, dim, row, 0.0f));
      out.scale = ScaleOfSecond(p, *statistic);
    }
    const float length = NormOf(team, dim, [&](uint32_t i) { return row.W(i); });
    out.rate = LambRateOf(
        p, length, NormOf(team, dim, [&](uint32_t i) {
          return LambDirection<kKind>(p, out.scale, row, row.Load(VectorsOf<kKind>(), i)).w;
        }));
  }
  return out;
}

// An element after step 3.
template <OptimizerKind kKind>
HOTBED_ROW_FN Moved MoveElement(const StepScalars& p, const Measured& measured,
                                const RowBefore& row, const RowElement& x) {
  const float g = row.Prepared(x.g);
  if constexpr (kKind == OptimizerKind::kSgd || kKind == OptimizerKind::kRowwiseAdagrad) {
    return {ScaledElement(measured.rate, p.decay, p.shrink, x.w, g), 0.0f, 0.0f};
  } else if constexpr (kKind == OptimizerKind::kAdagrad) {
    return AdagradElement(p, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kAdam) {
    return AdamElement(p, x.w, x.first, x.second, g);
  } else if constexpr (kKind == OptimizerKind::kMomentumSgd) {
    return MomentumElement(p, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kRmsProp) {
    return RmsPropElement(p, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kPartialRowwiseAdam) {
    return PartialAdamElement(p, measured.rate, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kLars) {
    return LarsElement(p, measured.rate, x.w, x.first, g);
  } else if constexpr (kKind == OptimizerKind::kFtrl) {
    if (!(p.lr > 0.0f)) return {x.w, x.first, x.second};
    return FtrlElement(p, x.w, x.first, x.second, g);
  } else {
    Moved moved = LambDirection<kKind>(p, measured.scale, row, x);
    moved.w = ScaledElement(measured.rate, 0.0f, 1.0f, x.w, moved.w);
    return moved;
  }
}

// Step 5 of one weight.
HOTBED_ROW_FN void StoreWeight(const UpdatePlan& plan, const RowKey& key, uint8_t* weights,
                               uint32_t i, float value) {
  if (plan.weight_type == WeightType::kFp32 || !plan.params.stochastic_rounding) {
    return StoreElement(RowTypeOf(plan.weight_type), weights, i, value);
  }
  const uint32_t column = key.column + i;
  const uint32_t draw = RoundingQuad(key, column / 4, plan.scalars.step).v[column % 4];
  StoreAligned<uint16_t>(
      weights, i,
      plan.weight_type == WeightType::kFp16 ? RoundToFp16(value, draw) : RoundToBf16(value, draw));
}

// Kinds that differ in the plan alone, or not at all.
HOTBED_ROW_FN constexpr OptimizerKind StepKind(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW ? OptimizerKind::kAdam : kind;
}

// The row's counters after its scalar statistic: step 2, and what they are afterwards.
struct RowCounters {
  uint8_t bytes[8];
};
HOTBED_ROW_FN uint32_t CounterBytes(const StateLayout& layout) {
  return 4 * (uint32_t{layout.has_updates} + layout.has_last_step);
}

// The step. kKind is StepKind(plan.params.kind). weights, state and gradient lie at multiples of
// their elements' sizes; `state` may be anything where it has no bytes.
template <OptimizerKind kKind, typename Team>
HOTBED_ROW_FN void StepRow(const Team& team, const UpdatePlan& plan, const RowKey& key,
                           uint8_t* weights, uint8_t* state, const uint8_t* gradient) {
  if constexpr (kKind == OptimizerKind::kNone) return;
  constexpr OptimizerKind kStep = kKind == OptimizerKind::kNone ? OptimizerKind::kSgd : kKind;
  const OptimizerParams& params = plan.params;
  const StateLayout layout = LayoutOfState(params);
  const uint32_t dim = plan.dim;
  uint8_t* const scalars = state + layout.VectorBytes(params.state_type, dim);
  uint8_t* const counters = scalars + (layout.has_statistic ? 4 : 0);
  StepScalars p = MakeStepScalars(params, plan.scalars);
  const RowBefore row = OpenRowFor(team, plan, weights, state, gradient);
  RowCounters counted = {};
  for (uint32_t i = 0; i < CounterBytes(layout); ++i) counted.bytes[i] = counters[i];
  if (CounterBytes(layout) > 0) RowScalars(plan, layout, counted.bytes, &p);
  float statistic = layout.has_statistic ? LoadAligned<float>(scalars, 0) : 0.0f;
  const Measured measured = Measure<kStep>(team, p, dim, row, &statistic);
  constexpr uint32_t kVectors = VectorsOf<kStep>();
  const auto load = [&](uint32_t i) { return row.Load(kVectors, i); };
  float factor = 1.0f;
  if (params.max_norm > 0.0f) {
    factor = FactorTo(team, params.max_norm, dim,
                      [&](uint32_t i) { return MoveElement<kStep>(p, measured, row, load(i)).w; });
  }
  team.Sync();  // every lane has read what one lane, or another, writes now
  team.Batched(dim, load, [&](uint32_t i, const RowElement& x) {
    const Moved moved = MoveElement<kStep>(p, measured, row, x);
    StoreWeight(plan, key, weights, i, factor != 1.0f ? moved.w * factor : moved.w);
    if (kVectors > 0) StoreElement(row.state_type, state, i, moved.first);
    if (kVectors > 1) StoreElement(row.state_type, state, dim + i, moved.second);
  });
  team.Once([&]() {
    if (layout.has_statistic) StoreAligned(scalars, 0, statistic);
    for (uint32_t i = 0; i < CounterBytes(layout); ++i) counters[i] = counted.bytes[i];
  });
}

// New weights, to nearest even whatever the table's rounding; the state begins anew.
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
