// Insert, Evict, Collect and Reindex (see kernel_body.h for how these files are compiled).
#ifndef HOTBED_SERVER_KERNELS_WRITE_KERNELS_H_
#define HOTBED_SERVER_KERNELS_WRITE_KERNELS_H_

#include <cstdint>

#include "server/kernels/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

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
    // Not visited: a row that is read once leaves before rows that are read again.
    table->bits[slot] = kRowExists | kRowChanged | (batch->dirty ? kRowDirty : 0) |
                        (IsCandidate(*table, slot) ? kRowCandidate : 0);
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
  // After one more round than a row can have visits, every row has been taken out.
  uint64_t steps = uint64_t{table->slots} * (batch->unvisited_only ? 1 : kRowVisits + 1);
  uint32_t hand = batch->hand < table->slots ? batch->hand : 0;
  for (; batch->count < batch->wanted && steps > 0; --steps) {
    const uint8_t bits = table->bits[hand];
    if (bits & kRowExists) {
      if ((bits & kRowVisits) == 0) {
        TakeOut(batch, hand);
      } else if (!batch->unvisited_only) {
        table->bits[hand] = bits - 1;
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

// Without branches within a group, so that it becomes vector code.
inline void RunAge(AgeBatch* batch) {
  constexpr uint32_t kGroup = 64;
  uint32_t unvisited = 0;
  for (uint32_t slot = batch->slot_first; slot < batch->slot_limit;) {
    uint8_t* const bits = batch->table->bits + slot;
    const uint32_t left = batch->slot_limit - slot;
    const uint32_t count = left < kGroup ? left : kGroup;
    slot += count;
    uint8_t any = 0;
    for (uint32_t i = 0; i < count; ++i) any |= bits[i];
    if ((any & kRowExists) == 0) continue;
    for (uint32_t i = 0; i < count; ++i) {
      const uint8_t exists = (bits[i] / kRowExists) & 1;
      const uint8_t visited = (bits[i] & kRowVisits) != 0 ? exists : 0;
      unvisited += static_cast<uint8_t>(exists - visited);
      bits[i] = static_cast<uint8_t>(bits[i] - visited);
    }
  }
  batch->unvisited = unvisited;
}

inline void RunMove(MoveBatch* batch) {
  RowTable* table = batch->table;
  for (uint32_t k = 0; k < batch->count; ++k) {
    const uint32_t from = batch->from[k], to = batch->to[k];
    CopyRow(WeightsOf(*table, to), WeightsOf(*table, from), table->weight_bytes);
    CopyRow(StateOf(*table, to), StateOf(*table, from), table->state_bytes);
    const uint64_t position = table->positions[from];
    IndexErase(table, position, from);
    table->positions[to] = position;
    IndexInsert(table, position, to);
    table->bits[to] = table->bits[from];
    table->bits[from] = 0;
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_WRITE_KERNELS_H_
