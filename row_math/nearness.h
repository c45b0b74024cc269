// How near a row is to a vector: one number, the same bits for every instruction set and wherever
// the row lies.
//
// The elements of both are widened to fp64, which is exact. Column j belongs to lane j mod 8. A
// lane begins with 0 and adds the terms of its columns in ascending order; each product and each
// sum is rounded to nearest. The lanes s0 to s7 are joined as
//   ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
//
//   dot     the sum of w[j] * q[j]
//   l2      the sum of (w[j] - q[j])^2: the square of the distance
//   cosine  dot / (sqrt(sum of w[j]^2) * sqrt(sum of q[j]^2)); 0 if the row or the vector is zero
//
// No sum over- or underflows: the elements are fp32 at most.
#ifndef HOTBED_ROW_MATH_NEARNESS_H_
#define HOTBED_ROW_MATH_NEARNESS_H_

#include <cstdint>

#include "row_math/half.h"
#include "row_math/isa.h"
#include "row_math/metric.h"
#if defined(__AVX2__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

namespace hotbed {
inline namespace HOTBED_ISA {

constexpr uint32_t kNearnessLanes = 8;

// Before a loop over the columns of a row. The end of a loop of few rounds is mispredicted often.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define HOTBED_COLUMNS_UNROLLED _Pragma("GCC unroll 4")
#else
#define HOTBED_COLUMNS_UNROLLED
#endif

#if defined(__AVX2__) && !defined(__CUDACC__)
// Joins s0 + s4, s1 + s5, s2 + s6 and s3 + s7.
HOTBED_ROW_FN double JoinFour(__m256d s) {
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
#endif

// Eight lanes of fp64. Products of two widened elements are exact, so that a fused multiply-add
// rounds as a product and a sum do; the squares of differences are not.
#if defined(__AVX512F__) && !defined(__CUDACC__)
struct Lanes {
  __m512d v = _mm512_setzero_pd();

  HOTBED_ROW_FN static Lanes From(const double* from) { return {_mm512_loadu_pd(from)}; }
  HOTBED_ROW_FN static Lanes Widen(__m256 v) { return {_mm512_maskz_cvtps_pd(0xff, v)}; }
  HOTBED_ROW_FN void AddProduct(const Lanes& a, const Lanes& b) {
    v = _mm512_fmadd_pd(a.v, b.v, v);
  }
  HOTBED_ROW_FN void AddSquareOfDifference(const Lanes& a, const Lanes& b) {
    const __m512d d = _mm512_sub_pd(a.v, b.v);
    v = _mm512_add_pd(v, _mm512_mul_pd(d, d));
  }
  HOTBED_ROW_FN double Joined() const {
    return JoinFour(
        _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_maskz_extractf64x4_pd(0xf, v, 1)));
  }
};
#elif defined(__AVX2__) && defined(__FMA__) && !defined(__CUDACC__)
struct Lanes {
  __m256d low = _mm256_setzero_pd();
  __m256d high = _mm256_setzero_pd();

  HOTBED_ROW_FN static Lanes From(const double* from) {
    return {_mm256_loadu_pd(from), _mm256_loadu_pd(from + 4)};
  }
  HOTBED_ROW_FN static Lanes Widen(__m256 v) {
    return {_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
            _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))};
  }
  HOTBED_ROW_FN void AddProduct(const Lanes& a, const Lanes& b) {
    low = _mm256_fmadd_pd(a.low, b.low, low);
    high = _mm256_fmadd_pd(a.high, b.high, high);
  }
  HOTBED_ROW_FN void AddSquareOfDifference(const Lanes& a, const Lanes& b) {
    const __m256d d = _mm256_sub_pd(a.low, b.low);
    const __m256d e = _mm256_sub_pd(a.high, b.high);
    low = _mm256_add_pd(low, _mm256_mul_pd(d, d));
    high = _mm256_add_pd(high, _mm256_mul_pd(e, e));
  }
  HOTBED_ROW_FN double Joined() const { return JoinFour(_mm256_add_pd(low, high)); }
};
#else
struct Lanes {
  double v[kNearnessLanes] = {};

  HOTBED_ROW_FN static Lanes From(const double* from) {
    Lanes lanes;
    for (uint32_t l = 0; l < kNearnessLanes; ++l) lanes.v[l] = from[l];
    return lanes;
  }
  HOTBED_ROW_FN void AddProduct(const Lanes& a, const Lanes& b) {
    for (uint32_t l = 0; l < kNearnessLanes; ++l) v[l] = v[l] + a.v[l] * b.v[l];
  }
  HOTBED_ROW_FN void AddSquareOfDifference(const Lanes& a, const Lanes& b) {
    for (uint32_t l = 0; l < kNearnessLanes; ++l) {
      const double d = a.v[l] - b.v[l];
      v[l] = v[l] + d * d;
    }
  }
  HOTBED_ROW_FN double Joined() const {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
  }
};
#endif

// Elements i to i + 7 of a row as it is stored.
template <typename Codec>
HOTBED_ROW_FN Lanes LanesOf(const uint8_t* row, uint32_t i) {
  double wide[kNearnessLanes];
  for (uint32_t l = 0; l < kNearnessLanes; ++l) {
    wide[l] = static_cast<double>(Codec::Load(row, i + l));
  }
  return Lanes::From(wide);
}
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(__CUDACC__)
template <>
HOTBED_ROW_FN Lanes LanesOf<Fp32Codec>(const uint8_t* row, uint32_t i) {
  return Lanes::Widen(_mm256_loadu_ps(reinterpret_cast<const float*>(row) + i));
}
template <>
HOTBED_ROW_FN Lanes LanesOf<Fp16Codec>(const uint8_t* row, uint32_t i) {
  const auto* const from = reinterpret_cast<const __m128i*>(row + 2ull * i);
  return Lanes::Widen(_mm256_cvtph_ps(_mm_loadu_si128(from)));
}
template <>
HOTBED_ROW_FN Lanes LanesOf<Bf16Codec>(const uint8_t* row, uint32_t i) {
  const auto* const from = reinterpret_cast<const __m128i*>(row + 2ull * i);
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from));
  return Lanes::Widen(_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)));
}
#endif

// The elements from i on, fewer than eight, and zeros.
template <typename Codec>
HOTBED_ROW_FN Lanes LastLanesOf(const uint8_t* row, uint32_t i, uint32_t dim) {
  double wide[kNearnessLanes] = {};
  for (uint32_t l = 0; i + l < dim; ++l) wide[l] = static_cast<double>(Codec::Load(row, i + l));
  return Lanes::From(wide);
}

// The scores of `kRows` rows. `vector` has zeros up to the next multiple of
// eight; `norm` is that of the vector, for cosine: sqrt(sum of q[j]^2). Several rows share the
// loads of the vector, and their sums do not wait for each other.
template <typename Codec, RowMetric kMetric, uint32_t kRows>
HOTBED_ROW_FN void Nearness(const uint8_t* const (&rows)[kRows], const double* vector, uint32_t dim,
                            double norm, double* scores) {
  constexpr bool kWithNorms = kMetric == RowMetric::kCosine;
  Lanes sum[kRows], square[kWithNorms ? kRows : 1];
  const auto add = [&](uint32_t r, const Lanes& w, const Lanes& q) HOTBED_ALWAYS_INLINE {
    if (kMetric == RowMetric::kL2) {
      sum[r].AddSquareOfDifference(w, q);
    } else {
      sum[r].AddProduct(w, q);
    }
    if (kWithNorms) square[r].AddProduct(w, w);
  };
  uint32_t i = 0;
  HOTBED_COLUMNS_UNROLLED
  for (; i + kNearnessLanes <= dim; i += kNearnessLanes) {
    const Lanes q = Lanes::From(vector + i);
    for (uint32_t r = 0; r < kRows; ++r) add(r, LanesOf<Codec>(rows[r], i), q);
  }
  if (i < dim) {
    const Lanes q = Lanes::From(vector + i);
    for (uint32_t r = 0; r < kRows; ++r) add(r, LastLanesOf<Codec>(rows[r], i, dim), q);
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    scores[r] = sum[r].Joined();
    if (!kWithNorms) continue;
    const double squares = square[r].Joined();
    scores[r] = squares == 0 || norm == 0 ? 0 : scores[r] / (__builtin_sqrt(squares) * norm);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_NEARNESS_H_
