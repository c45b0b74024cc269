// A first look at rows of floats for the largest products with a vector, in fp32
// (row_math/first_look.h).
//
// A product of dim elements is summed in 16 lanes of n = dim / 16 fused steps each, which four more
// sums join. With u = 2^-24 the rounding of each of these makes the result differ from the exact
// one by less than
//   (n + 4) u (1 + small) * sum of |w[j] q[j]|
//       <  (n + 6) * 2^-23 * (largest |w[j]|) * sum of |q[j]|
// `largest` is that of 16 rows. The factor of two covers the roundings of the bound itself and of
// the score in fp64. Where a sum may leave the range of fp32 the bound is infinite, and where a row
// holds no numbers the sum is none: then the row may reach the floor.
#ifndef HOTBED_ROW_MATH_FLOAT_FILTER_H_
#define HOTBED_ROW_MATH_FLOAT_FILTER_H_

#include <cstdint>

#include "row_math/first_look.h"
#include "row_math/rank_batch.h"
#include "row_math/rank_rows.h"

namespace hotbed {
inline namespace HOTBED_ISA {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && !defined(__CUDACC__)
// 16 elements of a row from i on, those of the mask; the others are zeros.
template <typename Codec>
HOTBED_ROW_FN __m512 SixteenOf(const uint8_t* row, uint32_t i, __mmask16 mask);
template <>
HOTBED_ROW_FN __m512 SixteenOf<Fp32Codec>(const uint8_t* row, uint32_t i, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, row + 4ull * i);
}
template <>
HOTBED_ROW_FN __m512 SixteenOf<Fp16Codec>(const uint8_t* row, uint32_t i, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, row + 2ull * i));
}
template <>
HOTBED_ROW_FN __m512 SixteenOf<Bf16Codec>(const uint8_t* row, uint32_t i, __mmask16 mask) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + 2ull * i));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

// Writes the numbers of the rows that may reach the floor, and returns how many.
template <typename Codec, typename Rows>
HOTBED_ROW_FN uint32_t FilterFloatsOf(const Rows& rows, const RankBatch& batch, uint32_t dim,
                                      uint32_t* numbers) {
  const float* const query = batch.quick_floats->elements;
  const uint32_t whole = (dim - 1) / 16 * 16;  // elements before the last sixteen
  const auto last = static_cast<__mmask16>(0xffffu >> (16 - (dim - whole)));
  const float roundings = static_cast<float>(whole / 16 + 7) / (1 << 23);
  const __m512 floor = FloorBelow(batch.floor);
  uint32_t count = 0, i = 0;
  for (; i + kFilterRows <= batch.count; i += kFilterRows) {
    __m512 largest = _mm512_setzero_ps();
    const __m512i sums = SumsOf<Fp32Lanes>([&](uint32_t r) HOTBED_ALWAYS_INLINE {
      if (r % kFetchRows == 0) rows.FetchAhead(i + r, kFetchRows);
      const uint8_t* const row = rows.At(i + r);
      __m512 sum = _mm512_setzero_ps();
      const auto add = [&](uint32_t j, __mmask16 mask) HOTBED_ALWAYS_INLINE {
        const __m512 w = SixteenOf<Codec>(row, j, mask);
        sum = _mm512_fmadd_ps(w, _mm512_loadu_ps(query + j), sum);
        largest = _mm512_range_ps(largest, w, 0x0b);  // the larger one without its sign
      };
      for (uint32_t j = 0; j < whole; j += 16) add(j, 0xffff);
      add(whole, last);
      return _mm512_castps_si512(sum);
    });
    const float product = _mm512_reduce_max_ps(largest) * batch.quick_floats->sizes;
    const __m512 most =
        _mm512_add_ps(_mm512_castsi512_ps(sums), _mm512_set1_ps(product * roundings));
    count = AddNumbers(_mm512_cmp_ps_mask(most, floor, _CMP_NLT_UQ), i, count, numbers);
  }
  for (; i < batch.count; ++i) numbers[count++] = i;
  return count;
}
template <typename Codec, typename Rows>
uint32_t FilterFloats(const Rows& rows, const RankBatch& batch, uint32_t* numbers) {
  // The loops of the most common dims have a known length.
  if (batch.dim == 64) return FilterFloatsOf<Codec>(rows, batch, 64, numbers);
  if (batch.dim == 128) return FilterFloatsOf<Codec>(rows, batch, 128, numbers);
  return FilterFloatsOf<Codec>(rows, batch, batch.dim, numbers);
}
constexpr bool kHasFloatFilter = true;
#else
template <typename Codec, typename Rows>
uint32_t FilterFloats(const Rows&, const RankBatch&, uint32_t*) {
  return 0;
}
constexpr bool kHasFloatFilter = false;
#endif

// RankRowsOf for rows of floats.
template <typename Codec, typename Rows = RowsInOrder>
void RankFloats(RankBatch* batch) {
  // Without a floor every row may be among the nearest.
  const bool filter = kHasFloatFilter && batch->quick_floats != nullptr &&
                      batch->metric == RowMetric::kDot && batch->floor == batch->floor;
  if (filter) {
    const Rows rows(*batch);
    return RankPicked<Codec>(rows, FilterFloats<Codec>(rows, *batch, batch->picks), batch);
  }
  RankRowsOf<Codec, Rows>(batch);
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_FLOAT_FILTER_H_
