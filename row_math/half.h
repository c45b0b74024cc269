// fp16 (IEEE binary16) and bf16 (upper half of binary32) to and from fp32, rounding to nearest
// even.
//
// Infinities stay, overflow becomes infinity, subnormals are exact, a NaN becomes a quiet NaN that
// keeps the upper bits of its payload and its sign: bit for bit what VCVTPS2PH, VCVTPH2PS and
// CUDA's conversions do.
#ifndef HOTBED_ROW_MATH_HALF_H_
#define HOTBED_ROW_MATH_HALF_H_

#include <cstdint>

#include "row_math/isa.h"
#if defined(__F16C__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

namespace hotbed {
inline namespace HOTBED_ISA {

HOTBED_ROW_FN uint32_t FloatBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HOTBED_ROW_FN float FloatFromBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

HOTBED_ROW_FN float Fp16ToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // A subnormal half is an integer multiple of 2^-24, which fp32 holds exactly.
  const float subnormal = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
  uint32_t bits = (magnitude << 13) + (112u << 23);
  bits = magnitude >= 0x7c00u ? bits + (112u << 23) : bits;
  bits = magnitude > 0x7c00u ? bits | 0x00400000u : bits;
  bits = magnitude < 0x0400u ? FloatBits(subnormal) : bits;
  return FloatFromBits(bits | sign);
}

HOTBED_ROW_FN uint16_t FloatToFp16(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Rebias the exponent and round the 13 lost bits to even; a carry walks into the exponent by
  // itself.
  const uint32_t normal = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 aligns a small value so that its ulp is 2^-24: the FPU rounds to even for us.
  const uint32_t subnormal = FloatBits(FloatFromBits(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x47800000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : half;
  return static_cast<uint16_t>(half | sign);
}

HOTBED_ROW_FN float Bf16ToFloat(uint16_t value) {
  return FloatFromBits(static_cast<uint32_t>(value) << 16);
}

HOTBED_ROW_FN uint16_t FloatToBf16(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

// How elements of a row are stored: unaligned loads and stores of one element, as fp32. kByBlock:
// BlockCodec converts 32 of them with instructions that no compiler finds in a loop of these.
#if defined(__F16C__) && !defined(__CUDACC__)
constexpr bool kFp16ByBlock = true;
#else
constexpr bool kFp16ByBlock = false;
#endif
struct Fp32Codec {
  static constexpr bool kByBlock = false;
  static constexpr uint32_t kBytes = 4;
  HOTBED_ROW_FN static float Load(const uint8_t* from, uint32_t i) {
    float value;
    __builtin_memcpy(&value, from + 4ull * i, 4);
    return value;
  }
  HOTBED_ROW_FN static void Store(uint8_t* to, uint32_t i, float value) {
    __builtin_memcpy(to + 4ull * i, &value, 4);
  }
};

struct Fp16Codec {
  static constexpr bool kByBlock = kFp16ByBlock;
  static constexpr uint32_t kBytes = 2;
  HOTBED_ROW_FN static float Load(const uint8_t* from, uint32_t i) {
    uint16_t half;
    __builtin_memcpy(&half, from + 2ull * i, 2);
    return Fp16ToFloat(half);
  }
  HOTBED_ROW_FN static void Store(uint8_t* to, uint32_t i, float value) {
    const uint16_t half = FloatToFp16(value);
    __builtin_memcpy(to + 2ull * i, &half, 2);
  }
};

struct Bf16Codec {
  static constexpr bool kByBlock = false;
  static constexpr uint32_t kBytes = 2;
  HOTBED_ROW_FN static float Load(const uint8_t* from, uint32_t i) {
    uint16_t half;
    __builtin_memcpy(&half, from + 2ull * i, 2);
    return Bf16ToFloat(half);
  }
  HOTBED_ROW_FN static void Store(uint8_t* to, uint32_t i, float value) {
    const uint16_t half = FloatToBf16(value);
    __builtin_memcpy(to + 2ull * i, &half, 2);
  }
};

// 32 elements to and from fp32 at once: the unit in which rows are converted.
constexpr uint32_t kBlockElements = 32;

template <typename Codec>
struct BlockCodec {
  HOTBED_ROW_FN static void Load(const uint8_t* from, float* block) {
    HOTBED_INDEPENDENT
    for (uint32_t i = 0; i < kBlockElements; ++i) block[i] = Codec::Load(from, i);
  }
  HOTBED_ROW_FN static void Store(uint8_t* to, const float* block) {
    HOTBED_INDEPENDENT
    for (uint32_t i = 0; i < kBlockElements; ++i) Codec::Store(to, i, block[i]);
  }
};

#if defined(__F16C__) && !defined(__CUDACC__)
// The instructions give the bits of FloatToFp16 and Fp16ToFloat.
#if defined(__AVX512F__)
// As wide as the loops that read and write the block: else a load would wait for two stores. The
// masks name every element; GCC 12 warns of the forms without one.
template <>
struct BlockCodec<Fp16Codec> {
  HOTBED_ROW_FN static void Load(const uint8_t* from, float* block) {
    for (uint32_t i = 0; i < kBlockElements; i += 16) {
      const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * i));
      _mm512_storeu_ps(block + i, _mm512_maskz_cvtph_ps(0xffff, halves));
    }
  }
  HOTBED_ROW_FN static void Store(uint8_t* to, const float* block) {
    for (uint32_t i = 0; i < kBlockElements; i += 16) {
      const __m256i halves =
          _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(block + i), _MM_FROUND_TO_NEAREST_INT);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i), halves);
    }
  }
};
#else
template <>
struct BlockCodec<Fp16Codec> {
  HOTBED_ROW_FN static void Load(const uint8_t* from, float* block) {
    for (uint32_t i = 0; i < kBlockElements; i += 8) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
      _mm256_storeu_ps(block + i, _mm256_cvtph_ps(halves));
    }
  }
  HOTBED_ROW_FN static void Store(uint8_t* to, const float* block) {
    for (uint32_t i = 0; i < kBlockElements; i += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(block + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i), halves);
    }
  }
};
#endif
#endif

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_HALF_H_
