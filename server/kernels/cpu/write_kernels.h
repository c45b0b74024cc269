// ApplyGradients, Insert, Evict, Collect and Reindex (see kernel_body.h for how these files are
// compiled).
#ifndef HOTBED_SERVER_KERNELS_CPU_WRITE_KERNELS_H_
#define HOTBED_SERVER_KERNELS_CPU_WRITE_KERNELS_H_

#include <cstdint>

#include "row_math/optimizer.h"
#include "server/kernels/cpu/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// kDim: the table's, where it is known; 0 elsewhere.
template <OptimizerKind kKind, typename Weight, typename Gradient, uint32_t kDim>
void ApplyRowsOf(ApplyBatch* batch) {
  // Copies: stores to rows cannot change them.
  const RowTable table = *batch->table;
  const OptimizerParams params = table.optimizer;
  const UpdateScalars scalars = batch->scalars;
  const uint32_t dim = kDim != 0 ? kDim : table.dim;
  const uint32_t weight_bytes = kDim != 0 ? Weight::kBytes * kDim : table.weight_bytes;
  const uint32_t state_bytes = table.state_bytes;
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
    UpdateRow<kKind, Weight, Gradient>(params, scalars, dim, WeightsOf(table, slot),
                                       StateOf(table, slot),
                                       gradients[picks != nullptr ? picks[k] : k]);
    dirtied += (bits[slot] & kRowDirty) == 0;
    bits[slot] |= kRowDirty;
  }
  batch->dirtied = dirtied;
}

template <OptimizerKind kKind, typename Weight, typename Gradient>
void ApplyRows(ApplyBatch* batch) {
  if constexpr (Weight::kBytes == 4 && Gradient::kBytes == 4) {  // the common case, unrolled
    switch (batch->table->dim) {
      case 32:
        return ApplyRowsOf<kKind, Weight, Gradient, 32>(batch);
      case 64:
        return ApplyRowsOf<kKind, Weight, Gradient, 64>(batch);
      case 128:
        return ApplyRowsOf<kKind, Weight, Gradient, 128>(batch);
      default:
        break;
    }
  }
  ApplyRowsOf<kKind, Weight, Gradient, 0>(batch);
}

template <OptimizerKind kKind, typename Weight>
void ApplyAs(ApplyBatch* batch) {
  switch (batch->gradient_type) {
    case RowType::kFp32:
      return ApplyRows<kKind, Weight, Fp32Codec>(batch);
    case RowType::kFp16:
      return ApplyRows<kKind, Weight, Fp16Codec>(batch);
    case RowType::kBf16:
      return ApplyRows<kKind, Weight, Bf16Codec>(batch);
    case RowType::kInt8:
      __builtin_trap();  // gradients do not travel as int8: refused long before
  }
}

template <OptimizerKind kKind>
void ApplyWith(ApplyBatch* batch) {
  switch (batch->table->weight_type) {
    case WeightType::kFp32:
      return ApplyAs<kKind, Fp32Codec>(batch);
    case WeightType::kFp16:
      return ApplyAs<kKind, Fp16Codec>(batch);
    case WeightType::kBf16:
      return ApplyAs<kKind, Bf16Codec>(batch);
  }
}

inline void RunApply(ApplyBatch* batch) {
  switch (batch->table->optimizer.kind) {
    case OptimizerKind::kSgd:
      return ApplyWith<OptimizerKind::kSgd>(batch);
    case OptimizerKind::kAdagrad:
      return ApplyWith<OptimizerKind::kAdagrad>(batch);
    case OptimizerKind::kRowwiseAdagrad:
      return ApplyWith<OptimizerKind::kRowwiseAdagrad>(batch);
    case OptimizerKind::kAdam:
      return ApplyWith<OptimizerKind::kAdam>(batch);
    default:
      __builtin_trap();
  }
}

inline void RunInsert(InsertBatch* batch) {
  RowTable* table = batch->table;
  for (uint32_t k = 0; k < batch->count; ++k) {
    if (!table->direct && k + kPrefetchRows < batch->count) {
      const IndexHash hash = HashPosition(*table, batch->positions[k + kPrefetchRows]);
      __builtin_prefetch(table->buckets + hash.bucket, 1, 3);
    }
    const uint32_t slot = batch->slots[k];
    const uint8_t* source = batch->sources[k];
    if (source == nullptr) {
      FirstValue(*table, batch->positions[k], WeightsOf(*table, slot), StateOf(*table, slot));
    } else {
      CopyRow(WeightsOf(*table, slot), source, table->weight_bytes);
      CopyRow(StateOf(*table, slot), source + table->weight_bytes, table->state_bytes);
    }
    // Not visited: a row that is read once goes before those that are read again.
    table->bits[slot] = kRowExists | (batch->dirty ? kRowDirty : 0);
    ++table->rows;
    if (table->direct) continue;
    table->positions[slot] = batch->positions[k];
    IndexInsert(table, batch->positions[k], slot);
  }
}

HOTBED_ROW_FN void CopyOut(const RowTable& table, uint32_t slot, uint8_t* out) {
  CopyRow(out, WeightsOf(table, slot), table.weight_bytes);
  CopyRow(out + table.weight_bytes, StateOf(table, slot), table.state_bytes);
}

HOTBED_ROW_FN void TakeOut(EvictBatch* batch, uint32_t slot) {
  RowTable* table = batch->table;
  if (table->bits[slot] & kRowDirty) {
    const uint32_t k = batch->dirty_count++;
    batch->dirty_positions[k] = PositionOfSlot(*table, slot);
    CopyOut(*table, slot, batch->out + uint64_t{batch->out_stride} * k);
  }
  if (!table->direct) IndexErase(table, table->positions[slot], slot);
  table->bits[slot] = 0;
  --table->rows;
  batch->slots[batch->count++] = slot;
}

inline void RunEvict(EvictBatch* batch) {
  RowTable* table = batch->table;
  batch->count = 0;
  batch->dirty_count = 0;
  if (!batch->chosen) {
    for (uint32_t slot = batch->slot_first; slot < batch->slot_limit; ++slot) {
      if (table->bits[slot] & kRowExists) TakeOut(batch, slot);
    }
    return;
  }
  // After as many rounds as a row can have visits, and one, every row has been taken out.
  uint64_t steps = uint64_t{table->slots} * (kRowVisits + 1);
  uint32_t hand = batch->hand < table->slots ? batch->hand : 0;
  for (; batch->count < batch->wanted && steps > 0; --steps) {
    const uint8_t bits = table->bits[hand];
    if (bits & kRowExists) {
      if (bits & kRowVisits) {
        table->bits[hand] = bits - 1;
      } else {
        TakeOut(batch, hand);
      }
    }
    hand = hand + 1 == table->slots ? 0 : hand + 1;
  }
  batch->hand = hand;
}

inline void RunCollect(CollectBatch* batch) {
  RowTable* table = batch->table;
  batch->count = 0;
  uint32_t slot = batch->slot_first;
  for (; slot < table->slots && batch->count < batch->wanted; ++slot) {
    if ((table->bits[slot] & kRowDirty) == 0) continue;
    const uint32_t k = batch->count++;
    batch->positions[k] = PositionOfSlot(*table, slot);
    CopyOut(*table, slot, batch->out + uint64_t{batch->out_stride} * k);
    table->bits[slot] &= static_cast<uint8_t>(~kRowDirty);
  }
  batch->slot_first = slot;
}

inline void RunReindex(ReindexBatch* batch) {
  RowTable* table = batch->table;
  for (uint32_t slot = 0; slot < table->slots; ++slot) {
    if (slot + kPrefetchRows < table->slots) {
      const IndexHash hash = HashPosition(*table, table->positions[slot + kPrefetchRows]);
      __builtin_prefetch(table->buckets + hash.bucket, 1, 3);
    }
    if (table->bits[slot] & kRowExists) IndexInsert(table, table->positions[slot], slot);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_CPU_WRITE_KERNELS_H_
