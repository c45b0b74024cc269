// ApplyGradients: one optimizer step of each row of a batch, in place (see kernel_body.h for how
// these files are compiled).
//
// Two ways with the same bits: the short one, compiled for each weight and gradient type and the
// common dims, for the four commonest kinds without options; and one for all kinds and options.
#ifndef HOTBED_SERVER_KERNELS_CPU_APPLY_KERNEL_H_
#define HOTBED_SERVER_KERNELS_CPU_APPLY_KERNEL_H_

#include <cstdint>

#include "row_math/optimizer.h"
#include "row_math/row_update.h"
#include "server/kernels/cpu/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// The sum of a chain of fp32 gradients (row_kernels.h), in `sum` unless there is only one. Sums
// stay in registers, 64 elements at a time: chains are long where ids are skewed, and what they
// read lies in the caches while the rows of the next slots are on their way. Not inline: there
// would be one in each of many loops.
__attribute__((noinline)) inline const uint8_t* SumOfChain(const uint8_t* const* gradients,
                                                           const uint32_t* next, uint32_t first,
                                                           uint32_t dim, float* sum) {
  typedef float Lanes __attribute__((vector_size(64)));
  uint32_t done = 0;
  for (; done + 64 <= dim; done += 64) {
    Lanes a[4];
    __builtin_memcpy(a, gradients[first] + 4ull * done, sizeof(a));
    for (uint32_t i = next[first]; i != kNoSlot; i = next[i]) {
      Lanes b[4];
      __builtin_memcpy(b, gradients[i] + 4ull * done, sizeof(b));
      a[0] += b[0];
      a[1] += b[1];
      a[2] += b[2];
      a[3] += b[3];
    }
    __builtin_memcpy(sum + done, a, sizeof(a));
  }
  for (; done < dim; ++done) {
    float value = Fp32Codec::Load(gradients[first], done);
    for (uint32_t i = next[first]; i != kNoSlot; i = next[i]) {
      value += Fp32Codec::Load(gradients[i], done);
    }
    sum[done] = value;
  }
  return reinterpret_cast<const uint8_t*>(sum);
}

// Calls update(slot, weights, state, gradient) for each row of the batch, in order, with the rows
// some way ahead on their way to the cache; then marks them dirty.
template <typename Update>
HOTBED_ROW_FN void ForEachApplied(ApplyBatch* batch, uint32_t dim, uint32_t weight_bytes,
                                  uint32_t state_bytes, Update update) {
  float sum[kDimLimit];
  const RowTable table = *batch->table;  // a copy: stores to rows cannot change it
  const uint32_t count = batch->count;
  uint8_t* const bits = table.bits;
  const uint32_t* const slots = batch->slots;
  const uint32_t* const picks = batch->picks;
  const uint8_t* const* const gradients = batch->gradients;
  const uint32_t* const next = batch->next;
  // Gradients lie one after another: the hardware sees that by itself.
  const auto prefetch = [&](uint32_t k) HOTBED_ALWAYS_INLINE {
    const uint32_t slot = slots[k];
    if (slot == kNoSlot) return;
    __builtin_prefetch(bits + slot, 1, 3);
    PrefetchBytes<1>(WeightsOf(table, slot), weight_bytes);
    if (state_bytes > 0) PrefetchBytes<1>(StateOf(table, slot), state_bytes);
  };
  const uint32_t ahead = count < kPrefetchRows ? count : kPrefetchRows;
  uint32_t dirtied = 0;
  for (uint32_t k = 0; k < ahead; ++k) prefetch(k);
  for (uint32_t k = 0; k < count; ++k) {
    if (k + kPrefetchRows < count) prefetch(k + kPrefetchRows);
    const uint32_t slot = slots[k];
    if (slot == kNoSlot) continue;
    const uint32_t pick = picks != nullptr ? picks[k] : k;
    update(slot, WeightsOf(table, slot), StateOf(table, slot),
           next == nullptr || next[pick] == kNoSlot ? gradients[pick]
                                                    : SumOfChain(gradients, next, pick, dim, sum));
    dirtied += (bits[slot] & kRowDirty) == 0;
    bits[slot] |= kRowDirty;
  }
  batch->dirtied = dirtied;
}

// kDim: the table's, where it is known; 0 elsewhere.
template <OptimizerKind kKind, typename Weight, typename Gradient, uint32_t kDim>
void ApplyShortOf(const UpdatePlan& shared, ApplyBatch* batch) {
  const OptimizerParams params = shared.params;  // copies, as above
  const UpdateScalars scalars = shared.scalars;
  const uint32_t dim = kDim != 0 ? kDim : shared.dim;
  ForEachApplied(batch, dim, Weight::kBytes * dim, batch->table->state_bytes,
                 [&](uint32_t, uint8_t* weights, uint8_t* state, const uint8_t* gradient)
                     HOTBED_ALWAYS_INLINE {
                       UpdateRow<kKind, Weight, Gradient>(params, scalars, dim, weights, state,
                                                          gradient);
                     });
}

template <OptimizerKind kKind, typename Weight, typename Gradient>
void ApplyShort(const UpdatePlan& plan, ApplyBatch* batch) {
  if constexpr (Weight::kBytes == 4 && Gradient::kBytes == 4) {  // the common case, unrolled
    switch (plan.dim) {
      case 32:
        return ApplyShortOf<kKind, Weight, Gradient, 32>(plan, batch);
      case 64:
        return ApplyShortOf<kKind, Weight, Gradient, 64>(plan, batch);
      case 128:
        return ApplyShortOf<kKind, Weight, Gradient, 128>(plan, batch);
      default:
        break;
    }
  }
  ApplyShortOf<kKind, Weight, Gradient, 0>(plan, batch);
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
  ForEachApplied(batch, plan.dim, table.weight_bytes, table.state_bytes,
                 [&](uint32_t slot, uint8_t* weights, uint8_t* state, const uint8_t* gradient)
                     HOTBED_ALWAYS_INLINE {
                       if (keyed) key.id = IdOf(table, PositionOfSlot(table, slot));
                       UpdateRowWithOptions<kKind>(plan, key, weights, state, gradient);
                     });
}

template <OptimizerKind kKind>
void ApplyKind(const UpdatePlan& plan, ApplyBatch* batch) {
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
  ForEachApplied(batch, plan.dim, table.weight_bytes, table.state_bytes,
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
