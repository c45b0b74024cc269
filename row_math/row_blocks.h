// Rows in blocks of 32 elements, and the one sum over a row that all norms and means use.
//
// A sum has 32 lanes (element i goes to lane i % 32 in order of i), joined by halving: lane l +=
// lane l + 16, then 8, 4, 2, 1. So its bits are the same on every instruction set and on every
// device.
#ifndef HOTBED_ROW_MATH_ROW_BLOCKS_H_
#define HOTBED_ROW_MATH_ROW_BLOCKS_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/powers.h"

namespace hotbed {
inline namespace HOTBED_ISA {

constexpr uint32_t kLanes = 32;

#if defined(__GNUC__) && !defined(__CUDACC__)
// lanes[l] += lanes[l + kHalf] for l < kHalf, as one vector: GCC takes a plain loop apart here.
template <uint32_t kHalf>
HOTBED_ROW_FN void AddUpperHalf(float* lanes) {
  typedef float Vector __attribute__((vector_size(4 * kHalf)));
  Vector low, high;
  __builtin_memcpy(&low, lanes, sizeof(low));
  __builtin_memcpy(&high, lanes + kHalf, sizeof(high));
  low += high;
  __builtin_memcpy(lanes, &low, sizeof(low));
}
#else
template <uint32_t kHalf>
HOTBED_ROW_FN void AddUpperHalf(float* lanes) {
  for (uint32_t l = 0; l < kHalf; ++l) lanes[l] += lanes[l + kHalf];
}
#endif

// Joins the lanes; destroys them.
HOTBED_ROW_FN float TreeSum(float* lanes) {
  AddUpperHalf<16>(lanes);
  AddUpperHalf<8>(lanes);
  AddUpperHalf<4>(lanes);
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// Rows are processed in blocks of 32 elements: loops with a constant count and independent
// iterations vectorise. The last, shorter piece of a row is copied to a block of its own, where the
// elements beyond the row's end are zeros and add nothing to any sum.
template <typename Codec>
HOTBED_ROW_FN void LoadTail(const uint8_t* from, uint32_t count, float* block) {
  for (uint32_t l = 0; l < kLanes; ++l) block[l] = 0.0f;
  for (uint32_t l = 0; l < count; ++l) block[l] = Codec::Load(from, l);
}

template <typename Codec>
HOTBED_ROW_FN void StoreTail(uint8_t* to, uint32_t count, const float* block) {
  for (uint32_t l = 0; l < count; ++l) Codec::Store(to, l, block[l]);
}

HOTBED_ROW_FN uint8_t* AsBytes(float* block) { return reinterpret_cast<uint8_t*>(block); }

// The 32 lanes of a sum of squares over whole blocks of fp32. In vectors of the instruction set
// where the compiler has them: GCC keeps an array of lanes in memory from block to block.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#if defined(__AVX512F__)
constexpr uint32_t kVectorFloats = 16;
#elif defined(__AVX__)
constexpr uint32_t kVectorFloats = 8;
#else
constexpr uint32_t kVectorFloats = 4;
#endif
class SquareSum {
 public:
  typedef float Vector __attribute__((vector_size(4 * kVectorFloats)));

  // x * x, or (g + decay * w) ^ 2.
  HOTBED_ROW_FN void Add(const uint8_t* x) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      const Vector value = Load(x, v);
      sum_[v] += value * value;
    }
  }
  HOTBED_ROW_FN void AddDecayed(float decay, const uint8_t* w, const uint8_t* g) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      const Vector value = Load(g, v) + decay * Load(w, v);
      sum_[v] += value * value;
    }
  }
  // As TreeSum, without a way through memory.
  HOTBED_ROW_FN float Total() const {
    Vector s[kVectors];
    for (uint32_t v = 0; v < kVectors; ++v) s[v] = sum_[v];
    for (uint32_t half = kVectors / 2; half > 0; half /= 2) {
      for (uint32_t v = 0; v < half; ++v) s[v] += s[v + half];
    }
    return Join(s[0]);
  }

 private:
  static constexpr uint32_t kVectors = kLanes / kVectorFloats;
  typedef float Four __attribute__((vector_size(16)));
  typedef float Eight __attribute__((vector_size(32)));
  HOTBED_ROW_FN static float Join(Four x) { return (x[0] + x[2]) + (x[1] + x[3]); }
#if defined(__AVX__)
  HOTBED_ROW_FN static float Join(Eight x) {
    return Join(__builtin_shufflevector(x, x, 0, 1, 2, 3) +
                __builtin_shufflevector(x, x, 4, 5, 6, 7));
  }
#endif
#if defined(__AVX512F__)
  HOTBED_ROW_FN static float Join(Vector x) {
    return Join(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
  }
#endif
  HOTBED_ROW_FN static Vector Load(const uint8_t* x, uint32_t v) {
    Vector value;
    __builtin_memcpy(&value, x + sizeof(value) * v, sizeof(value));
    return value;
  }
  Vector sum_[kVectors] = {};
};
#else
class SquareSum {
 public:
  HOTBED_ROW_FN void Add(const uint8_t* x) {
    for (uint32_t l = 0; l < kLanes; ++l) AddTo(l, Fp32Codec::Load(x, l));
  }
  HOTBED_ROW_FN void AddDecayed(float decay, const uint8_t* w, const uint8_t* g) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      AddTo(l, Fp32Codec::Load(g, l) + decay * Fp32Codec::Load(w, l));
    }
  }
  HOTBED_ROW_FN float Total() const {
    float lanes[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) lanes[l] = sum_[l];
    return TreeSum(lanes);
  }

 private:
  HOTBED_ROW_FN void AddTo(uint32_t lane, float value) { sum_[lane] += value * value; }
  float sum_[kLanes] = {};
};
#endif

HOTBED_ROW_FN float RowNorm(uint32_t blocks, const uint8_t* x) {
  SquareSum sum;
  for (uint32_t at = 0; at < 128 * blocks; at += 128) sum.Add(x + at);
  return __builtin_sqrtf(sum.Total());
}

HOTBED_ROW_CALL void ScaleRow(uint32_t blocks, float factor, uint8_t* x) {
  for (uint32_t l = 0; l < kLanes * blocks; ++l) {
    Fp32Codec::Store(x, l, Fp32Codec::Load(x, l) * factor);
  }
}

// The factor that brings a row to the norm `limit`; 1 if it is not longer. A row whose squares
// overflow, which is the case that clipping is for, is measured again at 2^-80 of its size.
constexpr float kSmaller = 8.271806125530277e-25f;  // 2^-80
HOTBED_ROW_FN bool NormOverflows(float norm) { return !(norm <= 3.402823466e38f); }
HOTBED_ROW_FN float FactorOfNorm(float limit, float norm) {
  return norm > limit ? limit / norm : 1.0f;
}
HOTBED_ROW_FN float FactorOfSmallerNorm(float limit, float norm) { return limit * kSmaller / norm; }

HOTBED_ROW_CALL float FactorToNorm(float limit, uint32_t blocks, const uint8_t* x) {
  const float norm = RowNorm(blocks, x);
  if (!NormOverflows(norm)) return FactorOfNorm(limit, norm);
  float sum[kLanes] = {};
  for (uint32_t b = 0; b < blocks; ++b) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float value = Fp32Codec::Load(x, kLanes * b + l) * kSmaller;
      sum[l] += value * value;
    }
  }
  return FactorOfSmallerNorm(limit, __builtin_sqrtf(TreeSum(sum)));
}

// The same for the norm (sum of |x|^p)^(1/p), or the largest |x| for p = 0. Elements are measured
// in limits, and their powers in that of the largest, so that none overflows.
HOTBED_ROW_FN float InLimits(float limit, float value) {
  return (value < 0.0f ? -value : value) / limit;
}
HOTBED_ROW_FN float PowerOfPart(float p, float largest, float size) {
  return static_cast<float>(RealPower(size / largest, p));
}
HOTBED_ROW_FN float FactorOfPowers(float p, float largest, float sum) {
  const double norm = p > 0.0f ? largest * RealPower(sum, 1.0 / p) : largest;
  return norm > 1.0 ? static_cast<float>(1.0 / norm) : 1.0f;
}

HOTBED_ROW_CALL float FactorToNormOf(float p, float limit, uint32_t blocks, const uint8_t* x) {
  if (p == 2.0f) return FactorToNorm(limit, blocks, x);
  float largest = 0.0f;
  for (uint32_t i = 0; i < kLanes * blocks; ++i) {
    const float size = InLimits(limit, Fp32Codec::Load(x, i));
    largest = size > largest ? size : largest;
  }
  float sum[kLanes] = {};
  for (uint32_t i = 0; p > 0.0f && i < kLanes * blocks; ++i) {
    sum[i % kLanes] += PowerOfPart(p, largest, InLimits(limit, Fp32Codec::Load(x, i)));
  }
  return FactorOfPowers(p, largest, TreeSum(sum));
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_ROW_BLOCKS_H_
