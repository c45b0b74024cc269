// ApplyGradients: one optimizer step of each row of a batch, in place (see kernel_body.h for how
// these files are compiled).
//
// Three ways with the same bits: in place, for fp32 in whole blocks without options, several rows
// at a time; the short one, compiled for each weight and gradient type, for the four commonest
// kinds without options; and one for all kinds and options.
#ifndef HOTBED_SERVER_KERNELS_CPU_APPLY_KERNEL_H_
#define HOTBED_SERVER_KERNELS_CPU_APPLY_KERNEL_H_

#include <cstdint>

#include "row_math/optimizer.h"
#include "row_math/row_update.h"
#include "server/kernels/cpu/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Without the limit of PrefetchBytes, where both vectors of a state would share it.
template <int kWrite>
HOTBED_ROW_FN void PrefetchAll(const uint8_t* from, uint32_t bytes) {
  constexpr uint32_t kBytesMax = 2048;
  const uint32_t limit = bytes < kBytesMax ? bytes : kBytesMax;
  for (uint32_t at = 0; at < limit; at += 64) __builtin_prefetch(from + at, kWrite, 3);
}

// Rows that are measured together, before they move (row_math/row_update.h).
constexpr uint32_t kGroupRows = 4;

// Calls update(slot, weights, state, gradient) for each row of the batch, in order, with the rows
// some way ahead on their way to the cache; marks them dirty.
template <typename Update>
HOTBED_ROW_FN void ForEachApplied(ApplyBatch* batch, uint32_t weight_bytes, uint32_t state_bytes,
                                  Update update) {
  const RowTable table = *batch->table;  // a copy: stores to rows cannot change it
  const uint32_t count = batch->count;
  uint8_t* const bits = table.bits;
  const uint32_t* const slots = batch->slots;
  const uint32_t* const picks = batch->picks;
  const uint8_t* const* const gradients = batch->gradients;
  // Gradients lie one after another: the hardware sees that by itself.
  const auto prefetch = [&](uint32_t k) HOTBED_ALWAYS_INLINE {
    const uint32_t slot = slots[k];
    if (slot == kNoSlot) return;
    __builtin_prefetch(bits + slot, 1, 3);
    PrefetchAll<1>(WeightsOf(table, slot), weight_bytes);
    if (state_bytes > 0) PrefetchAll<1>(StateOf(table, slot), state_bytes);
  };
  const uint32_t ahead = count < kPrefetchRows ? count : kPrefetchRows;
  uint32_t dirtied = 0;
  for (uint32_t k = 0; k < ahead; ++k) prefetch(k);
  for (uint32_t k = 0; k < count; ++k) {
    if (k + kPrefetchRows < count) prefetch(k + kPrefetchRows);
    const uint32_t slot = slots[k];
    if (slot == kNoSlot) continue;
    update(slot, WeightsOf(table, slot), StateOf(table, slot),
           gradients[picks != nullptr ? picks[k] : k]);
    dirtied += (bits[slot] & kRowDirty) == 0;
    bits[slot] |= kRowDirty;
  }
  batch->dirtied = dirtied;
}

constexpr OptimizerParams ParamsOf(OptimizerKind kind) {
  OptimizerParams params;
  params.kind = kind;
  return params;
}

// Rows and gradients of fp32, in place, without options. kDim: the table's, where it is known; 0
// elsewhere.
template <OptimizerKind kKind, uint32_t kDim>
void ApplyInPlaceOf(const UpdatePlan& plan, ApplyBatch* batch) {
  constexpr uint32_t kGroup = kDim != 0 ? kGroupRows : 1;
  constexpr uint32_t kRoom = kDim != 0 ? kDim : kDimLimit;
  float rooms[kGroup][kRoom];
  OpenRow rows[kGroup];
  const StepScalars p = MakeStepScalars(plan.params, plan.scalars);
  constexpr StateLayout kLayout = LayoutOfState(ParamsOf(kKind));
  const uint32_t dim = kDim != 0 ? kDim : plan.dim;
  uint32_t waiting = 0;
  const auto move = [&]() HOTBED_ALWAYS_INLINE {
    float measured[kGroup];
    for (uint32_t j = 0; j < waiting; ++j) measured[j] = MeasureRow<kKind>(p, rows[j]);
    for (uint32_t j = 0; j < waiting; ++j) MoveRow<kKind>(p, measured[j], rows[j]);
    waiting = 0;
  };
  ForEachApplied(batch, 4 * dim, kLayout.Bytes(StateType::kFp32, dim),
                 [&](uint32_t, uint8_t* weights, uint8_t* state, const uint8_t* gradient)
                     HOTBED_ALWAYS_INLINE {
                       OpenRow& row = rows[waiting];
                       row.dim = dim;
                       row.blocks = dim / kLanes;
                       row.w = weights;
                       row.first = state;
                       row.second = state + 4ull * dim;
                       row.statistic = state + 4ull * dim * kLayout.vectors;
                       row.g = gradient;
                       row.room = AsBytes(rooms[waiting]);
                       if (++waiting == kGroup) move();
                     });
  move();
}

template <OptimizerKind kKind>
void ApplyInPlace(const UpdatePlan& plan, ApplyBatch* batch) {
  switch (plan.dim) {  // the common case, unrolled
    case 64:
      return ApplyInPlaceOf<kKind, 64>(plan, batch);
    case 128:
      return ApplyInPlaceOf<kKind, 128>(plan, batch);
    default:
      return ApplyInPlaceOf<kKind, 0>(plan, batch);
  }
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
      __builtin_trap();  // gradients do not travel as int8: refused long before
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
  if constexpr (kKind != OptimizerKind::kNone) {
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

inline void ApplyAssign(const UpdatePlan& plan, ApplyBatch* batch) {
  const RowTable& table = *batch->table;
  ForEachApplied(batch, table.weight_bytes, table.state_bytes,
                 [&](uint32_t, uint8_t* weights, uint8_t* state, const uint8_t* values)
                     HOTBED_ALWAYS_INLINE {
                       AssignWeights(plan, weights, values);
                       FirstState(plan.params, plan.dim, state);
                     });
}

inline void RunApply(ApplyBatch* batch) {
  const RowTable& table = *batch->table;
  const UpdatePlan plan{table.optimizer, batch->scalars, table.weight_type, batch->gradient_type,
                        table.dim};
  if (batch->assign) return ApplyAssign(plan, batch);
  switch (plan.params.kind) {
    case OptimizerKind::kSgd:
      return ApplyKind<OptimizerKind::kSgd>(plan, batch);
    case OptimizerKind::kAdagrad:
      return ApplyKind<OptimizerKind::kAdagrad>(plan, batch);
    case OptimizerKind::kRowwiseAdagrad:
      return ApplyKind<OptimizerKind::kRowwiseAdagrad>(plan, batch);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return ApplyKind<OptimizerKind::kAdam>(plan, batch);  // they differ in the plan alone
    case OptimizerKind::kMomentumSgd:
      return ApplyKind<OptimizerKind::kMomentumSgd>(plan, batch);
    case OptimizerKind::kPartialRowwiseAdam:
      return ApplyKind<OptimizerKind::kPartialRowwiseAdam>(plan, batch);
    case OptimizerKind::kLamb:
      return ApplyKind<OptimizerKind::kLamb>(plan, batch);
    case OptimizerKind::kPartialRowwiseLamb:
      return ApplyKind<OptimizerKind::kPartialRowwiseLamb>(plan, batch);
    case OptimizerKind::kLars:
      return ApplyKind<OptimizerKind::kLars>(plan, batch);
    case OptimizerKind::kFtrl:
      return ApplyKind<OptimizerKind::kFtrl>(plan, batch);
    case OptimizerKind::kRmsProp:
      return ApplyKind<OptimizerKind::kRmsProp>(plan, batch);
    case OptimizerKind::kNone:
      return ApplyKind<OptimizerKind::kNone>(plan, batch);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_CPU_APPLY_KERNEL_H_
