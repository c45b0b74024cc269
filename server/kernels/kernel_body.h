// The CPU kernels, written once and compiled once per instruction set: each cpu_kernels_*.cc
// defines HOTBED_ISA and includes this file alone. No standard library here: its inline functions
// would be shared between instruction sets (row_math/isa.h).
#ifndef HOTBED_SERVER_KERNELS_KERNEL_BODY_H_
#define HOTBED_SERVER_KERNELS_KERNEL_BODY_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/initializer.h"
#include "row_math/position.h"
#include "row_math/quantize.h"
#include "server/kernels/cpu_kernels.h"
#include "server/kernels/row_batches.h"
#include "server/kernels/row_copy.h"
#include "server/kernels/row_index.h"

namespace hotbed {
inline namespace HOTBED_ISA {

constexpr uint32_t kPrefetchRows = 10;  // of an index
constexpr uint32_t kPrefetchLines = 8;  // of a row; the hardware fetches the rest on its own
constexpr uint32_t kIndexBlock = 16;  // ids whose bucket, candidate and row are in flight together

HOTBED_ROW_FN uint64_t PositionOf(const RowTable& table, uint64_t id) {
  return table.hashed ? Mix64(id) : id;
}
HOTBED_ROW_FN uint64_t IdOf(const RowTable& table, uint64_t position) {
  return table.hashed ? Unmix64(position) : position;
}
HOTBED_ROW_FN uint8_t* WeightsOf(const RowTable& table, uint32_t slot) {
  return table.weights + uint64_t{table.weight_stride} * slot;
}
HOTBED_ROW_FN uint8_t* StateOf(const RowTable& table, uint32_t slot) {
  return table.state + uint64_t{table.state_bytes} * slot;
}
HOTBED_ROW_FN uint64_t PositionOfSlot(const RowTable& table, uint32_t slot) {
  return table.direct ? table.first_position + slot : table.positions[slot];
}

// The same pointer, opaque to the compiler: GCC would otherwise keep the address of every piece of
// what it points to in a register of its own, and run out of them.
HOTBED_ROW_FN const uint8_t* OneAddress(const uint8_t* pointer) {
  __asm__("" : "+r"(pointer));
  return pointer;
}

// Prefetches the lines of a row that lie in [from, from + bytes), if `from` begins a line. Near: a
// line on its way to the first-level cache occupies one of its miss buffers. A processor with few
// of them needs them for loads and stores of the current rows, and gains by having the lines
// brought to the second-level cache.
HOTBED_ROW_FN void FetchLines(const uint8_t* from, uint32_t bytes) {
  from = OneAddress(from);
  if (kFetchWay.near) {
    for (uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 3);
  } else {
    for (uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
  }
}

HOTBED_ROW_FN void PrefetchBytes(const uint8_t* from, uint32_t bytes) {
  constexpr uint32_t kBytesMax = 64 * kPrefetchLines;
  FetchLines(from, bytes < kBytesMax ? bytes : kBytesMax);
}

// How many rows ahead a row is prefetched that will be read.
HOTBED_ROW_FN uint32_t RowsAheadOfReads(uint32_t bytes) {
  constexpr uint32_t kLinesAhead = 96;
  constexpr uint32_t kLeast = 12;  // covers one memory latency at full bandwidth
  const uint32_t rows = kLinesAhead / ((bytes + 63) / 64 + (bytes == 0));
  const uint32_t most = kFetchWay.read_rows_ahead;
  return rows < kLeast ? kLeast : rows > most ? most : rows;
}

HOTBED_ROW_FN void Visit(const RowTable& table, uint32_t slot) {
  const uint8_t bits = table.bits[slot];
  if ((bits & kRowVisits) != kRowVisits) table.bits[slot] = bits + 1;
}

template <typename Weight>
HOTBED_ROW_FN void FirstWeights(const RowTable& table, uint64_t id, uint8_t* weights) {
  float values[kDimLimit];
  InitialRow(table.initializer, table.seed, id, table.column_first, table.dim, values);
  for (uint32_t i = 0; i < table.dim; ++i) Weight::Store(weights, i, values[i]);
}

inline void FirstValue(const RowTable& table, uint64_t position, uint8_t* weights, uint8_t* state) {
  const uint64_t id = IdOf(table, position);
  switch (table.weight_type) {
    case WeightType::kFp32:
      FirstWeights<Fp32Codec>(table, id, weights);
      break;
    case WeightType::kFp16:
      FirstWeights<Fp16Codec>(table, id, weights);
      break;
    case WeightType::kBf16:
      FirstWeights<Bf16Codec>(table, id, weights);
      break;
  }
  if (state == nullptr) return;
  FirstState(*table.optimizer, table.dim, state);
}

HOTBED_ROW_FN uint8_t* TouchesOf(const RowTable& table, uint32_t slot) {
  return StateOf(table, slot) + table.state_bytes - kTouchBytes;
}

// Candidates are in memory and do not exist to readers.
HOTBED_ROW_FN bool IsCandidate(const RowTable& table, uint32_t slot) {
  return table.admission.HasCandidates() &&
         LoadTouches(TouchesOf(table, slot)).count < table.admission.Needed();
}

using EncodeFn = void (*)(const uint8_t* weights, uint32_t dim, uint8_t* out);

template <typename Weight>
EncodeFn EncoderFrom(RowType type) {
  switch (type) {
    case RowType::kFp32:
      return [](const uint8_t* w, uint32_t dim, uint8_t* out) {
        ConvertRow<Weight, Fp32Codec>(w, dim, out);
      };
    case RowType::kFp16:
      return [](const uint8_t* w, uint32_t dim, uint8_t* out) {
        ConvertRow<Weight, Fp16Codec>(w, dim, out);
      };
    case RowType::kBf16:
      return [](const uint8_t* w, uint32_t dim, uint8_t* out) {
        ConvertRow<Weight, Bf16Codec>(w, dim, out);
      };
    case RowType::kInt8:
      return [](const uint8_t* w, uint32_t dim, uint8_t* out) { QuantizeRow<Weight>(w, dim, out); };
  }
  return nullptr;
}

inline EncodeFn EncoderOf(WeightType weight, RowType type) {
  switch (weight) {
    case WeightType::kFp32:
      return EncoderFrom<Fp32Codec>(type);
    case WeightType::kFp16:
      return EncoderFrom<Fp16Codec>(type);
    case WeightType::kBf16:
      return EncoderFrom<Bf16Codec>(type);
  }
  return nullptr;
}

// Weights and wire have the same type: rows are copied as bytes.
HOTBED_ROW_FN bool SameBytes(WeightType weight, RowType type) {
  return static_cast<uint8_t>(weight) == static_cast<uint8_t>(type);
}

inline void EncodeRow(const RowTable& table, const uint8_t* weights, RowType type, uint8_t* out) {
  if (SameBytes(table.weight_type, type)) {
    CopyRow(out, weights, table.weight_bytes);
  } else {
    EncoderOf(table.weight_type, type)(weights, table.dim, out);
  }
}

// Calls found(i, slot) or absent(i) for each id of the batch, in order. Reads ahead: buckets two
// blocks, candidates and their rows one block before they are used.
template <typename Ids, typename Found, typename Absent>
HOTBED_ROW_FN void ForEachIndexed(const RowTable& table, uint32_t count, const Ids& ids,
                                  Found found, Absent absent, uint32_t prefetch_bytes) {
  struct Lane {
    uint64_t position;
    IndexHash hash;
    uint32_t slot;  // candidate: the first entry of the home bucket with the digest
  };
  Lane lanes[3][kIndexBlock];
  const uint32_t blocks = (count + kIndexBlock - 1) / kIndexBlock;
  for (uint32_t b = 0; b < blocks + 2; ++b) {
    if (b < blocks) {
      const uint32_t limit = b + 1 == blocks ? count - b * kIndexBlock : kIndexBlock;
      for (uint32_t l = 0; l < limit; ++l) {
        Lane& lane = lanes[b % 3][l];
        lane.position = PositionOf(table, ids(b * kIndexBlock + l));
        lane.hash = HashPosition(table, lane.position);
        __builtin_prefetch(table.buckets + lane.hash.bucket, 0, 3);
      }
    }
    if (b >= 1 && b - 1 < blocks) {
      const uint32_t limit = b == blocks ? count - (b - 1) * kIndexBlock : kIndexBlock;
      for (uint32_t l = 0; l < limit; ++l) {
        Lane& lane = lanes[(b - 1) % 3][l];
        const IndexBucket& bucket = table.buckets[lane.hash.bucket];
        const uint32_t mask = MatchDigest(bucket, lane.hash.digest);
        lane.slot = kNoSlot;
        if (mask == 0) continue;
        lane.slot = SlotAt(bucket, static_cast<uint32_t>(__builtin_ctz(mask)));
        __builtin_prefetch(table.positions + lane.slot, 0, 3);
        __builtin_prefetch(table.bits + lane.slot, 1, 3);
        PrefetchBytes(WeightsOf(table, lane.slot), prefetch_bytes);
      }
    }
    if (b >= 2) {
      const uint32_t first = (b - 2) * kIndexBlock;
      const uint32_t limit = b - 1 == blocks ? count - first : kIndexBlock;
      for (uint32_t l = 0; l < limit; ++l) {
        const Lane& lane = lanes[(b - 2) % 3][l];
        uint32_t slot = lane.slot;
        if (slot == kNoSlot || table.positions[slot] != lane.position) {
          slot = IndexFind(table, lane.position, lane.hash);
        }
        if (slot != kNoSlot) {
          Visit(table, slot);
          found(first + l, slot);
        } else {
          absent(first + l);
        }
      }
    }
  }
}

template <typename Ids, typename Found, typename Absent>
HOTBED_ROW_FN void ForEachDirect(const RowTable& table, uint32_t count, const Ids& ids, Found found,
                                 Absent absent, uint32_t prefetch_bytes) {
  const uint64_t first = table.first_position;
  const bool full = table.rows == table.slots;  // then every slot holds a row
  const auto prefetch = [&](uint32_t i) HOTBED_ALWAYS_INLINE {
    const uint32_t slot = static_cast<uint32_t>(ids(i) - first);
    if (!full) __builtin_prefetch(table.bits + slot, 0, 3);
    PrefetchBytes(WeightsOf(table, slot), prefetch_bytes);
  };
  const uint32_t rows_ahead = RowsAheadOfReads(prefetch_bytes);
  for (uint32_t i = 0; i < rows_ahead && i < count; ++i) prefetch(i);
  for (uint32_t i = 0; i < count; ++i) {
    if (i + rows_ahead < count) prefetch(i + rows_ahead);
    const uint32_t slot = static_cast<uint32_t>(ids(i) - first);
    if (full || (table.bits[slot] & kRowExists)) {
      found(i, slot);
    } else {
      absent(i);
    }
  }
}

// `prefetch_bytes` of each row's weights will be read by `found`.
template <typename Ids, typename Found, typename Absent>
HOTBED_ROW_FN void ForEachRow(const RowTable& table, uint32_t count, const Ids& ids, Found found,
                              Absent absent, uint32_t prefetch_bytes) {
  if (table.direct) {
    ForEachDirect(table, count, ids, found, absent, prefetch_bytes);
  } else {
    ForEachIndexed(table, count, ids, found, absent, prefetch_bytes);
  }
}

HOTBED_ROW_FN bool KnownAbsent(const RowTable& table, uint64_t id) {
  return table.direct && (table.bits[id - table.first_position] & kRowAbsent) != 0;
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_KERNEL_BODY_H_
