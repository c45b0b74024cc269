// ApplyGradients: one optimizer step of each row of a batch, in place (see kernel_body.h for how
// these files are compiled).
//
// Three paths with the same bits: in place, for fp32 in whole blocks without options; the short
// path, compiled for each weight and gradient type, for the four most common kinds without options;
// and one for all kinds and options.
#ifndef HOTBED_SERVER_KERNELS_APPLY_KERNEL_H_
#define HOTBED_SERVER_KERNELS_APPLY_KERNEL_H_

#include <cstdint>

#include "row_math/optimizer.h"
#include "row_math/row_update.h"
#include "server/kernels/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Without the limit of PrefetchBytes, which both vectors of a state would have to share.
HOTBED_ROW_FN void PrefetchAll(const uint8_t* from, uint32_t bytes) {
  constexpr uint32_t kBytesMax = 2048;
  FetchLines(from, bytes < kBytesMax ? bytes : kBytesMax);
}

// How many rows ahead of its update a row of `bytes` bytes is prefetched.
HOTBED_ROW_FN uint32_t RowsAhead(uint32_t bytes) {
  constexpr uint32_t kLeast = 5;
  const uint32_t most = kFetchWay.update_rows_ahead;
  const uint32_t rows = kFetchWay.update_lines_ahead / (bytes / 64 + 1);
  return rows < kLeast ? kLeast : rows > most ? most : rows;
}

// Gradients are contiguous: the hardware prefetches them by itself.
HOTBED_ROW_FN void FetchForUpdate(const RowTable& table, uint32_t weight_bytes,
                                  uint32_t state_bytes, uint32_t slot) {
  __builtin_prefetch(table.bits + slot, 1, 3);
  PrefetchAll(WeightsOf(table, slot), weight_bytes);
  if (state_bytes > 0) PrefetchAll(StateOf(table, slot), state_bytes);
}

// A row that has not had more touches than its admission needs, `count` with this one. False: it is
// a candidate still, and keeps its first value.
HOTBED_ROW_CALL bool AdmitRow(const RowTable& table, const ApplyBatch& batch, uint32_t slot,
                              uint32_t count) {
  const uint32_t needed = table.admission.Needed();
  if (count < needed) {
    if (!batch.assign) return false;
    StoreTouches({needed, batch.scalars.time_s, batch.scalars.step}, TouchesOf(table, slot));
  }
  table.bits[slot] &= static_cast<uint8_t>(~kRowCandidate);
  if (table.admission.zeros && !batch.assign) {
    RowTable admitted = table;
    admitted.initializer = table.admitted_initializer;
    FirstValue(admitted, PositionOfSlot(table, slot), WeightsOf(table, slot), nullptr);
  }
  return true;
}

// Adds the shows and clicks that the push says of row k of the batch, whose touches these are.
HOTBED_ROW_CALL void ShowRow(const RowTable& table, const ApplyBatch& batch, uint32_t k,
                             uint8_t* touches) {
  RowShows more;
  if (batch.shows) {
    more = LoadShows(batch.gradients[batch.picks != nullptr ? batch.picks[k] : k] +
                     RowWireBytes(batch.gradient_type, table.dim));
  }
  AddShows(table.optimizer->shows, more, LoadTouches(touches).time_s, batch.scalars.time_s,
           touches - kShowBytes);
}

// Calls walk(slot, next, gradient) for each row of the batch, in order. `next` is the slot that
// `walk` prefetches: that of the row `ahead` positions later, or `slot` if there is none. Marks
// rows dirty. `touches`: rows keep touches, so each is touched before, and candidates are passed
// over.
template <typename Walk>
HOTBED_ROW_FN void WalkApplied(ApplyBatch* batch, const RowTable& table, bool touches,
                               uint32_t ahead, const Walk& walk) {
  const uint32_t count = batch->count;
  uint8_t* const bits = table.bits;
  const uint32_t* const slots = batch->slots;
  const uint32_t* const picks = batch->picks;
  const uint8_t* const* const gradients = batch->gradients;
  const UpdateScalars scalars = batch->scalars;  // a copy, as of the table
  const bool shows = touches && table.optimizer->shows.kept;
  const uint32_t needed = table.admission.Holds() ? table.admission.Needed() : 0;
  uint32_t dirtied = 0, held = 0;
  for (uint32_t k = 0; k < count; ++k) {
    const uint32_t slot = slots[k];
    uint32_t next = k + ahead < count ? slots[k + ahead] : slot;
    if (slot == kNoSlot) continue;
    if (next == kNoSlot) next = slot;
    dirtied += (bits[slot] & kRowDirty) == 0;
    bits[slot] |= kRowDirty | kRowChanged;
    if (touches) {
      if (shows) ShowRow(table, *batch, k, TouchesOf(table, slot));
      const uint32_t touched = TouchRow(scalars, TouchesOf(table, slot));
      if (touched <= needed && !AdmitRow(table, *batch, slot, touched)) {
        ++held;
        if (next != slot) FetchForUpdate(table, table.weight_bytes, table.state_bytes, next);
        continue;
      }
    }
    walk(slot, next, gradients[picks != nullptr ? picks[k] : k]);
  }
  batch->dirtied = dirtied;
  batch->held = held;
}

HOTBED_ROW_FN void FetchFirst(const ApplyBatch& batch, const RowTable& table, uint32_t weight_bytes,
                              uint32_t state_bytes, uint32_t ahead) {
  for (uint32_t k = 0; k < ahead && k < batch.count; ++k) {
    if (batch.slots[k] == kNoSlot) continue;
    FetchForUpdate(table, weight_bytes, state_bytes, batch.slots[k]);
  }
}

// Calls update(slot, weights, state, gradient) for each row of the batch, in order, while later
// rows are prefetched; marks rows dirty.
template <typename Update>
HOTBED_ROW_FN void ForEachApplied(ApplyBatch* batch, uint32_t weight_bytes, uint32_t state_bytes,
                                  Update update) {
  const RowTable table = *batch->table;  // a copy: stores to rows cannot change it
  const uint32_t rows_ahead = RowsAhead(weight_bytes + state_bytes);
  FetchFirst(*batch, table, weight_bytes, state_bytes, rows_ahead);
  WalkApplied(batch, table, table.optimizer->touches, rows_ahead,
              [&](uint32_t slot, uint32_t next, const uint8_t* gradient) HOTBED_ALWAYS_INLINE {
                if (next != slot) FetchForUpdate(table, weight_bytes, state_bytes, next);
                update(slot, WeightsOf(table, slot), StateOf(table, slot), gradient);
              });
}

constexpr OptimizerParams ParamsOf(OptimizerKind kind) {
  OptimizerParams params;
  params.kind = kind;
  return params;
}

// The memory of rows that are updated in place; strides are constants if kDim is not 0. Prefetches
// one block at a time: whole rows at once would fill the processor's queue of misses, which would
// then run empty while the rows are computed.
template <OptimizerKind kKind, uint32_t kDim, bool kTouches>
struct PlacesOf {
  static constexpr StateLayout kLayout = LayoutOfState(ParamsOf(kKind));
  uint8_t* weights;
  uint8_t* state;
  uint8_t* bits;
  uint32_t table_dim;
  uint32_t touch_bytes;

  HOTBED_ROW_FN uint32_t dim() const { return kDim != 0 ? kDim : table_dim; }
  HOTBED_ROW_FN uint32_t weight_bytes() const { return 4 * dim(); }
  HOTBED_ROW_FN uint32_t state_bytes() const {
    return kLayout.Bytes(StateType::kFp32, dim()) + (kTouches ? touch_bytes : 0);
  }
  HOTBED_ROW_FN uint8_t* Weights(uint32_t slot) const {
    return weights + uint64_t{weight_bytes()} * slot;
  }
  HOTBED_ROW_FN uint8_t* State(uint32_t slot) const {
    return state + uint64_t{state_bytes()} * slot;
  }
  HOTBED_ROW_FN void FetchWeights(uint32_t slot, uint32_t at) const {
    FetchLines(Weights(slot) + at, 128);
  }
  HOTBED_ROW_FN void FetchState(uint32_t slot, uint32_t at) const {
    const uint8_t* const from = State(slot);
    if (at == 0) __builtin_prefetch(bits + slot, 1, 3);
    if (kTouches && at == 0) FetchLines(from + state_bytes() - 1, 1);
    if (at == 0 && kLayout.has_statistic) FetchLines(from + 4ull * dim() * kLayout.vectors, 1);
    for (uint32_t v = 0; v < kLayout.vectors; ++v) FetchLines(from + 4ull * dim() * v + at, 128);
  }
  HOTBED_ROW_FN OpenRow Open(uint32_t slot, const uint8_t* gradient, float* room) const {
    OpenRow row;
    row.dim = dim();
    row.blocks = dim() / kLanes;
    row.w = Weights(slot);
    row.first = State(slot);
    row.second = row.first + 4ull * dim();
    row.third = row.second + 4ull * dim();
    row.statistic = row.first + 4ull * dim() * kLayout.vectors;
    row.g = gradient;
    row.room = AsBytes(room);
    return row;
  }
};

// Rows and gradients of fp32, in place, without options. kDim: the table's dim if it is a constant,
// else 0.
template <OptimizerKind kKind, uint32_t kDim, bool kTouches>
void ApplyInPlaceOf(const UpdatePlan& plan, ApplyBatch* batch) {
  alignas(64) float room[kDim != 0 ? kDim : kDimLimit];  // for LAMB's direction
  const RowTable table = *batch->table;                  // a copy: stores to rows cannot change it
  const PlacesOf<kKind, kDim, kTouches> places{table.weights, table.state, table.bits, plan.dim,
                                               LayoutOfState(plan.params).TouchBytes()};
  const StepScalars p = MakeStepScalars(plan.params, plan.scalars);
  const uint32_t rows_ahead = RowsAhead(places.weight_bytes() + places.state_bytes());
  FetchFirst(*batch, table, places.weight_bytes(), places.state_bytes(), rows_ahead);
  WalkApplied(batch, table, kTouches, rows_ahead,
              [&](uint32_t slot, uint32_t next, const uint8_t* gradient) HOTBED_ALWAYS_INLINE {
                const OpenRow row = places.Open(slot, gradient, room);
                const auto state_ahead = [&](uint32_t at)
                                             HOTBED_ALWAYS_INLINE { places.FetchState(next, at); };
                const auto rest_ahead = [&](uint32_t at) HOTBED_ALWAYS_INLINE {
                  places.FetchWeights(next, at);
                  if (!TraitsOf(kKind).needs_whole_row) places.FetchState(next, at);
                };
                const Measured measured = MeasureRow<kKind>(p, row, state_ahead);
                MoveRow<kKind>(p, measured, row, rest_ahead);
              });
}

template <OptimizerKind kKind, bool kTouches>
void ApplyInPlaceTouching(const UpdatePlan& plan, ApplyBatch* batch) {
  switch (plan.dim) {  // the common case, unrolled
    case 64:
      return ApplyInPlaceOf<kKind, 64, kTouches>(plan, batch);
    case 128:
      return ApplyInPlaceOf<kKind, 128, kTouches>(plan, batch);
    default:
      return ApplyInPlaceOf<kKind, 0, kTouches>(plan, batch);
  }
}

template <OptimizerKind kKind>
void ApplyInPlace(const UpdatePlan& plan, ApplyBatch* batch) {
  if (plan.params.touches) return ApplyInPlaceTouching<kKind, true>(plan, batch);
  ApplyInPlaceTouching<kKind, false>(plan, batch);
}

template <OptimizerKind kKind, typename Weight, typename Gradient>
void ApplyShort(const UpdatePlan& shared, ApplyBatch* batch) {
  const OptimizerParams params = shared.params;  // copies, as above
  const UpdateScalars scalars = shared.scalars;
  const uint32_t dim = shared.dim;
  ForEachApplied(batch, Weight::kBytes * dim, batch->table->state_bytes,
                 [&](uint32_t, uint8_t* weights, uint8_t* state, const uint8_t* gradient)
                     HOTBED_ALWAYS_INLINE {
                       UpdateRow<kKind, Weight, Gradient>(params, scalars, dim, weights, state,
                                                          gradient);
                     });
}

template <OptimizerKind kKind, typename Weight>
void ApplyShortTo(const UpdatePlan& plan, ApplyBatch* batch) {
  switch (plan.gradient_type) {
    case RowType::kFp32:
      return ApplyShort<kKind, Weight, Fp32Codec>(plan, batch);
    case RowType::kFp16:
      return ApplyShort<kKind, Weight, Fp16Codec>(plan, batch);
    case RowType::kBf16:
      return ApplyShort<kKind, Weight, Bf16Codec>(plan, batch);
    case RowType::kInt8:
      __builtin_trap();  // gradients are never int8: requests with them are refused
  }
}

template <OptimizerKind kKind>
void ApplyWithOptions(const UpdatePlan& shared, ApplyBatch* batch) {
  const UpdatePlan plan = shared;
  const RowTable& table = *batch->table;
  RowKey key{table.seed, 0, table.column_first};
  const bool keyed = plan.params.stochastic_rounding && plan.weight_type != WeightType::kFp32;
  ForEachApplied(batch, table.weight_bytes, table.state_bytes,
                 [&](uint32_t slot, uint8_t* weights, uint8_t* state, const uint8_t* gradient)
                     HOTBED_ALWAYS_INLINE {
                       if (keyed) key.id = IdOf(table, PositionOfSlot(table, slot));
                       UpdateRowWithOptions<kKind>(plan, key, weights, state, gradient);
                     });
}

template <OptimizerKind kKind>
void ApplyKind(const UpdatePlan& plan, ApplyBatch* batch) {
  if constexpr (kKind != OptimizerKind::kNone && !CountsUpdates(kKind)) {
    if (WorksInPlace(plan)) return ApplyInPlace<kKind>(plan, batch);
  }
  if constexpr (HasShortWay(kKind)) {
    if (TakesShortWay(plan)) {
      switch (plan.weight_type) {
        case WeightType::kFp32:
          return ApplyShortTo<kKind, Fp32Codec>(plan, batch);
        case WeightType::kFp16:
          return ApplyShortTo<kKind, Fp16Codec>(plan, batch);
        case WeightType::kBf16:
          return ApplyShortTo<kKind, Bf16Codec>(plan, batch);
      }
    }
  }
  ApplyWithOptions<kKind>(plan, batch);
}

// A row that is assigned keeps its touches, shows and clicks.
HOTBED_ROW_FN void AssignState(const UpdatePlan& plan, uint8_t* state) {
  if (!plan.params.touches) return FirstState(plan.params, plan.dim, state);
  const uint32_t bytes = LayoutOfState(plan.params).TouchBytes();
  uint8_t* const touches = state + StateBytes(plan.params, plan.dim) - bytes;
  uint8_t kept[kTouchBytes + kShowBytes];
  __builtin_memcpy(kept, touches, bytes);
  FirstState(plan.params, plan.dim, state);
  __builtin_memcpy(touches, kept, bytes);
}

inline void ApplyAssign(const UpdatePlan& plan, ApplyBatch* batch) {
  const RowTable& table = *batch->table;
  ForEachApplied(batch, table.weight_bytes, table.state_bytes,
                 [&](uint32_t, uint8_t* weights, uint8_t* state, const uint8_t* values)
                     HOTBED_ALWAYS_INLINE {
                       AssignWeights(plan, weights, values);
                       AssignState(plan, state);
                     });
}

inline void ApplyRows(const UpdatePlan& plan, ApplyBatch* batch) {
  if (batch->assign) return ApplyAssign(plan, batch);
#define HOTBED_APPLY(kind)  \
  case OptimizerKind::kind: \
    return ApplyKind<OptimizerKind::kind>(plan, batch);
  switch (plan.params.kind) {
    HOTBED_STEP_KINDS(HOTBED_APPLY)
    case OptimizerKind::kAdamW:
      return ApplyKind<OptimizerKind::kAdam>(plan, batch);  // they differ only in the plan
  }
#undef HOTBED_APPLY
}

inline void RunApply(ApplyBatch* batch) {
  const RowTable& table = *batch->table;
  const UpdatePlan plan{*table.optimizer, batch->scalars, table.weight_type, batch->gradient_type,
                        table.dim};
  ApplyRows(plan, batch);
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_APPLY_KERNEL_H_
