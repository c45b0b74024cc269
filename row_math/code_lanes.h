// Elements of rows of codes (kTbeInt8, kTbeInt4 and kTbeInt2 of row_math/row_formats.h) for
// Nearness: fp32 as readers decode them, without a decoded row in memory.
#ifndef HOTBED_ROW_MATH_CODE_LANES_H_
#define HOTBED_ROW_MATH_CODE_LANES_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/nearness.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// fp16 scale and bias, then codes. The product of a code and an fp16 is exact in fp32, so that the
// sum is the only rounding, fused or not.
template <uint32_t kBits>
struct CodesCodec {
  static constexpr uint32_t kPerByte = 8 / kBits;
  static constexpr uint32_t kMask = (1u << kBits) - 1;

  HOTBED_ROW_FN static float Parameter(const uint8_t* row, uint32_t number) {
    uint16_t half;
    __builtin_memcpy(&half, row + 2 * number, 2);
    return Fp16ToFloat(half);
  }
  HOTBED_ROW_FN static float Load(const uint8_t* row, uint32_t i) {
    const uint32_t code = row[4 + i / kPerByte] >> i % kPerByte * kBits & kMask;
    return static_cast<float>(code) * Parameter(row, 0) + Parameter(row, 1);
  }
};

#if defined(__AVX2__) && defined(__FMA__) && !defined(__CUDACC__)
HOTBED_ROW_FN Lanes LanesOfCodes(const uint8_t* row, __m256i codes) {
  const __m256 scale = _mm256_set1_ps(CodesCodec<8>::Parameter(row, 0));
  const __m256 bias = _mm256_set1_ps(CodesCodec<8>::Parameter(row, 1));
  return Lanes::Widen(_mm256_fmadd_ps(_mm256_cvtepi32_ps(codes), scale, bias));
}
template <>
HOTBED_ROW_FN Lanes LanesOf<CodesCodec<8>>(const uint8_t* row, uint32_t i) {
  const auto* const from = reinterpret_cast<const __m128i*>(row + 4 + i);
  return LanesOfCodes(row, _mm256_cvtepu8_epi32(_mm_loadl_epi64(from)));
}
template <>
HOTBED_ROW_FN Lanes LanesOf<CodesCodec<4>>(const uint8_t* row, uint32_t i) {
  uint32_t eight;
  __builtin_memcpy(&eight, row + 4 + i / 2, 4);
  const __m256i shifted = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(eight)),
                                            _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  return LanesOfCodes(row, _mm256_and_si256(shifted, _mm256_set1_epi32(15)));
}
template <>
HOTBED_ROW_FN Lanes LanesOf<CodesCodec<2>>(const uint8_t* row, uint32_t i) {
  uint16_t eight;
  __builtin_memcpy(&eight, row + 4 + i / 4, 2);
  const __m256i shifted =
      _mm256_srlv_epi32(_mm256_set1_epi32(eight), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
  return LanesOfCodes(row, _mm256_and_si256(shifted, _mm256_set1_epi32(3)));
}
#endif

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_CODE_LANES_H_
