// Rows in blocks of 32 elements, and the one sum over a row that every norm and mean is made of.
//
// A sum has 32 lanes (element i goes to lane i % 32 in order of i), joined by halving: lane l +=
// lane l + 16, then 8, 4, 2, 1. So its bits are the same on every instruction set and device
// (DECISIONS N1).
#ifndef HOTBED_ROW_MATH_ROW_BLOCKS_H_
#define HOTBED_ROW_MATH_ROW_BLOCKS_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"

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

// Rows are worked on in blocks of 32 elements: loops with a constant count and independent turns,
// which is what vectorises. The last, shorter piece of a row is copied to a block of its own, where
// the elements beyond the row's end are zeros and add nothing to any sum.
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

// sum[l] += x * x over whole blocks.
HOTBED_ROW_FN void AddSquares(uint32_t blocks, const uint8_t* x, float* sum) {
  for (uint32_t b = 0; b < blocks; ++b) {
    HOTBED_INDEPENDENT
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float value = Fp32Codec::Load(x, kLanes * b + l);
      sum[l] += value * value;
    }
  }
}

HOTBED_ROW_FN float RowNorm(uint32_t blocks, const uint8_t* x) {
  float sum[kLanes] = {};
  AddSquares(blocks, x, sum);
  return __builtin_sqrtf(TreeSum(sum));
}

HOTBED_ROW_CALL void ScaleRow(uint32_t blocks, float factor, uint8_t* x) {
  for (uint32_t l = 0; l < kLanes * blocks; ++l) {
    Fp32Codec::Store(x, l, Fp32Codec::Load(x, l) * factor);
  }
}

// What brings a row to the norm `limit`; 1 where it is not longer. A row whose squares overflow,
// the very case that clipping is for, is measured again at 2^-80 of its size.
HOTBED_ROW_CALL float FactorToNorm(float limit, uint32_t blocks, const uint8_t* x) {
  constexpr float kSmaller = 8.271806125530277e-25f;  // 2^-80
  const float norm = RowNorm(blocks, x);
  if (norm <= 3.402823466e38f) return norm > limit ? limit / norm : 1.0f;
  float sum[kLanes] = {};
  for (uint32_t b = 0; b < blocks; ++b) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float value = Fp32Codec::Load(x, kLanes * b + l) * kSmaller;
      sum[l] += value * value;
    }
  }
  return limit * kSmaller / __builtin_sqrtf(TreeSum(sum));
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_ROW_BLOCKS_H_
