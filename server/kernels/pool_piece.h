// Consecutive rows of one bag, summed or compared (see kernel_body.h for how these files are
// compiled).
//
// Every kind of pooling uses PoolRun, and a bag's result so far lies in memory between pieces. So
// cutting a bag (at a block of the index, at a first value that has to be computed, at a read of
// the spill tier) does not change its bits.
#ifndef HOTBED_SERVER_KERNELS_POOL_PIECE_H_
#define HOTBED_SERVER_KERNELS_POOL_PIECE_H_

#include <cstdint>

#include "row_math/pooling.h"
#include "server/kernels/kernel_body.h"

namespace hotbed {
inline namespace HOTBED_ISA {

// One vector register.
#if defined(__AVX512F__)
constexpr uint32_t kPoolLanes = 16;
#elif defined(__AVX2__)
constexpr uint32_t kPoolLanes = 8;
#else
constexpr uint32_t kPoolLanes = 4;
#endif
typedef float PoolFloats __attribute__((vector_size(4 * kPoolLanes)));
typedef uint32_t PoolInts __attribute__((vector_size(4 * kPoolLanes)));
typedef uint16_t PoolHalves __attribute__((vector_size(2 * kPoolLanes)));

constexpr uint32_t kSumRegisters = 8;  // columns in flight: the sums stay in registers
#if defined(__AVX512F__)
constexpr uint32_t kMaxRegisters = 8;  // and as many row numbers
#else
constexpr uint32_t kMaxRegisters = 4;
#endif

template <typename Weight>
struct PoolLoad {
  HOTBED_ROW_FN static void Load(const uint8_t* from, PoolFloats* to) {
    for (uint32_t l = 0; l < kPoolLanes; ++l) (*to)[l] = Weight::Load(from, l);
  }
};
template <>
struct PoolLoad<Fp32Codec> {
  HOTBED_ROW_FN static void Load(const uint8_t* from, PoolFloats* to) {
    __builtin_memcpy(to, from, sizeof(*to));
  }
};
template <>
struct PoolLoad<Bf16Codec> {
  HOTBED_ROW_FN static void Load(const uint8_t* from, PoolFloats* to) {
    PoolHalves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    const PoolInts bits = __builtin_convertvector(halves, PoolInts) << 16;
    __builtin_memcpy(to, &bits, sizeof(bits));
  }
};
#if defined(__F16C__) && defined(__AVX2__)
template <>
struct PoolLoad<Fp16Codec> {
  HOTBED_ROW_FN static void Load(const uint8_t* from, PoolFloats* to) {
#if defined(__AVX512F__)
    // Without a mask GCC 12 warns about an undefined register of its own.
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    *to = _mm512_maskz_cvtph_ps(0xffff, halves);
#else
    *to = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
  }
};
#endif

// Rows by number, `limit` of them.
struct DirectRows {
  const uint64_t* ids;
  uintptr_t row_of_0;  // where the row of id 0 would be
  uint64_t stride;
  uint64_t limit;
  HOTBED_ROW_FN const uint8_t* At(uint64_t k) const {
    return reinterpret_cast<const uint8_t*>(row_of_0 + stride * ids[k]);
  }
};
struct FoundRows {
  const uint8_t* const* rows;
  uint64_t limit;
  HOTBED_ROW_FN const uint8_t* At(uint64_t k) const { return rows[k]; }
};
struct StagedRows {
  const uint8_t* rows;
  uint64_t stride;
  uint64_t limit;
  HOTBED_ROW_FN const uint8_t* At(uint64_t k) const { return rows + stride * k; }
};

// Rows [first, limit) of the source; the first is row `place` of its bag.
struct PoolPieceOf {
  uint64_t first;
  uint64_t limit;
  uint32_t place;
  uint32_t ahead;        // so many rows later is the row to be prefetched
  const float* weights;  // row k has weights[k]; or null
};

// Pieces of `bags` bags, one after another. Only the first may begin within its bag, at row
// `place`.
struct PoolRunOf {
  uint64_t first;  // row of the source
  uint32_t place;
  const uint32_t* lengths;  // rows of each piece, none 0
  uint32_t bags;
  const float* weights;  // as above
  uint8_t* sums;         // a row of dim floats for each bag, unaligned
  uint8_t* arg_max;      // the same; or null
};

// One register at a time: GCC keeps an array in memory if it is copied as a whole.
template <uint32_t kRegisters, typename Vector>
HOTBED_ROW_FN void LoadRegisters(const uint8_t* from, Vector* to) {
  from = OneAddress(from);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < kRegisters; ++r) {
    __builtin_memcpy(&to[r], from + sizeof(Vector) * r, sizeof(Vector));
  }
}
template <uint32_t kRegisters, typename Vector>
HOTBED_ROW_FN void StoreRegisters(const Vector* from, uint8_t* to) {
  __asm__("" : "+r"(to));
#pragma GCC unroll 8
  for (uint32_t r = 0; r < kRegisters; ++r) {
    __builtin_memcpy(to + sizeof(Vector) * r, &from[r], sizeof(Vector));
  }
}

template <typename Rows>
HOTBED_ROW_FN void PrefetchColumns(const Rows& rows, uint64_t k, uint32_t ahead, uint64_t from,
                                   uint32_t bytes) {
  if (k + ahead >= rows.limit) return;
  FetchLines(rows.At(k + ahead) + from, bytes);
}

template <typename Weight, uint32_t kRegisters>
HOTBED_ROW_FN void LoadValues(const uint8_t* row, PoolFloats* values) {
  row = OneAddress(row);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < kRegisters; ++r) {
    PoolLoad<Weight>::Load(row + uint64_t{Weight::kBytes} * kPoolLanes * r, &values[r]);
  }
}

template <typename Weight, uint32_t kRegisters, bool kWeighted, typename Rows>
HOTBED_ROW_FN void SumColumns(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                              uint8_t* sum) {
  constexpr uint32_t kRegisterBytes = Weight::kBytes * kPoolLanes;
  const uint64_t from = uint64_t{Weight::kBytes} * column;
  PoolFloats sums[kRegisters] = {};
  if (piece.place > 0) LoadRegisters<kRegisters>(sum + 4ull * column, sums);
  for (uint64_t k = piece.first; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, piece.ahead, from, kRegisters * kRegisterBytes);
    const float weight = kWeighted ? piece.weights[k] : 1.0f;
    PoolFloats values[kRegisters];
    LoadValues<Weight, kRegisters>(rows.At(k) + from, values);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegisters; ++r) sums[r] += kWeighted ? values[r] * weight : values[r];
  }
  StoreRegisters<kRegisters>(sums, sum + 4ull * column);
}

// The larger of each lane, the second where they are equal. For numbers.
HOTBED_ROW_FN PoolFloats LargerOf(const PoolFloats& value, const PoolFloats& largest) {
#if defined(__AVX512F__)
  return _mm512_max_ps(value, largest);
#elif defined(__AVX2__)
  return _mm256_max_ps(value, largest);
#else
  return value > largest ? value : largest;
#endif
}

// arg = place where value is larger than largest.
HOTBED_ROW_FN void KeepPlace(const PoolFloats& value, const PoolFloats& largest, uint32_t place,
                             PoolInts* arg) {
#if defined(__AVX512F__)
  const __mmask16 larger = _mm512_cmp_ps_mask(value, largest, _CMP_GT_OQ);
  __m512i numbers;
  __builtin_memcpy(&numbers, arg, sizeof(numbers));
  numbers = _mm512_mask_mov_epi32(numbers, larger, _mm512_set1_epi32(static_cast<int>(place)));
  __builtin_memcpy(arg, &numbers, sizeof(numbers));
#else
  *arg = value > largest ? PoolInts{} + place : *arg;
#endif
}

// Whether all values that it saw are numbers. It sees the registers of a row in pairs.
template <uint32_t kRegisters>
class NumberWatch {
 public:
  HOTBED_ROW_FN void See(const PoolFloats* values) {
    constexpr uint32_t kStep = kRegisters > 1 ? 2 : 1;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegisters; r += kStep) {
      const PoolFloats& one = values[r];
      const PoolFloats& other = values[r + kStep - 1];
#if defined(__AVX512F__)
      numbers_[r / kStep] = _mm512_mask_cmp_ps_mask(numbers_[r / kStep], one, other, _CMP_ORD_Q);
#else
      others_ |= (one != one) | (other != other);
#endif
    }
  }
  HOTBED_ROW_FN bool AllNumbers() const {
#if defined(__AVX512F__)
    __mmask16 all = numbers_[0];
#pragma GCC unroll 4
    for (uint32_t i = 1; i < (kRegisters + 1) / 2; ++i) all &= numbers_[i];
    return all == 0xffff;
#else
    int32_t any = 0;
    for (uint32_t l = 0; l < kPoolLanes; ++l) any |= others_[l];
    return any == 0;
#endif
  }

 private:
#if defined(__AVX512F__)
  static_assert(kRegisters <= 8);
  __mmask16 numbers_[4] = {0xffff, 0xffff, 0xffff, 0xffff};
#else
  typedef int32_t Lanes __attribute__((vector_size(4 * kPoolLanes)));
  Lanes others_ = {};
#endif
};

// The columns after the last whole register.
template <typename Weight, typename Rows>
HOTBED_ROW_FN void SumTail(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                           uint32_t dim, uint8_t* sum) {
  const uint32_t count = dim - column;
  float sums[kPoolLanes] = {};
  if (piece.place > 0) __builtin_memcpy(sums, sum + 4ull * column, 4 * count);
  for (uint64_t k = piece.first; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, piece.ahead, uint64_t{Weight::kBytes} * column,
                    Weight::kBytes * count);
    const uint8_t* const row = rows.At(k);
    for (uint32_t i = 0; i < count; ++i) {
      const float value = Weight::Load(row, column + i);
      sums[i] += piece.weights != nullptr ? value * piece.weights[k] : value;
    }
  }
  __builtin_memcpy(sum + 4ull * column, sums, 4 * count);
}

// Also any columns, at most a register, where a value is no number.
template <typename Weight, typename Rows>
HOTBED_ROW_CALL void MaxTail(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                             uint32_t dim, uint8_t* sum, uint8_t* arg_max) {
  const uint32_t count = dim - column;
  float largest[kPoolLanes] = {};
  uint32_t arg[kPoolLanes] = {};
  if (piece.place > 0) __builtin_memcpy(largest, sum + 4ull * column, 4 * count);
  if (piece.place > 0 && arg_max != nullptr) {
    __builtin_memcpy(arg, arg_max + 4ull * column, 4 * count);
  }
  for (uint64_t k = piece.first; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, piece.ahead, uint64_t{Weight::kBytes} * column,
                    Weight::kBytes * count);
    const uint8_t* const row = rows.At(k);
    const uint32_t place = piece.place + static_cast<uint32_t>(k - piece.first);
    for (uint32_t i = 0; i < count; ++i) {
      const float value = Weight::Load(row, column + i);
      if (place > 0 && !IsLarger(value, largest[i])) continue;
      largest[i] = value;
      arg[i] = place;
    }
  }
  __builtin_memcpy(sum + 4ull * column, largest, 4 * count);
  if (arg_max != nullptr) __builtin_memcpy(arg_max + 4ull * column, arg, 4 * count);
}

// Compares as if there were numbers only, which takes half of the instructions, and compares again
// by MaxTail if there were others.
template <typename Weight, uint32_t kRegisters, bool kArg, typename Rows>
HOTBED_ROW_FN void MaxColumns(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                              uint8_t* sum, uint8_t* arg_max) {
  constexpr uint32_t kRegisterBytes = Weight::kBytes * kPoolLanes;
  const uint64_t from = uint64_t{Weight::kBytes} * column;
  PoolFloats largest[kRegisters];
  PoolInts arg[kRegisters] = {};
  NumberWatch<kRegisters> watch;
  uint64_t k = piece.first;
  if (piece.place > 0) {
    LoadRegisters<kRegisters>(sum + 4ull * column, largest);
    if (kArg) LoadRegisters<kRegisters>(arg_max + 4ull * column, arg);
  } else {
    PrefetchColumns(rows, k, piece.ahead, from, kRegisters * kRegisterBytes);
    LoadValues<Weight, kRegisters>(rows.At(k++) + from, largest);
  }
  watch.See(largest);
  for (; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, piece.ahead, from, kRegisters * kRegisterBytes);
    PoolFloats values[kRegisters];
    LoadValues<Weight, kRegisters>(rows.At(k) + from, values);
    watch.See(values);
    const uint32_t place = piece.place + static_cast<uint32_t>(k - piece.first);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegisters; ++r) {
      if (kArg) KeepPlace(values[r], largest[r], place, &arg[r]);
      largest[r] = LargerOf(values[r], largest[r]);
    }
  }
  if (!watch.AllNumbers()) [[unlikely]] {
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint32_t at = column + kPoolLanes * r;
      MaxTail<Weight>(rows, piece, at, at + kPoolLanes, sum, arg_max);
    }
    return;
  }
  StoreRegisters<kRegisters>(largest, sum + 4ull * column);
  if (kArg) StoreRegisters<kRegisters>(arg, arg_max + 4ull * column);
}

template <typename Weight, bool kWeighted, typename Rows>
HOTBED_ROW_FN void SumPiece(const Rows& rows, const PoolPieceOf& piece, uint32_t dim,
                            uint8_t* sum) {
  uint32_t at = 0;
  for (; dim - at >= kSumRegisters * kPoolLanes; at += kSumRegisters * kPoolLanes) {
    SumColumns<Weight, kSumRegisters, kWeighted>(rows, piece, at, sum);
  }
  for (; dim - at >= 4 * kPoolLanes; at += 4 * kPoolLanes) {
    SumColumns<Weight, 4, kWeighted>(rows, piece, at, sum);
  }
  for (; dim - at >= kPoolLanes; at += kPoolLanes) {
    SumColumns<Weight, 1, kWeighted>(rows, piece, at, sum);
  }
  if (at < dim) SumTail<Weight>(rows, piece, at, dim, sum);
}

template <typename Weight, bool kArg, typename Rows>
HOTBED_ROW_FN void MaxPiece(const Rows& rows, const PoolPieceOf& piece, uint32_t dim, uint8_t* sum,
                            uint8_t* arg_max) {
  uint32_t at = 0;
  for (; dim - at >= kMaxRegisters * kPoolLanes; at += kMaxRegisters * kPoolLanes) {
    MaxColumns<Weight, kMaxRegisters, kArg>(rows, piece, at, sum, arg_max);
  }
  for (; dim - at >= 4 * kPoolLanes; at += 4 * kPoolLanes) {
    MaxColumns<Weight, 4, kArg>(rows, piece, at, sum, arg_max);
  }
  for (; dim - at >= kPoolLanes; at += kPoolLanes) {
    MaxColumns<Weight, 1, kArg>(rows, piece, at, sum, arg_max);
  }
  if (at < dim) MaxTail<Weight>(rows, piece, at, dim, sum, arg_max);
}

// Calls pool(piece, number of the bag) for each piece of a run.
template <typename Pool>
HOTBED_ROW_FN void ForEachPiece(const PoolRunOf& run, uint32_t row_bytes, const Pool& pool) {
  PoolPieceOf piece{run.first, run.first, run.place, RowsAheadOfReads(row_bytes), run.weights};
  for (uint32_t b = 0; b < run.bags; ++b) {
    piece.limit = piece.first + run.lengths[b];
    pool(piece, b);
    piece.first = piece.limit;
    piece.place = 0;
  }
}

template <typename Weight, bool kWeighted, typename Rows>
HOTBED_ROW_CALL void SumRun(const Rows& rows, const PoolRunOf& run, uint32_t dim) {
  const Rows source = rows;  // copies: stores to sums cannot change them
  const PoolRunOf copy = run;
  ForEachPiece(copy, Weight::kBytes * dim,
               [&](const PoolPieceOf& piece, uint32_t b) HOTBED_ALWAYS_INLINE {
                 SumPiece<Weight, kWeighted>(source, piece, dim, copy.sums + 4ull * dim * b);
               });
}

template <typename Weight, bool kArg, typename Rows>
HOTBED_ROW_CALL void MaxRun(const Rows& rows, const PoolRunOf& run, uint32_t dim) {
  const Rows source = rows;
  const PoolRunOf copy = run;
  ForEachPiece(copy, Weight::kBytes * dim,
               [&](const PoolPieceOf& piece, uint32_t b) HOTBED_ALWAYS_INLINE {
                 const uint64_t at = 4ull * dim * b;
                 MaxPiece<Weight, kArg>(source, piece, dim, copy.sums + at,
                                        kArg ? copy.arg_max + at : nullptr);
               });
}

// Sums are read where their piece begins within its bag.
template <typename Weight, typename Rows>
HOTBED_ROW_FN void PoolRun(RowPooling pooling, const Rows& rows, const PoolRunOf& run,
                           uint32_t dim) {
  if (pooling == RowPooling::kMax) {
    if (run.arg_max != nullptr) return MaxRun<Weight, true>(rows, run, dim);
    return MaxRun<Weight, false>(rows, run, dim);
  }
  if (run.weights != nullptr) return SumRun<Weight, true>(rows, run, dim);
  SumRun<Weight, false>(rows, run, dim);
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_POOL_PIECE_H_
