// For first looks at rows (row_math/code_filter.h, row_math/float_filter.h): the sums of 16 vectors
// at once. A first look finds out which rows may have a product with a vector that is not below a
// floor. Rows that cannot are passed over; the others get their exact score (row_math/nearness.h),
// so that nothing that is found depends on the look.
#ifndef HOTBED_ROW_MATH_FIRST_LOOK_H_
#define HOTBED_ROW_MATH_FIRST_LOOK_H_

#include <cstdint>

#include "row_math/isa.h"
#if defined(__AVX512F__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif

namespace hotbed {
inline namespace HOTBED_ISA {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && !defined(__CUDACC__)
constexpr uint32_t kFilterRows = 16;
// Rows that are fetched ahead at a time. More at once hold the loads of other rows up, unless rows
// are short.
constexpr uint32_t kFetchRows = 4;

struct Int32Lanes {
  HOTBED_ROW_FN static __m512i Add(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
};
struct Fp32Lanes {
  HOTBED_ROW_FN static __m512i Add(__m512i a, __m512i b) {
    return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
  }
};

// The sums of the lanes of 16 vectors, which `vector(i)` computes. They are joined as soon as
// possible, so that all of it stays in registers.
template <typename Of, uint32_t kFirst, typename Vector>
HOTBED_ROW_FN __m512i SumsOfFour(Vector vector) {
  const auto pair = [](__m512i a, __m512i b) HOTBED_ALWAYS_INLINE {
    return Of::Add(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  };
  const __m512i a = pair(vector(kFirst), vector(kFirst + 1));
  const __m512i b = pair(vector(kFirst + 2), vector(kFirst + 3));
  return Of::Add(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
// Adds each even quarter of a vector to the odd one behind it.
template <typename Of>
HOTBED_ROW_FN __m512i Join(__m512i a, __m512i b) {
  return Of::Add(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
template <typename Of, typename Vector>
HOTBED_ROW_FN __m512i SumsOf(Vector vector) {
  const __m512i a = Join<Of>(SumsOfFour<Of, 0>(vector), SumsOfFour<Of, 4>(vector));
  return Join<Of>(a, Join<Of>(SumsOfFour<Of, 8>(vector), SumsOfFour<Of, 12>(vector)));
}
// The sums of the lanes of 16 halves of vectors. `vectors(a, b)` computes the halves a and b.
template <typename Of, uint32_t kFirst, typename Vectors>
HOTBED_ROW_FN __m512i SumsOfEight(Vectors vectors) {
  return SumsOfFour<Of, kFirst>([&](uint32_t r) HOTBED_ALWAYS_INLINE { return vectors(r, r + 4); });
}
template <typename Of, typename Vectors>
HOTBED_ROW_FN __m512i SumsOfHalves(Vectors vectors) {
  return Join<Of>(SumsOfEight<Of, 0>(vectors), SumsOfEight<Of, 8>(vectors));
}

// The largest fp32 below the floor, and a little less, so that what underflows makes no difference.
HOTBED_ROW_FN __m512 FloorBelow(double floor) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m128d less = _mm_set_sd(floor - 1e-36);
  return _mm512_set1_ps(_mm_cvtss_f32(_mm_cvt_roundsd_ss(_mm_setzero_ps(), less, kDown)));
}

// Appends the numbers of the rows whose bit is set, from row `first` on, and returns how many
// there are then.
HOTBED_ROW_FN uint32_t AddNumbers(uint32_t bits, uint32_t first, uint32_t count,
                                  uint32_t* numbers) {
  for (; bits != 0; bits &= bits - 1) {
    numbers[count++] = first + static_cast<uint32_t>(__builtin_ctz(bits));
  }
  return count;
}
#endif

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_FIRST_LOOK_H_
