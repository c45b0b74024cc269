// Probe and Gather (see kernel_body.h for how these files are compiled).
#ifndef HOTBED_SERVER_KERNELS_READ_KERNELS_H_
#define HOTBED_SERVER_KERNELS_READ_KERNELS_H_

#include <cstdint>

#include "server/kernels/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Kernels use a local copy of the table's pointers: a store of bytes might change the original, so
// the compiler would load it again for every row.
inline void RunProbe(ProbeBatch* batch) {
  const RowTable table = *batch->table;
  const uint64_t* ids = batch->ids;
  uint32_t missing = 0;
  ForEachRow(
      table, batch->count, [ids](uint32_t i) { return ids[i]; },
      [&](uint32_t i, uint32_t slot) { batch->slots[i] = slot; },
      [&](uint32_t i) {
        batch->slots[i] = kNoSlot;
        batch->missing[missing++] = i;
      },
      /*prefetch_bytes=*/0);
  batch->missing_count = missing;
}

// Writer: (wire row, stored weights). kWeightBytes: bytes of a row if constant.
template <uint32_t kWeightBytes, typename Ids, typename Writer>
HOTBED_ROW_FN void GatherWith(GatherBatch* batch, const Ids& ids, const uint32_t* picks,
                              const Writer& write) {
  const RowTable table = *batch->table;
  const uint64_t wire_bytes =
      kWeightBytes != 0 ? kWeightBytes : RowWireBytes(batch->type, table.dim);
  uint8_t* const rows = batch->rows;
  uint8_t* const flags = batch->flags;
  const bool candidates = table.admission.HasCandidates();
  uint32_t missing = 0;
  const auto number = [picks](uint32_t k) { return picks != nullptr ? picks[k] : k; };
  ForEachRow(
      table, batch->count, ids,
      [&](uint32_t k, uint32_t slot) {
        const uint32_t i = number(k);
        write(rows + wire_bytes * i, WeightsOf(table, slot));
        if (flags != nullptr) flags[i] = !candidates || (table.bits[slot] & kRowCandidate) == 0;
      },
      [&](uint32_t k) {
        const uint32_t i = number(k);
        const uint64_t id = batch->ids[i];
        if (!batch->absent_is_initial && !KnownAbsent(table, id)) {
          batch->missing[missing++] = i;
          return;
        }
        uint8_t stored[4 * kDimLimit];
        FirstValue(*batch->table, PositionOf(table, id), stored, nullptr);
        EncodeRow(*batch->table, stored, batch->type, rows + wire_bytes * i);
        if (flags != nullptr) flags[i] = 0;
      },
      kWeightBytes != 0 ? kWeightBytes : table.weight_bytes);
  batch->missing_count = missing;
}

template <uint32_t kWeightBytes, typename Writer>
HOTBED_ROW_FN void GatherPicked(GatherBatch* batch, const Writer& write) {
  const uint64_t* all = batch->ids;
  const uint32_t* picks = batch->picks;
  if (picks == nullptr) {
    GatherWith<kWeightBytes>(
        batch, [all](uint32_t k) { return all[k]; }, nullptr, write);
  } else {
    GatherWith<kWeightBytes>(
        batch, [all, picks](uint32_t k) { return all[picks[k]]; }, picks, write);
  }
}

// Rows whose wire type is their stored type, with a constant size for memcpy.
template <uint32_t kWeightBytes>
void GatherBytes(GatherBatch* batch) {
  GatherPicked<kWeightBytes>(
      batch, [](uint8_t* to, const uint8_t* from) { CopyRow(to, from, kWeightBytes); });
}

// Every pair of types has its own loop around the conversion.
template <typename Weight>
void GatherConverted(GatherBatch* batch) {
  const uint32_t dim = batch->table->dim;
  switch (batch->type) {
    case RowType::kFp32:
      return GatherPicked<0>(batch, [dim](uint8_t* to, const uint8_t* from) {
        ConvertRow<Weight, Fp32Codec>(from, dim, to);
      });
    case RowType::kFp16:
      return GatherPicked<0>(batch, [dim](uint8_t* to, const uint8_t* from) {
        ConvertRow<Weight, Fp16Codec>(from, dim, to);
      });
    case RowType::kBf16:
      return GatherPicked<0>(batch, [dim](uint8_t* to, const uint8_t* from) {
        ConvertRow<Weight, Bf16Codec>(from, dim, to);
      });
    case RowType::kInt8:
      return GatherPicked<0>(
          batch, [dim](uint8_t* to, const uint8_t* from) { QuantizeRow<Weight>(from, dim, to); });
  }
}

inline void RunGather(GatherBatch* batch) {
  const RowTable& table = *batch->table;
  if (!SameBytes(table.weight_type, batch->type)) {
    switch (table.weight_type) {
      case WeightType::kFp32:
        return GatherConverted<Fp32Codec>(batch);
      case WeightType::kFp16:
        return GatherConverted<Fp16Codec>(batch);
      case WeightType::kBf16:
        return GatherConverted<Bf16Codec>(batch);
    }
  }
  const uint32_t bytes = table.weight_bytes;
  const bool stream = uint64_t{bytes} * batch->count >= kStreamBytes && bytes % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(batch->rows) % 16 == 0;
  if (stream) {
    GatherPicked<0>(batch,
                    [bytes](uint8_t* to, const uint8_t* from) { StreamRow(to, from, bytes); });
    StreamFence();
    return;
  }
  switch (bytes) {
    case 32:
      return GatherBytes<32>(batch);
    case 64:
      return GatherBytes<64>(batch);
    case 128:
      return GatherBytes<128>(batch);
    case 256:
      return GatherBytes<256>(batch);
    case 512:
      return GatherBytes<512>(batch);
    default:
      return GatherPicked<0>(
          batch, [bytes](uint8_t* to, const uint8_t* from) { CopyRow(to, from, bytes); });
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_READ_KERNELS_H_
