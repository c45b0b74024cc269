// Stochastic rounding of fp32 to fp16 and bf16: up or down to a neighbour with the probability that
// makes the mean error zero, also below the smallest normal number. A value that the type holds
// exactly never changes. Values beyond the largest finite one have no upper neighbour and are
// rounded to nearest even.
//
// The draw of an element is a pure function of (table seed, id, column, step):
// Philox4x32-10 with key = seed and counter = (id, 2^31 | step[32..46] << 16 | column / 4, step
// [0..31]), word column % 4. The bit 2^31 keeps these draws apart from the first values' (see
// row_math/philox.h). So bits do not depend on placement, batch cut or replay.
//
// fp32 has 13 bits more than a normal fp16 and 16 more than any bf16: adding that many random bits
// below the last place and truncating is exact. A subnormal fp16 is a multiple of 2^-24: the rest
// beyond the multiple is compared with 31 random bits, so the bias is below 2^-31 of that step.
#ifndef HOTBED_ROW_MATH_STOCHASTIC_ROUNDING_H_
#define HOTBED_ROW_MATH_STOCHASTIC_ROUNDING_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/philox.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// Names the draws of a row's rounding. `column` is that of the row's first element in the table.
struct RowKey {
  uint64_t seed = 0;
  uint64_t id = 0;
  uint32_t column = 0;
};

HOTBED_ROW_FN uint16_t RoundToFp16(float value, uint32_t draw) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - (112u << 23) + (draw & 0x1fffu)) >> 13;
  // Below 2^-14: a number of steps of 2^-24, at most 1024, and a rest in [0, 1); both exact.
  const uint32_t bounded = magnitude < 0x38800000u ? magnitude : 0u;
  const float steps = FloatFromBits(bounded) * 16777216.0f;
  const int32_t whole = static_cast<int32_t>(steps);
  const float rest = steps - static_cast<float>(whole);
  const int32_t threshold = static_cast<int32_t>(rest * 2147483648.0f);
  const uint32_t subnormal =
      static_cast<uint32_t>(whole) + (static_cast<int32_t>(draw >> 1) < threshold ? 1u : 0u);
  const uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  const uint16_t nearest = FloatToFp16(value);  // also NaN and infinity
  return magnitude >= 0x477fe000u ? nearest : static_cast<uint16_t>(half | sign);
}

HOTBED_ROW_FN uint16_t RoundToBf16(float value, uint32_t draw) {
  const uint32_t bits = FloatBits(value);
  const uint16_t nearest = FloatToBf16(value);
  const uint32_t drawn = (bits + (draw & 0xffffu)) >> 16;
  return (bits & 0x7fffffffu) >= 0x7f7f0000u ? nearest : static_cast<uint16_t>(drawn);
}

// The draws of columns 4 * quad .. 4 * quad + 3.
HOTBED_ROW_FN PhiloxDraws RoundingQuad(const RowKey& key, uint32_t quad, uint64_t step) {
  const uint32_t high = 0x80000000u | (static_cast<uint32_t>(step >> 32) & 0x7fffu) << 16;
  return Philox4x32(static_cast<uint32_t>(key.id), static_cast<uint32_t>(key.id >> 32), high | quad,
                    static_cast<uint32_t>(step), static_cast<uint32_t>(key.seed),
                    static_cast<uint32_t>(key.seed >> 32));
}

// Draws of columns [column, column + 32) at draws[column % 4...]; room for 36.
HOTBED_ROW_FN const uint32_t* RoundingDraws(const RowKey& key, uint32_t column, uint64_t step,
                                            uint32_t* draws) {
  const uint32_t first = column / 4;
  for (uint32_t q = 0; q < 9; ++q) {
    const PhiloxDraws d = RoundingQuad(key, first + q, step);
    for (uint32_t i = 0; i < 4; ++i) draws[4 * q + i] = d.v[i];
  }
  return draws + column % 4;
}

struct Fp16Rounding {
  HOTBED_ROW_FN static uint16_t Round(float value, uint32_t draw) {
    return RoundToFp16(value, draw);
  }
};
struct Bf16Rounding {
  HOTBED_ROW_FN static uint16_t Round(float value, uint32_t draw) {
    return RoundToBf16(value, draw);
  }
};

// Elements [0, dim) of `values` (fp32 with room for whole blocks of 32) to `to`, two bytes each.
template <typename Rounding>
HOTBED_ROW_CALL void StoreRounded(const RowKey& key, uint64_t step, uint32_t dim,
                                  const uint8_t* values, uint8_t* to) {
  for (uint32_t first = 0; first < dim; first += kBlockElements) {
    uint32_t room[kBlockElements + 4];
    uint16_t rounded[kBlockElements];
    const uint32_t* draws = RoundingDraws(key, key.column + first, step, room);
    HOTBED_INDEPENDENT
    for (uint32_t i = 0; i < kBlockElements; ++i) {
      rounded[i] = Rounding::Round(Fp32Codec::Load(values, first + i), draws[i]);
    }
    const uint32_t count = dim - first < kBlockElements ? dim - first : kBlockElements;
    for (uint32_t i = 0; i < count; ++i) {
      __builtin_memcpy(to + 2ull * (first + i), rounded + i, 2);
    }
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_STOCHASTIC_ROUNDING_H_
