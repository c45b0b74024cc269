// Rows as bytes, by a team: copies, the wire types, first values.
//
// The bits are those of row_math and so of the CPU kernels; only a NaN that arithmetic makes may
// differ (a GPU has one NaN, a CPU keeps signs and payloads).
#ifndef HOTBED_DEVICE_ROW_BYTES_H_
#define HOTBED_DEVICE_ROW_BYTES_H_

#include <cstdint>

#include "device/buckets.h"
#include "device/table.h"
#include "row_math/half.h"
#include "row_math/initializer.h"
#include "row_math/isa.h"
#include "row_math/quantize.h"

namespace hotbed {
namespace device {

// What one load or store moves.
template <uint32_t kBytes>
struct alignas(kBytes) CopyUnit {
  uint8_t bytes[kBytes];
};

template <uint32_t kBytes, typename Team>
HOTBED_ROW_FN void CopyUnits(const Team& team, uint8_t* to, const uint8_t* from, uint32_t bytes) {
  const auto load = [&](uint32_t i) {
    CopyUnit<kBytes> unit;
    __builtin_memcpy(&unit, __builtin_assume_aligned(from + uint64_t{kBytes} * i, kBytes), kBytes);
    return unit;
  };
  team.Batched(bytes / kBytes, load, [&](uint32_t i, const CopyUnit<kBytes>& unit) {
    __builtin_memcpy(__builtin_assume_aligned(to + uint64_t{kBytes} * i, kBytes), &unit, kBytes);
  });
}

// In the widest unit that both ends and the size allow.
template <typename Team>
HOTBED_ROW_FN void CopyRow(const Team& team, uint8_t* to, const uint8_t* from, uint32_t bytes) {
  const uint64_t ends = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
  if (ends % 16 == 0) return CopyUnits<16>(team, to, from, bytes);
  if (ends % 4 == 0) return CopyUnits<4>(team, to, from, bytes);
  if (ends % 2 == 0) return CopyUnits<2>(team, to, from, bytes);
  CopyUnits<1>(team, to, from, bytes);
}

// Elements of device memory, at a multiple of their size.
template <typename T>
HOTBED_ROW_FN T LoadAligned(const uint8_t* from, uint32_t i) {
  T value;
  const uint8_t* const at = from + sizeof(T) * uint64_t{i};
  __builtin_memcpy(&value, __builtin_assume_aligned(at, sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
HOTBED_ROW_FN void StoreAligned(uint8_t* to, uint32_t i, T value) {
  uint8_t* const at = to + sizeof(T) * uint64_t{i};
  __builtin_memcpy(__builtin_assume_aligned(at, sizeof(T)), &value, sizeof(T));
}

// One element of a row that is not int8. `type` is the same for the whole row.
HOTBED_ROW_FN float LoadElement(RowType type, const uint8_t* from, uint32_t i) {
  if (type == RowType::kFp32) return LoadAligned<float>(from, i);
  const uint16_t half = LoadAligned<uint16_t>(from, i);
  return type == RowType::kFp16 ? Fp16ToFloat(half) : Bf16ToFloat(half);
}
HOTBED_ROW_FN void StoreElement(RowType type, uint8_t* to, uint32_t i, float value) {
  if (type == RowType::kFp32) return StoreAligned<float>(to, i, value);
  StoreAligned<uint16_t>(to, i, type == RowType::kFp16 ? FloatToFp16(value) : FloatToBf16(value));
}

HOTBED_ROW_FN RowType RowTypeOf(WeightType type) {
  return static_cast<RowType>(static_cast<uint8_t>(type));
}
static_assert(static_cast<uint8_t>(WeightType::kFp16) == static_cast<uint8_t>(RowType::kFp16) &&
                  static_cast<uint8_t>(WeightType::kBf16) == static_cast<uint8_t>(RowType::kBf16),
              "stored types are wire types by the same number");

// Floats in the order of their values, as unsigned numbers; -0 and 0 as one.
HOTBED_ROW_FN uint32_t OrderOf(float value) {
  const uint32_t bits = FloatBits(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
HOTBED_ROW_FN float FromOrder(uint32_t order) {
  return FloatFromBits((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

// Quantised as row_math/quantize.h says; `value(i)` is element i.
template <typename Team, typename F>
HOTBED_ROW_FN void WriteInt8(const Team& team, uint32_t dim, uint8_t* out, F value) {
  const uint32_t not_finite = team.Min(dim, [&](uint32_t i) {
    return (FloatBits(value(i)) & 0x7f800000u) == 0x7f800000u ? 0u : 1u;
  });
  const uint32_t low = team.Min(dim, [&](uint32_t i) { return OrderOf(value(i)); });
  const uint32_t high = team.Min(dim, [&](uint32_t i) { return ~OrderOf(value(i)); });
  const RowRange extremes = {FromOrder(low), FromOrder(~high), not_finite != 0};
  const CodeScale codes = CodeScaleOf(extremes);
  float bias = extremes.low;
  if (bias == 0.0f) {  // of zeros of both signs the first
    const uint32_t first = team.Min(dim, [&](uint32_t i) { return value(i) == 0.0f ? i : kNoRow; });
    if (first != kNoRow) bias = value(first);
  }
  if (!extremes.finite) bias = FloatFromBits(kNoBias);
  team.Strided(dim, [&](uint32_t i) {
    out[i] = CodeOfElement(value(i), codes.low, codes.inverse, codes.usable);
  });
  team.Once([&]() {  // behind `dim` bytes: not aligned
    Fp32Codec::Store(out + dim, 0, codes.scale);
    Fp32Codec::Store(out + dim, 1, bias);
  });
}

// A row of any type; `value(i)` is element i. int8 rows need no alignment, others their element's.
template <typename Team, typename F>
HOTBED_ROW_FN void WriteRow(const Team& team, uint32_t dim, RowType type, uint8_t* out, F value) {
  if (type == RowType::kInt8) return WriteInt8(team, dim, out, value);
  team.Strided(dim, [&](uint32_t i) { StoreElement(type, out, i, value(i)); });
}

// A stored row's weights to the wire.
template <typename Team>
HOTBED_ROW_FN void EncodeRow(const Team& team, const RowShape& shape, const uint8_t* weights,
                             RowType type, uint8_t* out) {
  const RowType stored = RowTypeOf(shape.weight_type);
  if (stored == type) return CopyRow(team, out, weights, shape.weight_bytes());
  WriteRow(team, shape.dim, type, out, [&](uint32_t i) { return LoadElement(stored, weights, i); });
}

// A wire row to fp32.
template <typename Team>
HOTBED_ROW_FN void DecodeWireRow(const Team& team, RowType type, const uint8_t* row, uint32_t dim,
                                 uint8_t* out) {
  if (type != RowType::kInt8) {
    team.Strided(dim, [&](uint32_t i) { StoreAligned(out, i, LoadElement(type, row, i)); });
    return;
  }
  const float scale = Fp32Codec::Load(row + dim, 0);
  const float bias = Fp32Codec::Load(row + dim, 1);
  team.Strided(
      dim, [&](uint32_t i) { StoreAligned(out, i, static_cast<float>(row[i]) * scale + bias); });
}

// A weight as it reads back from its type.
HOTBED_ROW_FN float StoredWeight(WeightType type, float value) {
  if (type == WeightType::kFp32) return value;
  return type == WeightType::kFp16 ? Fp16ToFloat(FloatToFp16(value))
                                   : Bf16ToFloat(FloatToBf16(value));
}

// Element i of the first value of a row.
HOTBED_ROW_FN float FirstWeight(const RowShape& shape, uint64_t id, uint32_t i) {
  const float value = InitialValue(shape.initializer, shape.seed, id, shape.column_first + i);
  return StoredWeight(shape.weight_type, value);
}

// As FirstState of row_math/initializer.h, at memory aligned to 4 bytes.
template <typename Team>
HOTBED_ROW_FN void BeginState(const Team& team, const RowShape& shape, uint8_t* state) {
  const OptimizerParams& params = shape.optimizer;
  const StateLayout layout = LayoutOfState(params);
  const uint32_t words = layout.VectorBytes(params.state_type, shape.dim) / 4;
  const uint32_t elements = layout.vectors * shape.dim;
  const RowType type = params.state_type == StateType::kFp32 ? RowType::kFp32 : RowType::kBf16;
  team.Strided(elements, [&](uint32_t i) {
    StoreElement(type, state, i, FirstStateElement(params, i / shape.dim));
  });
  team.Once([&]() {
    if (type == RowType::kBf16 && elements % 2 != 0) StoreAligned<uint16_t>(state, elements, 0);
    uint32_t word = words;
    if (layout.has_statistic) StoreAligned<float>(state, word++, FirstStateElement(params, 0));
    if (layout.has_updates) StoreAligned<uint32_t>(state, word++, 0);
    if (layout.has_last_step) StoreAligned<uint32_t>(state, word++, 0);
  });
}

template <typename Team>
HOTBED_ROW_FN void FirstValue(const Team& team, const Table& table, uint32_t slot, uint64_t id) {
  const RowShape& shape = table.shape;
  uint8_t* const weights = table.WeightsAt(slot);
  WriteRow(team, shape.dim, RowTypeOf(shape.weight_type), weights,
           [&](uint32_t i) { return FirstWeight(shape, id, i); });
  BeginState(team, shape, table.StateAt(slot));
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_ROW_BYTES_H_
