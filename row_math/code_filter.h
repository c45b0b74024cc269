// A first look at rows of codes for the largest products with a vector, in integers: which rows may
// have a product that is not below a floor. Rows that cannot are passed over; the others get their
// exact score (row_math/nearness.h), so that nothing that is found depends on the look.
//
// A row's elements are w[j] = scale * c[j] + bias, rounded, with codes c[j] of 0 to C. The vector
// is written as q[j] = step * p[j] + e[j] with whole numbers p[j] of -127 to 127. Then
//   sum of w[j] * q[j]  =  scale * step * sum of c[j] * p[j]  +  bias * sum of q[j]  +  r
//   |r|  <=  C |scale| * sum of |e[j]|  +  roundings  <=  (C |scale| + |bias|) * error
// The roundings of elements (2^-24 of each) and of sums in fp64 are below 2^-20 of
// (C |scale| + |bias|) * sum of |q[j]|, which `error` has beside the sum of |e[j]|.
#ifndef HOTBED_ROW_MATH_CODE_FILTER_H_
#define HOTBED_ROW_MATH_CODE_FILTER_H_

#include <cstdint>

#include "row_math/code_lanes.h"
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
// CodeQueryBytes(bits, dim) zeros.
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
  query.error = sum_of_errors + sum_of_sizes / (1 << 20);
  return query;
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && !defined(__CUDACC__)
constexpr uint32_t kFilterRows = 16;

// The sums of the elements of 16 vectors, which `vector(i)` computes. They are joined as soon as
// possible, so that all of it stays in registers.
template <uint32_t kFirst, typename Vector>
HOTBED_ROW_FN __m512i SumsOfFour(Vector vector) {
  const auto pair = [](__m512i a, __m512i b) HOTBED_ALWAYS_INLINE {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  };
  const __m512i a = pair(vector(kFirst), vector(kFirst + 1));
  const __m512i b = pair(vector(kFirst + 2), vector(kFirst + 3));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
template <typename Vector>
HOTBED_ROW_FN __m512i SumsOf(Vector vector) {
  const auto join = [](__m512i a, __m512i b) HOTBED_ALWAYS_INLINE {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
  };
  const __m512i a = join(SumsOfFour<0>(vector), SumsOfFour<4>(vector));
  return join(a, join(SumsOfFour<8>(vector), SumsOfFour<12>(vector)));
}

// The products of a block of a row's codes with a vector's, in 16 sums.
template <uint32_t kBits>
HOTBED_ROW_FN __m512i AddProducts(__m512i sums, __m512i codes, const int8_t* query) {
  if (kBits == 8) return _mm512_dpbusd_epi32(sums, codes, _mm512_loadu_si512(query));
  const __m512i low = _mm512_set1_epi8(static_cast<char>((1u << kBits) - 1));
  for (uint32_t place = 0; place < 8 / kBits; ++place) {
    const __m512i c = _mm512_and_si512(_mm512_srli_epi16(codes, place * kBits), low);
    sums = _mm512_dpbusd_epi32(sums, c, _mm512_loadu_si512(query + place * kCodeBlock));
  }
  return sums;
}

// The sums of the products of codes, of 16 rows.
template <uint32_t kBits>
HOTBED_ROW_FN __m512i CodeProducts(const uint8_t* const (&rows)[kFilterRows], uint32_t dim,
                                   const int8_t* query) {
  constexpr uint32_t kPerByte = 8 / kBits;
  const uint32_t bytes = (dim + kPerByte - 1) / kPerByte;
  const uint32_t whole = (bytes - 1) / kCodeBlock * kCodeBlock;  // bytes before the last block
  const __mmask64 last = ~__mmask64{0} >> (kCodeBlock - (bytes - whole));
  return SumsOf([&](uint32_t r) HOTBED_ALWAYS_INLINE {
    __m512i sums = _mm512_setzero_si512();
    for (uint32_t b = 0; b < whole; b += kCodeBlock) {
      sums = AddProducts<kBits>(sums, _mm512_loadu_si512(rows[r] + 4 + b), query + b * kPerByte);
    }
    const __m512i codes = _mm512_maskz_loadu_epi8(last, rows[r] + 4 + whole);
    return AddProducts<kBits>(sums, codes, query + whole * kPerByte);
  });
}

// Which of eight rows may reach the floor: one bit each.
template <uint32_t kBits>
HOTBED_ROW_FN uint32_t MayReach(const CodeQuery& query, double floor, __m256i products,
                                __m256 scales, __m256 biases) {
  const __m512d scale = _mm512_maskz_cvtps_pd(0xff, scales);
  const __m512d bias = _mm512_maskz_cvtps_pd(0xff, biases);
  const __m512d product = _mm512_mul_pd(_mm512_maskz_cvtepi32_pd(0xff, products),
                                        _mm512_mul_pd(scale, _mm512_set1_pd(query.step)));
  const __m512d about = _mm512_fmadd_pd(bias, _mm512_set1_pd(query.sum), product);
  const __m512d range =
      _mm512_fmadd_pd(_mm512_abs_pd(scale), _mm512_set1_pd((1u << kBits) - 1), _mm512_abs_pd(bias));
  const __m512d most = _mm512_fmadd_pd(range, _mm512_set1_pd(query.error), about);
  // A row that holds no numbers may, too.
  return _mm512_cmp_pd_mask(most, _mm512_set1_pd(floor), _CMP_NLT_UQ);
}

// Writes the numbers of the rows that may reach the floor, and returns how many.
template <uint32_t kBits, typename Rows>
uint32_t FilterCodes(const Rows& where, const RankBatch& batch, uint32_t* numbers) {
  uint32_t count = 0, i = 0;
  for (; i + kFilterRows <= batch.count; i += kFilterRows) {
    const uint8_t* rows[kFilterRows];
    int parameters[kFilterRows];
    where.FetchAhead(i, kFilterRows);
    for (uint32_t r = 0; r < kFilterRows; ++r) {
      rows[r] = where.At(i + r);
      __builtin_memcpy(&parameters[r], rows[r], 4);
    }
    const __m512i products = CodeProducts<kBits>(rows, batch.dim, batch.quick->codes);
    const __m512i halves = _mm512_loadu_si512(parameters);
    const __m512 scales = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
    const __m512 biases = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(halves, 16)));
    uint32_t may = MayReach<kBits>(*batch.quick, batch.floor, _mm512_castsi512_si256(products),
                                   _mm512_castps512_ps256(scales), _mm512_castps512_ps256(biases));
    may |= MayReach<kBits>(*batch.quick, batch.floor, _mm512_extracti64x4_epi64(products, 1),
                           _mm512_extractf32x8_ps(scales, 1), _mm512_extractf32x8_ps(biases, 1))
           << 8;
    for (; may != 0; may &= may - 1) {
      numbers[count++] = i + static_cast<uint32_t>(__builtin_ctz(may));
    }
  }
  for (; i < batch.count; ++i) numbers[count++] = i;
  return count;
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
  const bool filter = kHasCodeFilter && batch->quick != nullptr &&
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
