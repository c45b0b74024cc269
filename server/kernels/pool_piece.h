// Consecutive rows of one bag, summed or compared (see kernel_body.h for how these files are
// compiled).
//
// Every kind of pooling uses PoolPiece, and a bag's result so far lies in memory between pieces. So
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
constexpr uint32_t kPoolAhead = 12;  // rows

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
  const uint8_t* weights;
  uint64_t first_position;
  uint64_t stride;
  uint64_t limit;
  HOTBED_ROW_FN const uint8_t* At(uint64_t k) const {
    return weights + stride * (ids[k] - first_position);
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
  const float* weights;  // row k has weights[k]; or null
};

template <typename Rows>
HOTBED_ROW_FN void PrefetchColumns(const Rows& rows, uint64_t k, uint64_t from, uint32_t bytes) {
  if (k + kPoolAhead >= rows.limit) return;
  const uint8_t* const row = rows.At(k + kPoolAhead) + from;
  for (uint32_t at = 0; at < bytes; at += 64) FetchLine(row + at);
}

template <typename Weight, uint32_t kRegisters, bool kWeighted, typename Rows>
HOTBED_ROW_FN void SumColumns(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                              uint8_t* sum) {
  constexpr uint32_t kRegisterBytes = Weight::kBytes * kPoolLanes;
  const uint64_t from = uint64_t{Weight::kBytes} * column;
  PoolFloats sums[kRegisters] = {};
  if (piece.place > 0) __builtin_memcpy(sums, sum + 4ull * column, sizeof(sums));
  for (uint64_t k = piece.first; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, from, kRegisters * kRegisterBytes);
    const uint8_t* const row = rows.At(k) + from;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegisters; ++r) {
      PoolFloats value;
      PoolLoad<Weight>::Load(row + kRegisterBytes * r, &value);
      sums[r] += kWeighted ? value * piece.weights[k] : value;
    }
  }
  __builtin_memcpy(sum + 4ull * column, sums, sizeof(sums));
}

// IsLarger by lanes.
template <bool kArg>
HOTBED_ROW_FN void KeepLarger(const PoolFloats& value, uint32_t place, PoolFloats* largest,
                              PoolInts* arg) {
#if defined(__AVX512F__)
  // Two comparisons: a value that is no number is not below any other.
  const __mmask16 not_below = _mm512_cmp_ps_mask(value, *largest, _CMP_NLE_UQ);
  const __mmask16 larger = _mm512_mask_cmp_ps_mask(not_below, *largest, *largest, _CMP_ORD_Q);
  *largest = _mm512_mask_mov_ps(*largest, larger, value);
  if (!kArg) return;
  __m512i numbers;
  __builtin_memcpy(&numbers, arg, sizeof(numbers));
  numbers = _mm512_mask_mov_epi32(numbers, larger, _mm512_set1_epi32(static_cast<int>(place)));
  __builtin_memcpy(arg, &numbers, sizeof(numbers));
#else
  const auto larger = (value > *largest) | ((value != value) & (*largest == *largest));
  *largest = larger ? value : *largest;
  if (kArg) *arg = larger ? PoolInts{} + place : *arg;
#endif
}

template <typename Weight, uint32_t kRegisters, bool kArg, typename Rows>
HOTBED_ROW_FN void MaxColumns(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                              uint8_t* sum, uint8_t* arg_max) {
  constexpr uint32_t kRegisterBytes = Weight::kBytes * kPoolLanes;
  const uint64_t from = uint64_t{Weight::kBytes} * column;
  PoolFloats largest[kRegisters];
  PoolInts arg[kRegisters] = {};
  uint64_t k = piece.first;
  if (piece.place > 0) {
    __builtin_memcpy(largest, sum + 4ull * column, sizeof(largest));
    if (kArg) __builtin_memcpy(arg, arg_max + 4ull * column, sizeof(arg));
  } else {
    PrefetchColumns(rows, k, from, kRegisters * kRegisterBytes);
    const uint8_t* const row = rows.At(k++) + from;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegisters; ++r) {
      PoolLoad<Weight>::Load(row + kRegisterBytes * r, &largest[r]);
    }
  }
  for (; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, from, kRegisters * kRegisterBytes);
    const uint8_t* const row = rows.At(k) + from;
    const uint32_t place = piece.place + static_cast<uint32_t>(k - piece.first);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegisters; ++r) {
      PoolFloats value;
      PoolLoad<Weight>::Load(row + kRegisterBytes * r, &value);
      KeepLarger<kArg>(value, place, &largest[r], &arg[r]);
    }
  }
  __builtin_memcpy(sum + 4ull * column, largest, sizeof(largest));
  if (kArg) __builtin_memcpy(arg_max + 4ull * column, arg, sizeof(arg));
}

// The columns after the last whole register.
template <typename Weight, typename Rows>
HOTBED_ROW_FN void SumTail(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                           uint32_t dim, uint8_t* sum) {
  const uint32_t count = dim - column;
  float sums[kPoolLanes] = {};
  if (piece.place > 0) __builtin_memcpy(sums, sum + 4ull * column, 4 * count);
  for (uint64_t k = piece.first; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, uint64_t{Weight::kBytes} * column, Weight::kBytes * count);
    const uint8_t* const row = rows.At(k);
    for (uint32_t i = 0; i < count; ++i) {
      const float value = Weight::Load(row, column + i);
      sums[i] += piece.weights != nullptr ? value * piece.weights[k] : value;
    }
  }
  __builtin_memcpy(sum + 4ull * column, sums, 4 * count);
}

template <typename Weight, typename Rows>
HOTBED_ROW_FN void MaxTail(const Rows& rows, const PoolPieceOf& piece, uint32_t column,
                           uint32_t dim, uint8_t* sum, uint8_t* arg_max) {
  const uint32_t count = dim - column;
  float largest[kPoolLanes] = {};
  uint32_t arg[kPoolLanes] = {};
  if (piece.place > 0) __builtin_memcpy(largest, sum + 4ull * column, 4 * count);
  if (piece.place > 0 && arg_max != nullptr) {
    __builtin_memcpy(arg, arg_max + 4ull * column, 4 * count);
  }
  for (uint64_t k = piece.first; k < piece.limit; ++k) {
    PrefetchColumns(rows, k, uint64_t{Weight::kBytes} * column, Weight::kBytes * count);
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

// `sum`: dim floats, unaligned, read unless the piece starts its bag. Not inlined: one function
// body for all callers with the same kind of rows.
template <typename Weight, typename Rows>
__attribute__((noinline)) void PoolPiece(RowPooling pooling, const Rows& rows,
                                         const PoolPieceOf& piece, uint32_t dim, uint8_t* sum,
                                         uint8_t* arg_max) {
  if (pooling == RowPooling::kMax) {
    if (arg_max != nullptr) return MaxPiece<Weight, true>(rows, piece, dim, sum, arg_max);
    return MaxPiece<Weight, false>(rows, piece, dim, sum, nullptr);
  }
  if (piece.weights != nullptr) return SumPiece<Weight, true>(rows, piece, dim, sum);
  SumPiece<Weight, false>(rows, piece, dim, sum);
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_POOL_PIECE_H_
