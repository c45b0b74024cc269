// Rows as bytes, by a team: copies, the wire types, first values.
//
// The bits are those of row_math, and so of the CPU kernels; only NaNs made by arithmetic may
// differ (a GPU has one NaN, a CPU keeps signs and payloads).
#ifndef HOTBED_DEVICE_ROW_BYTES_H_
#define HOTBED_DEVICE_ROW_BYTES_H_

#include <cstdint>

#include "device/row_loads.h"
#include "device/table.h"
#include "row_math/half.h"
#include "row_math/initializer.h"
#include "row_math/isa.h"
#include "row_math/quantize.h"

namespace hotbed {
namespace device {

// Copies stored bytes in the widest unit that both ends and the size allow; all are even. Only a
// few counters, and rows that are not IsInFours, are not multiples of 16 bytes.
template <typename Team>
HOTBED_ROW_FN void CopyRow(const Team& team, uint8_t* to, const uint8_t* from, uint32_t bytes) {
  const uint64_t ends = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
  if (ends % 16 == 0) {
    const auto load = [&](uint32_t i) { return LoadAligned<Words<4>>(from, i); };
    team.Batched(bytes / 16, load,
                 [&](uint32_t i, const Words<4>& words) { StoreAligned(to, i, words); });
  } else if (ends % 4 == 0) {
    team.Strided(bytes / 4,
                 [&](uint32_t i) { StoreAligned(to, i, LoadAligned<uint32_t>(from, i)); });
  } else {
    team.Strided(bytes / 2,
                 [&](uint32_t i) { StoreAligned(to, i, LoadAligned<uint16_t>(from, i)); });
  }
}

// Maps floats to unsigned numbers in the order of their values; -0 and 0 are equal.
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
  if (bias == 0.0f) {  // the first of zeros of both signs
    const uint32_t first = team.Min(dim, [&](uint32_t i) { return value(i) == 0.0f ? i : kNoRow; });
    if (first != kNoRow) bias = value(first);
  }
  if (!extremes.finite) bias = FloatFromBits(kNoBias);
  team.Strided(dim, [&](uint32_t i) {
    out[i] = CodeOfElement(value(i), codes.low, codes.inverse, codes.usable);
  });
  team.Once([&]() {  // after `dim` bytes: not aligned
    Fp32Codec::Store(out + dim, 0, codes.scale);
    Fp32Codec::Store(out + dim, 1, bias);
  });
}

// A row of any type; `value(i)` is element i. Rows are aligned to their elements, int8 rows not.
template <typename Team, typename F>
HOTBED_ROW_FN void WriteRow(const Team& team, uint32_t dim, RowType type, uint8_t* out, F value) {
  if (type == RowType::kInt8) return WriteInt8(team, dim, out, value);
  team.Strided(dim, [&](uint32_t i) { StoreElement(type, out, i, value(i)); });
}

// Whether a row goes to the wire in fours. Other rows take longer and are left to LeftWork.
HOTBED_ROW_FN bool IsSentInFours(const RowShape& shape, RowType type) {
  return IsInFours(shape.dim) && type != RowType::kInt8;
}

// Moves rows [begin, end) of a team part by part: calls use(at(row), row, i, load(at(row), i)) for
// the parts i < parts of each row where at(row).is. Rows of few parts are done several at a time,
// and a lane has kAhead loads in flight. All lanes call at(), so that it may Get. load() is called
// for other places and parts too, without a branch in its way, and must take any; `begin` < `end`.
template <uint32_t kAhead, typename Team, typename At, typename Load, typename Use>
HOTBED_ROW_FN void ForParts(const Team& team, uint32_t begin, uint32_t end, uint32_t parts, At at,
                            Load load, Use use) {
  using Part = decltype(load(at(begin), 0u));
  uint32_t shift = 0;  // lanes of a row: a power of two, at most all
  while (1u << shift < Team::kLanes && 1u << shift < parts) ++shift;
  const uint32_t lanes = 1u << shift, rows = Team::kLanes >> shift;
  for (uint32_t first = 0; first < parts; first += lanes) {
    HOTBED_ROLLED
    for (uint32_t from = begin; from < end; from += kAhead * rows) {
      const auto row_of = [&](uint32_t lane, uint32_t j) {
        return from + j * rows + (lane >> shift);
      };
      const auto part_of = [&](uint32_t lane) { return first + (lane & (lanes - 1)); };
      typename Team::template Values<Part> loaded[kAhead];
      HOTBED_UNROLLED
      for (uint32_t j = 0; j < kAhead; ++j) {
        loaded[j] = team.Map([&](uint32_t lane) {
          const uint32_t row = row_of(lane, j), i = part_of(lane);
          const auto place = at(row < end ? row : begin);
          return load(place, i < parts ? i : 0);
        });
      }
      HOTBED_UNROLLED
      for (uint32_t j = 0; j < kAhead; ++j) {
        team.Strided(Team::kLanes, [&](uint32_t lane) {
          const uint32_t row = row_of(lane, j), i = part_of(lane);
          const auto place = at(row < end ? row : begin);
          if (row < end && i < parts && place.is) use(place, row, i, team.Own(loaded[j], lane));
        });
      }
    }
  }
}

// Rows as a table has them: slot s at `first + stride * s`.
struct RowsInMemory {
  const uint8_t* first;
  uint32_t stride;

  HOTBED_ROW_FN const uint8_t* At(uint32_t slot) const { return first + uint64_t{stride} * slot; }
};

// Writes the weights of stored rows that are IsSentInFours to the wire: rows [begin, end) of the
// team's slots, row `begin` at `out`. Rows without a slot are left out.
template <typename Team>
HOTBED_ROW_FN void SendInFours(const Team& team, const RowShape& shape, RowType type,
                               const RowsInMemory& rows,
                               const typename Team::template Values<uint32_t>& slots,
                               uint32_t begin, uint32_t end, uint8_t* out) {
  struct Place {
    uint32_t slot;
    bool is;
  };
  const RowType stored = RowTypeOf(shape.weight_type);
  const uint32_t bytes = RowWireBytes(type, shape.dim);
  const auto out_of = [&](uint32_t row) { return out + uint64_t{bytes} * (row - begin); };
  const auto at = [&](uint32_t row) {
    const uint32_t slot = team.Get(slots, row);
    const bool is = slot != kNoRow;
    return Place{is ? slot : 0, is};
  };
  if (stored == type && shape.weight_bytes() % 16 == 0) {
    const auto load = [&](const Place& place, uint32_t i) {
      return LoadAligned<Words<4>>(rows.At(place.slot), i);
    };
    return ForParts<4>(team, begin, end, shape.weight_bytes() / 16, at, load,
                       [&](const Place&, uint32_t row, uint32_t i, const Words<4>& words) {
                         StoreOnce(out_of(row), i, words);
                       });
  }
  const auto load = [&](const Place& place, uint32_t i) {
    return LoadRaw<4>(stored, rows.At(place.slot), i);
  };
  ForParts<1>(team, begin, end, shape.dim / 4, at, load,
              [&](const Place&, uint32_t row, uint32_t i, const RawElements<4>& raw) {
                StoreElements(type, out_of(row), i, ToFloats(stored, raw));
              });
}

// Writes the weights of any stored row to the wire.
template <typename Team>
HOTBED_ROW_FN void EncodeRow(const Team& team, const RowShape& shape, const uint8_t* weights,
                             RowType type, uint8_t* out) {
  const RowType stored = RowTypeOf(shape.weight_type);
  WriteRow(team, shape.dim, type, out, [&](uint32_t i) { return LoadElement(stored, weights, i); });
}

// A weight after rounding to its type.
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
    const uint32_t counters = (layout.CounterBytes() + layout.TouchBytes()) / 4;
    for (uint32_t i = 0; i < counters; ++i) StoreAligned<uint32_t>(state, word++, 0);
  });
}

// The first value of a row, as a row of any type.
template <typename Team>
HOTBED_ROW_FN void WriteFirstWeights(const Team& team, const RowShape& shape, uint64_t id,
                                     RowType type, uint8_t* out) {
  WriteRow(team, shape.dim, type, out, [&](uint32_t i) { return FirstWeight(shape, id, i); });
}

template <typename Team>
HOTBED_ROW_FN void FirstValue(const Team& team, const Table& table, uint32_t slot, uint64_t id) {
  const RowShape& shape = table.shape;
  WriteFirstWeights(team, shape, id, RowTypeOf(shape.weight_type), table.WeightsAt(slot));
  BeginState(team, shape, table.StateAt(slot));
}

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_ROW_BYTES_H_
