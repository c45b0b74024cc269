// A first look at rows of codes for the largest products with a vector, in integers: which rows may
// have a product that is not below a floor. Rows that cannot are passed over; the others get their
// exact score (row_math/nearness.h), so that nothing that is found depends on the look.
//
// A row's elements are w[j] = scale * c[j] + bias, rounded, with codes c[j] of 0 to C. The vector
// is written as q[j] = step * p[j] + e[j] with whole numbers p[j] of -127 to 127. Then
//   sum of w[j] * q[j]  =  scale * step * sum of c[j] * p[j]  +  bias * sum of q[j]  +  r
//   |r|  <=  C |scale| * sum of |e[j]|  +  roundings  <=  (C |scale| + |bias|) * error
// All of it is compared in units of `step` and in fp32. So nothing over- or underflows: the sum of
// products is a whole number below 2^31, the others are at most 127 * dim, and |scale| and |bias|
// are at least 2^-24 or zero. Elements are rounded (2^-24 of each), sums in fp64 are, and so are
// the six operations of the comparison: together below 2^-19 of (C |scale| + |bias|) * (sum of
// |q[j]| + sum of |e[j]|), which `error` has beside the sum of |e[j]|.
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
  double largest = 0, sum = 0, sum_of_errors = 0, sum_of_sizes = 0;
  CodeQuery query;
  query.codes = codes;
  for (uint32_t j = 0; j < dim; ++j) {
    largest = __builtin_fmax(largest, __builtin_fabs(vector[j]));
    sum_of_sizes += __builtin_fabs(vector[j]);
    sum += vector[j];
  }
  const double step = largest / 127;
  for (uint32_t j = 0; j < dim && step > 0; ++j) {
    const double code = __builtin_rint(vector[j] / step);
    const uint32_t byte = j / per_byte;
    codes[byte / kCodeBlock * kCodeBlock * per_byte + j % per_byte * kCodeBlock +
          byte % kCodeBlock] = static_cast<int8_t>(code);
    sum_of_errors += __builtin_fabs(vector[j] - step * code);
  }
  const double error = sum_of_errors + (sum_of_sizes + sum_of_errors) / (1 << 19);
  query.step = step;
  query.sum = static_cast<float>(sum / step);
  query.error = static_cast<float>(error / step);
  return query;
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && !defined(__CUDACC__)
constexpr uint32_t kFilterRows = 16;

// Adds what four vectors have in their 128-bit lanes: the sums of the four lie side by side.
template <uint32_t kFirst, typename Vector>
HOTBED_ROW_FN __m512i SumsOfFour(Vector vector) {
  const auto pair = [](__m512i a, __m512i b) HOTBED_ALWAYS_INLINE {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  };
  const __m512i a = pair(vector(kFirst), vector(kFirst + 1));
  const __m512i b = pair(vector(kFirst + 2), vector(kFirst + 3));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
// Adds neighbouring 128-bit lanes of two vectors.
HOTBED_ROW_FN __m512i JoinLanes(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// The products of a block of codes with those of a vector, in 16 sums. `query(place)` has the
// vector's codes for the codes at that place of their bytes.
template <uint32_t kBits, typename Query>
HOTBED_ROW_FN __m512i AddProducts(__m512i sums, __m512i codes, Query query) {
  if (kBits == 8) return _mm512_dpbusd_epi32(sums, codes, query(0));
  const __m512i low = _mm512_set1_epi8(static_cast<char>((1u << kBits) - 1));
  for (uint32_t place = 0; place < 8 / kBits; ++place) {
    const __m512i c = _mm512_and_si512(_mm512_srli_epi16(codes, place * kBits), low);
    sums = _mm512_dpbusd_epi32(sums, c, query(place));
  }
  return sums;
}

// The sums of the products of codes, of 16 rows from i on. They are joined as soon as possible, so
// that all of it stays in registers.
//
// Rows of at most half a block: two of them are one block.
template <uint32_t kBits, typename Rows>
HOTBED_ROW_FN __m512i ProductsOfHalves(const Rows& rows, uint32_t i, uint32_t bytes,
                                       const int8_t* codes) {
  const __mmask32 mask = ~__mmask32{0} >> (kCodeBlock / 2 - bytes);
  const auto query = [codes](uint32_t place) HOTBED_ALWAYS_INLINE {
    const void* const from = codes + place * kCodeBlock;
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
  };
  const auto half = [&](uint32_t row) HOTBED_ALWAYS_INLINE {
    return _mm256_maskz_loadu_epi8(mask, rows.At(row) + 4);
  };
  // So that the sums come to lie in the order of the rows.
  const auto two = [&](uint32_t n) HOTBED_ALWAYS_INLINE {
    const uint32_t row = i + n + (n < 4 ? 0 : 4);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(half(row)), half(row + 4), 1);
    return AddProducts<kBits>(_mm512_setzero_si512(), both, query);
  };
  return JoinLanes(SumsOfFour<0>(two), SumsOfFour<4>(two));
}
// Rows of any size; `kMore`: of more than a block.
template <uint32_t kBits, bool kMore, typename Rows>
HOTBED_ROW_FN __m512i ProductsOfBlocks(const Rows& rows, uint32_t i, uint32_t bytes,
                                       const int8_t* codes) {
  const uint32_t whole = kMore ? (bytes - 1) / kCodeBlock * kCodeBlock : 0;  // bytes before the end
  const __mmask64 mask = ~__mmask64{0} >> (kCodeBlock - (bytes - whole));
  const auto add = [codes](__m512i sums, __m512i block, uint32_t at) HOTBED_ALWAYS_INLINE {
    const int8_t* const query = codes + at * (8 / kBits);
    return AddProducts<kBits>(sums, block, [query](uint32_t place) HOTBED_ALWAYS_INLINE {
      return _mm512_loadu_si512(query + place * kCodeBlock);
    });
  };
  const auto one = [&](uint32_t n) HOTBED_ALWAYS_INLINE {
    const uint8_t* const row = rows.At(i + n) + 4;
    __m512i sums = _mm512_setzero_si512();
    for (uint32_t at = 0; kMore && at < whole; at += kCodeBlock) {
      sums = add(sums, _mm512_loadu_si512(row + at), at);
    }
    return add(sums, _mm512_maskz_loadu_epi8(mask, row + whole), whole);
  };
  return JoinLanes(JoinLanes(SumsOfFour<0>(one), SumsOfFour<4>(one)),
                   JoinLanes(SumsOfFour<8>(one), SumsOfFour<12>(one)));
}

// Which of 16 rows may reach the floor, which is in units of the vector's step: one bit each.
template <uint32_t kBits>
HOTBED_ROW_FN uint32_t MayReach(const CodeQuery& query, float floor, __m512i products,
                                __m512i parameters) {
  const __m512 scale = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(parameters));
  const __m512 bias = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(parameters, 16)));
  const __m512 about = _mm512_fmadd_ps(bias, _mm512_set1_ps(query.sum),
                                       _mm512_mul_ps(_mm512_cvtepi32_ps(products), scale));
  const __m512 range =
      _mm512_fmadd_ps(_mm512_abs_ps(scale), _mm512_set1_ps((1u << kBits) - 1), _mm512_abs_ps(bias));
  const __m512 most = _mm512_fmadd_ps(range, _mm512_set1_ps(query.error), about);
  // A row that holds no numbers may, too.
  return _mm512_cmp_ps_mask(most, _mm512_set1_ps(floor), _CMP_NLT_UQ);
}

// The fp16 parameters of 16 rows from i on.
template <typename Rows>
HOTBED_ROW_FN __m512i ParametersOf(const Rows& rows, uint32_t i) {
  const auto at = [&](uint32_t r) HOTBED_ALWAYS_INLINE {
    int both;
    __builtin_memcpy(&both, rows.At(i + r), 4);
    return both;
  };
  return _mm512_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9),
                           at(10), at(11), at(12), at(13), at(14), at(15));
}

// Not above `value`.
HOTBED_ROW_FN float FloatBelow(double value) {
  return _mm_cvtss_f32(_mm_cvt_roundsd_ss(_mm_setzero_ps(), _mm_set_sd(value),
                                          _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
}

template <uint32_t kBits, typename Rows, typename Products>
HOTBED_ROW_FN uint32_t FilterBy(const Rows& rows, const RankBatch& batch, uint32_t* numbers,
                                Products products) {
  const CodeQuery query = *batch.quick;
  const float floor = FloatBelow(batch.floor / query.step);
  uint32_t count = 0, i = 0;
  for (; i + kFilterRows <= batch.count; i += kFilterRows) {
    rows.FetchAhead(i, kFilterRows);
    uint32_t may = MayReach<kBits>(query, floor, products(i), ParametersOf(rows, i));
    for (; may != 0; may &= may - 1) {
      numbers[count++] = i + static_cast<uint32_t>(__builtin_ctz(may));
    }
  }
  for (; i < batch.count; ++i) numbers[count++] = i;
  return count;
}

// Writes the numbers of the rows that may reach the floor, and returns how many.
template <uint32_t kBits, typename Rows>
uint32_t FilterCodes(const Rows& rows, const RankBatch& batch, uint32_t* numbers) {
  constexpr uint32_t kPerByte = 8 / kBits;
  const uint32_t bytes = (batch.dim + kPerByte - 1) / kPerByte;
  const int8_t* const codes = batch.quick->codes;
  if (bytes <= kCodeBlock / 2) {
    return FilterBy<kBits>(rows, batch, numbers, [&](uint32_t i) HOTBED_ALWAYS_INLINE {
      return ProductsOfHalves<kBits>(rows, i, bytes, codes);
    });
  }
  if (bytes <= kCodeBlock) {
    return FilterBy<kBits>(rows, batch, numbers, [&](uint32_t i) HOTBED_ALWAYS_INLINE {
      return ProductsOfBlocks<kBits, false>(rows, i, bytes, codes);
    });
  }
  return FilterBy<kBits>(rows, batch, numbers, [&](uint32_t i) HOTBED_ALWAYS_INLINE {
    return ProductsOfBlocks<kBits, true>(rows, i, bytes, codes);
  });
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
