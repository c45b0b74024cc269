#include "client/rows/row_convert.h"

#include <cmath>
#include <cstring>

namespace hotbed {
namespace {

float FloatOf(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

uint32_t BitsOf(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

uint16_t LoadU16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

float HalfToFloat(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact in fp32
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return FloatOf(BitsOf(value) | sign);
  }
  if (exponent == 31) {  // infinite or NaN; quieted as F16C does
    return FloatOf(sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u));
  }
  return FloatOf(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t FloatToHalf(float f) {
  const uint32_t bits = BitsOf(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds beyond 65504
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal or zero
    // Adding 0.5 leaves the mantissa in units of 2^-24, rounded to nearest even by the addition
    // itself.
    return static_cast<uint16_t>(sign | (BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

uint16_t FloatToBf16(float f) {
  const uint32_t bits = BitsOf(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

void FromFp32(const uint8_t* row, uint32_t dim, float* out) { std::memcpy(out, row, 4ull * dim); }
void FromFp16(const uint8_t* row, uint32_t dim, float* out) {
  for (uint32_t i = 0; i < dim; ++i) out[i] = HalfToFloat(LoadU16(row + 2ull * i));
}
void FromBf16(const uint8_t* row, uint32_t dim, float* out) {
  for (uint32_t i = 0; i < dim; ++i) out[i] = FloatOf(uint32_t{LoadU16(row + 2ull * i)} << 16);
}
void FromInt8(const uint8_t* row, uint32_t dim, float* out) {
  float scale, bias;
  std::memcpy(&scale, row + dim, 4);
  std::memcpy(&bias, row + dim + 4, 4);
  for (uint32_t i = 0; i < dim; ++i) {
    const float scaled = static_cast<float>(row[i]) * scale;
    out[i] = scaled + bias;
  }
}
void Copy(const uint8_t* from, uint32_t bytes, uint8_t* to) { std::memcpy(to, from, bytes); }

void Add(const float* row, uint32_t dim, float* sum) {
  for (uint32_t i = 0; i < dim; ++i) sum[i] += row[i];
}

bool ToFp32(const float* values, uint32_t dim, uint8_t* row) {
  bool finite = true;
  for (uint32_t i = 0; i < dim; ++i) finite &= std::isfinite(values[i]);
  std::memcpy(row, values, 4ull * dim);
  return finite;
}
bool ToFp16(const float* values, uint32_t dim, uint8_t* row) {
  bool finite = true;
  for (uint32_t i = 0; i < dim; ++i) {
    const uint16_t half = FloatToHalf(values[i]);
    finite &= (half & 0x7fffu) < 0x7c00u;
    std::memcpy(row + 2ull * i, &half, 2);
  }
  return finite;
}
bool ToBf16(const float* values, uint32_t dim, uint8_t* row) {
  bool finite = true;
  for (uint32_t i = 0; i < dim; ++i) {
    const uint16_t half = FloatToBf16(values[i]);
    finite &= (half & 0x7fffu) < 0x7f80u;
    std::memcpy(row + 2ull * i, &half, 2);
  }
  return finite;
}

constexpr RowConverters kScalar = {{FromFp32, FromFp16, FromBf16, FromInt8},
                                   {FromFp32, FromFp16, FromBf16, FromInt8},
                                   Copy,
                                   Add,
                                   {ToFp32, ToFp16, ToBf16}};

}  // namespace

const RowConverters& ScalarRowConverters() { return kScalar; }

const RowConverters& BestRowConverters() {
  static const RowConverters& best = []() -> const RowConverters& {
#if defined(__x86_64__)
    if (internal::kAvx2RowConverters != nullptr && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("f16c")) {
      return *internal::kAvx2RowConverters;
    }
#endif
    return kScalar;
  }();
  return best;
}

}  // namespace hotbed
