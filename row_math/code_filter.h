// A first look at rows of codes for the largest products with a vector, in integers
// (row_math/first_look.h).
//
// A row's elements are w[j] = scale * c[j] + bias, rounded, with codes c[j] of 0 to C. The vector
// is written as q[j] = step * p[j] + e[j] with whole numbers p[j] of -127 to 127. Then
//   sum of w[j] * q[j]  =  scale * step * sum of c[j] * p[j]  +  bias * sum of q[j]  +  r
//   |r|  <=  C |scale| * sum of |e[j]|  +  roundings  <=  (C |scale| + |bias|) * error
// The roundings of elements (2^-24 of each) and of some ten steps in fp32 are below 2^-19 of
// (C |scale| + |bias|) * sum of |q[j]|; `error` has twice as much beside the sum of |e[j]|.
#ifndef HOTBED_ROW_MATH_CODE_FILTER_H_
#define HOTBED_ROW_MATH_CODE_FILTER_H_

#include <cstdint>

#include "row_math/code_lanes.h"
#include "row_math/first_look.h"
#include "row_math/rank_batch.h"
#include "row_math/rank_rows.h"

namespace hotbed {
inline namespace HOTBED_ISA {

constexpr uint32_t kCodeBlock = 64;  // bytes of codes that are looked at in one step

// Bytes of CodeQuery::codes for rows of `bits` bits per code: for each block of codes and each
// place of a code in its byte, kCodeBlock of them.
constexpr uint64_t CodeQueryBytes(uint32_t bits, uint32_t dim) {
  const uint32_t per_block = kCodeBlock * (8 / bits);
  return uint64_t{(dim + per_block - 1) / per_block} * per_block;
}

// Writes a finite vector of `dim` elements as a CodeQuery whose codes lie in `codes`, which has
// CodeQueryBytes(bits, dim) zeros. Vectors of very large elements have no codes.
HOTBED_ROW_FN CodeQuery MakeCodeQuery(uint32_t bits, const double* vector, uint32_t dim,
                                      int8_t* codes) {
  const uint32_t per_byte = 8 / bits;
  double largest = 0, sum_of_errors = 0, sum_of_sizes = 0;
  CodeQuery query;
  query.codes = codes;
  for (uint32_t j = 0; j < dim; ++j) {
    largest = __builtin_fmax(largest, __builtin_fabs(vector[j]));
    sum_of_sizes += __builtin_fabs(vector[j]);
    query.sum += vector[j];
  }
  query.step = largest / 127;
  for (uint32_t j = 0; j < dim && query.step > 0; ++j) {
    const double code = __builtin_rint(vector[j] / query.step);
    const uint32_t byte = j / per_byte;
    codes[byte / kCodeBlock * kCodeBlock * per_byte + j % per_byte * kCodeBlock +
          byte % kCodeBlock] = static_cast<int8_t>(code);
    sum_of_errors += __builtin_fabs(vector[j] - query.step * code);
  }
  query.error = sum_of_errors + sum_of_sizes / (1 << 18);
  // Nothing overflows in fp32 then.
  if (!(sum_of_sizes < 1e30)) query.codes = nullptr;
  return query;
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && !defined(__CUDACC__)
// The scales and biases of eight rows.
template <uint32_t kFirst>
HOTBED_ROW_FN __m256i ParametersOfEight(const uint8_t* const (&rows)[kFilterRows]) {
  const auto of = [&](uint32_t r) HOTBED_ALWAYS_INLINE {
    return _mm256_broadcastd_epi32(_mm_loadu_si32(rows[kFirst + r]));
  };
  const __m256i a = _mm256_blend_epi32(of(0), of(1), 0x02);
  const __m256i b = _mm256_blend_epi32(of(2), of(3), 0x08);
  const __m256i c = _mm256_blend_epi32(of(4), of(5), 0x20);
  const __m256i d = _mm256_blend_epi32(of(6), of(7), 0x80);
  return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0c), _mm256_blend_epi32(c, d, 0xc0), 0xf0);
}

// A vector's codes, for rows of so few bytes that two of them lie in one vector.
template <uint32_t kBits>
struct NarrowCodes {
  static constexpr uint32_t kBytesMax = kCodeBlock / 2;
  static constexpr uint32_t kPerByte = 8 / kBits;

  HOTBED_ROW_FN NarrowCodes(uint32_t bytes, const int8_t* query)
      : mask(~__mmask32{0} >> (kBytesMax - bytes)) {
    for (uint32_t place = 0; place < kPerByte; ++place) {
      codes[place] = _mm512_broadcast_i64x4(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(query + place * kCodeBlock)));
    }
  }
  // The products with 16 rows. `fetch(r, count)` is called where so many rows from r on come next.
  template <typename Fetch>
  HOTBED_ROW_FN __m512i Products(const uint8_t* const (&rows)[kFilterRows], Fetch fetch) const {
    fetch(0, kFilterRows);
    return SumsOfHalves<Int32Lanes>([&](uint32_t a, uint32_t b)
                                        HOTBED_ALWAYS_INLINE { return OfTwo(rows[a], rows[b]); });
  }
  // Those with the codes of two rows, in eight sums for each.
  HOTBED_ROW_FN __m512i OfTwo(const uint8_t* a, const uint8_t* b) const {
    const __m256i first = _mm256_maskz_loadu_epi8(mask, a + 4);
    const __m256i second = _mm256_maskz_loadu_epi8(mask, b + 4);
    const __m512i bytes = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    const __m512i low = _mm512_set1_epi8(static_cast<char>((1u << kBits) - 1));
    __m512i sums = _mm512_setzero_si512();
    for (uint32_t place = 0; place < kPerByte; ++place) {
      const __m512i shifted = place == 0 ? bytes : _mm512_srli_epi16(bytes, place * kBits);
      const __m512i c = kBits == 8 ? bytes : _mm512_and_si512(shifted, low);
      sums = _mm512_dpbusd_epi32(sums, c, codes[place]);
    }
    return sums;
  }

  const __mmask32 mask;
  __m512i codes[kPerByte];
};

// A vector's codes, for rows of any length.
template <uint32_t kBits>
struct WideCodes {
  static constexpr uint32_t kPerByte = 8 / kBits;

  HOTBED_ROW_FN WideCodes(uint32_t bytes, const int8_t* query)
      : codes(query),
        whole((bytes - 1) / kCodeBlock * kCodeBlock),
        last(~__mmask64{0} >> (kCodeBlock - (bytes - whole))) {}
  template <typename Fetch>
  HOTBED_ROW_FN __m512i Products(const uint8_t* const (&rows)[kFilterRows], Fetch fetch) const {
    return SumsOf<Int32Lanes>([&](uint32_t r) HOTBED_ALWAYS_INLINE {
      if (r % kFetchRows == 0) fetch(r, kFetchRows);
      return OfOne(rows[r]);
    });
  }
  // Those with a row's codes, in 16 sums.
  HOTBED_ROW_FN __m512i OfOne(const uint8_t* row) const {
    __m512i sums = _mm512_setzero_si512();
    for (uint32_t b = 0; b < whole; b += kCodeBlock) {
      sums = Add(sums, _mm512_loadu_si512(row + 4 + b), codes + b * kPerByte);
    }
    return Add(sums, _mm512_maskz_loadu_epi8(last, row + 4 + whole), codes + whole * kPerByte);
  }
  HOTBED_ROW_FN static __m512i Add(__m512i sums, __m512i bytes, const int8_t* query) {
    if (kBits == 8) return _mm512_dpbusd_epi32(sums, bytes, _mm512_loadu_si512(query));
    const __m512i low = _mm512_set1_epi8(static_cast<char>((1u << kBits) - 1));
    for (uint32_t place = 0; place < kPerByte; ++place) {
      const __m512i c = _mm512_and_si512(_mm512_srli_epi16(bytes, place * kBits), low);
      sums = _mm512_dpbusd_epi32(sums, c, _mm512_loadu_si512(query + place * kCodeBlock));
    }
    return sums;
  }

  const int8_t* const codes;
  const uint32_t whole;  // bytes before the last block
  const __mmask64 last;
};

// Writes the numbers of the rows that may reach the floor, and returns how many.
template <uint32_t kBits, typename Codes, typename Rows>
HOTBED_ROW_FN uint32_t FilterCodesBy(const Codes& codes, const Rows& where, const RankBatch& batch,
                                     uint32_t* numbers) {
  const CodeQuery& query = *batch.quick;
  const __m512 step = _mm512_set1_ps(static_cast<float>(query.step));
  const __m512 sum = _mm512_set1_ps(static_cast<float>(query.sum));
  const __m512 error = _mm512_set1_ps(static_cast<float>(query.error));
  const __m512 largest = _mm512_set1_ps((1u << kBits) - 1);
  const __m512 floor = FloorBelow(batch.floor);
  uint32_t count = 0, i = 0;
  for (; i + kFilterRows <= batch.count; i += kFilterRows) {
    const uint8_t* rows[kFilterRows];
    for (uint32_t r = 0; r < kFilterRows; ++r) rows[r] = where.At(i + r);
    const auto fetch = [&](uint32_t r, uint32_t some)
                           HOTBED_ALWAYS_INLINE { where.FetchAhead(i + r, some); };
    const __m512i products = codes.Products(rows, fetch);
    const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(ParametersOfEight<0>(rows)),
                                              ParametersOfEight<8>(rows), 1);
    const __m512 scales = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
    const __m512 biases = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(halves, 16)));
    const __m512 about = _mm512_fmadd_ps(
        biases, sum, _mm512_mul_ps(_mm512_cvtepi32_ps(products), _mm512_mul_ps(scales, step)));
    const __m512 range = _mm512_fmadd_ps(_mm512_abs_ps(scales), largest, _mm512_abs_ps(biases));
    // A row that holds no numbers may reach the floor, too.
    const uint32_t may =
        _mm512_cmp_ps_mask(_mm512_fmadd_ps(range, error, about), floor, _CMP_NLT_UQ);
    count = AddNumbers(may, i, count, numbers);
  }
  for (; i < batch.count; ++i) numbers[count++] = i;
  return count;
}
template <uint32_t kBits, typename Rows>
uint32_t FilterCodes(const Rows& where, const RankBatch& batch, uint32_t* numbers) {
  const uint32_t bytes = (batch.dim + 8 / kBits - 1) / (8 / kBits);
  const int8_t* const codes = batch.quick->codes;
  // The loops of the most common lengths know them.
  constexpr uint32_t kHalf = kCodeBlock / 2;
  if (bytes == kHalf) {
    return FilterCodesBy<kBits>(NarrowCodes<kBits>(kHalf, codes), where, batch, numbers);
  }
  if (bytes < kHalf) {
    return FilterCodesBy<kBits>(NarrowCodes<kBits>(bytes, codes), where, batch, numbers);
  }
  if (bytes == kCodeBlock) {
    return FilterCodesBy<kBits>(WideCodes<kBits>(kCodeBlock, codes), where, batch, numbers);
  }
  return FilterCodesBy<kBits>(WideCodes<kBits>(bytes, codes), where, batch, numbers);
}
constexpr bool kHasCodeFilter = true;
#else
template <uint32_t kBits, typename Rows>
uint32_t FilterCodes(const Rows&, const RankBatch&, uint32_t*) {
  return 0;
}
constexpr bool kHasCodeFilter = false;
#endif

// RankRowsOf for rows of codes.
template <uint32_t kBits, typename Rows>
void RankCodes(RankBatch* batch) {
  // Without a floor every row may be among the nearest.
  const bool filter = kHasCodeFilter && batch->quick != nullptr && batch->quick->codes != nullptr &&
                      batch->metric == RowMetric::kDot && batch->floor == batch->floor;
  if (filter) {
    const Rows rows(*batch);
    return RankPicked<CodesCodec<kBits>>(rows, FilterCodes<kBits>(rows, *batch, batch->picks),
                                         batch);
  }
  RankRowsOf<CodesCodec<kBits>, Rows>(batch);
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_CODE_FILTER_H_
