// Compiled with -mavx2 -mf16c: nothing here may run before BestRowConverters has looked at the
// processor, and nothing may be inline code that other files share.
#include "client/rows/row_convert.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <immintrin.h>

namespace hotbed {
namespace {

// Each source gives 8 floats from element i on. Fewer come from the scalar twin, or for int8, whose
// scale and bias lie behind the row, one by one.
template <int kType, uint64_t kBytes>
struct PlainSource {
  const uint8_t* row;
  PlainSource(const uint8_t* r, uint32_t) : row(r) {}
  void Few(uint32_t i, uint32_t n, float* out) const {
    if (n > 0) ScalarRowConverters().to_floats[kType](row + kBytes * i, n, out + i);
  }
};

struct Fp32Source : PlainSource<static_cast<int>(RowType::kFp32), 4> {
  using PlainSource::PlainSource;
  __m256 Load8(uint32_t i) const {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + i);
  }
};

struct Fp16Source : PlainSource<static_cast<int>(RowType::kFp16), 2> {
  using PlainSource::PlainSource;
  __m256 Load8(uint32_t i) const {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2ull * i)));
  }
};

struct Bf16Source : PlainSource<static_cast<int>(RowType::kBf16), 2> {
  using PlainSource::PlainSource;
  __m256 Load8(uint32_t i) const {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2ull * i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
};

struct Int8Source {
  const uint8_t* row;
  float scale;
  float bias;
  Int8Source(const uint8_t* r, uint32_t dim) : row(r) {
    __builtin_memcpy(&scale, r + dim, 4);
    __builtin_memcpy(&bias, r + dim + 4, 4);
  }
  __m256 Load8(uint32_t i) const {
    const __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + i));
    const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(q));
    return _mm256_add_ps(_mm256_mul_ps(value, _mm256_set1_ps(scale)), _mm256_set1_ps(bias));
  }
  void Few(uint32_t i, uint32_t n, float* out) const {
    for (const uint32_t end = i + n; i < end; ++i) {
      const float scaled = static_cast<float>(row[i]) * scale;
      out[i] = scaled + bias;
    }
  }
};

template <typename Source>
void ToFloats(const uint8_t* row, uint32_t dim, float* out) {
  const Source source(row, dim);
  uint32_t i = 0;
  for (; i + 8 <= dim; i += 8) _mm256_storeu_ps(out + i, source.Load8(i));
  source.Few(i, dim - i, out);
}

// Whole cache lines bypass the cache. The ends, which share a line with a neighbour, are written
// through it: bypassing the cache with half a line costs a read of memory.
template <typename Source>
void ToFloatsStreaming(const uint8_t* row, uint32_t dim, float* out) {
  const Source source(row, dim);
  const uintptr_t address = reinterpret_cast<uintptr_t>(out);
  if (address % 4 != 0) return ToFloats<Source>(row, dim, out);
  uint32_t i = 0;
  uint32_t head = static_cast<uint32_t>((0 - address) % 64 / 4);
  if (head > dim) head = dim;
  for (; i + 8 <= head; i += 8) _mm256_storeu_ps(out + i, source.Load8(i));
  source.Few(i, head - i, out);
  i = head;
  for (; i + 16 <= dim; i += 16) {
    _mm256_stream_ps(out + i, source.Load8(i));
    _mm256_stream_ps(out + i + 8, source.Load8(i + 8));
  }
  for (; i + 8 <= dim; i += 8) _mm256_storeu_ps(out + i, source.Load8(i));
  source.Few(i, dim - i, out);
}

void CopyStreaming(const uint8_t* from, uint32_t bytes, uint8_t* to) {
  uint32_t head = static_cast<uint32_t>((0 - reinterpret_cast<uintptr_t>(to)) % 64);
  if (head > bytes) head = bytes;
  __builtin_memcpy(to, from, head);
  uint32_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
  }
  __builtin_memcpy(to + i, from + i, bytes - i);
}

void Add(const float* row, uint32_t dim, float* sum) {
  uint32_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), _mm256_loadu_ps(row + i)));
  }
  for (; i < dim; ++i) sum[i] += row[i];
}

// Each sink writes 8 elements and returns a mask of the elements that are not finite in wire form.
constexpr uint32_t kFp32Infinite = 0x7f800000u;

__m256i NotBelow(__m256i magnitude, uint32_t limit) {
  return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(static_cast<int>(limit - 1)));
}

// Writes the elements from i on, which do not fill a register. True if they are finite.
bool Rest(RowType type, uint64_t bytes, const float* values, uint32_t i, uint32_t dim,
          uint8_t* row) {
  return i == dim || ScalarRowConverters().from_floats[static_cast<int>(type)](values + i, dim - i,
                                                                               row + bytes * i);
}

bool ToFp32(const float* values, uint32_t dim, uint8_t* row) {
  float* const out = reinterpret_cast<float*>(row);
  const __m256i magnitude_mask = _mm256_set1_epi32(0x7fffffff);
  __m256i bad = _mm256_setzero_si256();
  uint32_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    const __m256 v = _mm256_loadu_ps(values + i);
    bad = _mm256_or_si256(
        bad, NotBelow(_mm256_and_si256(_mm256_castps_si256(v), magnitude_mask), kFp32Infinite));
    _mm256_storeu_ps(out + i, v);
  }
  return Rest(RowType::kFp32, 4, values, i, dim, row) && _mm256_testz_si256(bad, bad) != 0;
}

bool ToFp16(const float* values, uint32_t dim, uint8_t* row) {
  const __m128i magnitude_mask = _mm_set1_epi16(0x7fff);
  __m128i bad = _mm_setzero_si128();
  uint32_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    bad = _mm_or_si128(
        bad, _mm_cmpgt_epi16(_mm_and_si128(half, magnitude_mask), _mm_set1_epi16(0x7bff)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2ull * i), half);
  }
  return Rest(RowType::kFp16, 2, values, i, dim, row) && _mm_testz_si128(bad, bad) != 0;
}

bool ToBf16(const float* values, uint32_t dim, uint8_t* row) {
  const __m256i magnitude_mask = _mm256_set1_epi32(0x7fffffff);
  __m256i bad = _mm256_setzero_si256();
  uint32_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
    const __m256i magnitude = _mm256_and_si256(bits, magnitude_mask);
    const __m256i nan = NotBelow(magnitude, kFp32Infinite + 1);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i half = _mm256_blendv_epi8(rounded, quiet, nan);
    bad =
        _mm256_or_si256(bad, NotBelow(_mm256_and_si256(half, _mm256_set1_epi32(0x7fff)), 0x7f80u));
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2ull * i), packed);
  }
  return Rest(RowType::kBf16, 2, values, i, dim, row) && _mm256_testz_si256(bad, bad) != 0;
}

constexpr RowConverters kAvx2 = {
    {ToFloats<Fp32Source>, ToFloats<Fp16Source>, ToFloats<Bf16Source>, ToFloats<Int8Source>},
    {ToFloatsStreaming<Fp32Source>, ToFloatsStreaming<Fp16Source>, ToFloatsStreaming<Bf16Source>,
     ToFloatsStreaming<Int8Source>},
    CopyStreaming,
    Add,
    {ToFp32, ToFp16, ToBf16}};

}  // namespace

const RowConverters* const internal::kAvx2RowConverters = &kAvx2;

}  // namespace hotbed

#else

namespace hotbed {
const RowConverters* const internal::kAvx2RowConverters = nullptr;
}  // namespace hotbed

#endif
