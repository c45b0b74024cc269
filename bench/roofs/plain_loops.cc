#include "bench/roofs/plain_loops.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) && !defined(__clang__)
#define HOTBED_BENCH_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HOTBED_BENCH_CLONES
#endif

namespace hotbed::bench {
namespace {

constexpr uint32_t kAhead = 10;
constexpr uint32_t kLanes = 32;

// Inlined into each clone of its caller, so that all counts of the inner loops are constants.
template <uint32_t kDim, uint32_t kVectors>
__attribute__((always_inline)) inline void TouchRowsOf(
    float* __restrict rows, float* __restrict state, uint32_t state_floats,
    const uint32_t* __restrict slots, uint32_t count, const float* __restrict gradients) {
  const bool scalar = state_floats > kVectors * kDim;
  for (uint32_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const uint64_t next = slots[i + kAhead];
      for (uint32_t k = 0; k < kDim; k += 16) __builtin_prefetch(rows + next * kDim + k, 1, 3);
      for (uint32_t k = 0; k < kVectors * kDim; k += 16) {
        __builtin_prefetch(state + next * state_floats + k, 1, 3);
      }
      if (scalar) __builtin_prefetch(state + next * state_floats + kVectors * kDim, 1, 3);
    }
    const float* __restrict g = gradients + kDim * i;
    float* __restrict w = rows + uint64_t{slots[i]} * kDim;
    float* __restrict s = state + uint64_t{slots[i]} * state_floats;
    for (uint32_t k = 0; k < kDim; ++k) w[k] += g[k];
    for (uint32_t v = 0; v < kVectors; ++v) {
      for (uint32_t k = 0; k < kDim; ++k) s[kDim * v + k] += g[k];
    }
    if (scalar) s[kVectors * kDim] += g[0];
  }
}

template <uint32_t kDim>
__attribute__((always_inline)) inline void TouchRows(float* __restrict rows,
                                                     float* __restrict state, uint32_t state_floats,
                                                     const uint32_t* __restrict slots,
                                                     uint32_t count,
                                                     const float* __restrict gradients) {
  switch (state_floats / kDim) {
    case 0:
      return TouchRowsOf<kDim, 0>(rows, state, state_floats, slots, count, gradients);
    case 1:
      return TouchRowsOf<kDim, 1>(rows, state, state_floats, slots, count, gradients);
    default:
      return TouchRowsOf<kDim, 2>(rows, state, state_floats, slots, count, gradients);
  }
}

// As TouchRowsOf. `bag` lookups share a gradient.
template <uint32_t kDim>
__attribute__((always_inline)) inline void UpdateRows(float* rows, float* state,
                                                      const uint64_t* ids, uint32_t count,
                                                      uint32_t bag, const float* gradients,
                                                      float learning_rate, float epsilon,
                                                      bool prefetch) {
  for (uint32_t i = 0; i < count; ++i) {
    if (prefetch && i + kAhead < count) {
      const float* next = rows + kDim * ids[i + kAhead];
      for (uint32_t k = 0; k < kDim; k += 16) __builtin_prefetch(next + k, 1, 3);
      __builtin_prefetch(state + ids[i + kAhead], 1, 3);
    }
    const float* g = gradients + kDim * (i / bag);
    float* w = rows + kDim * ids[i];
    float lanes[kLanes] = {};
    for (uint32_t k = 0; k < kDim; k += kLanes) {
      for (uint32_t l = 0; l < kLanes; ++l) lanes[l] += g[k + l] * g[k + l];
    }
    for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
      for (uint32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    float& s = state[ids[i]];
    s += lanes[0] / kDim;
    const float step = learning_rate / (std::sqrt(s) + epsilon);
    for (uint32_t k = 0; k < kDim; ++k) w[k] -= step * g[k];
  }
}

}  // namespace

HOTBED_BENCH_CLONES
void PlainGather(const float* rows, const uint64_t* ids, uint32_t count, float* out) {
  for (uint32_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const char* next = reinterpret_cast<const char*>(rows + kPlainDim * ids[i + kAhead]);
      for (int line = 0; line < 4; ++line) __builtin_prefetch(next + 64 * line, 0, 3);
    }
    std::memcpy(out + kPlainDim * i, rows + kPlainDim * ids[i], 4 * kPlainDim);
  }
}

HOTBED_BENCH_CLONES
void PlainRowwiseAdagrad(float* rows, float* state, const uint64_t* ids, uint32_t count,
                         const float* gradients, float learning_rate, float epsilon) {
  UpdateRows<kPlainDim>(rows, state, ids, count, 1, gradients, learning_rate, epsilon, true);
}

HOTBED_BENCH_CLONES
void PlainReadModifyWrite(float* __restrict rows, float* __restrict state, uint32_t dim,
                          uint32_t state_floats, const uint32_t* __restrict slots, uint32_t count,
                          const float* __restrict gradients) {
  if (dim == 64) return TouchRows<64>(rows, state, state_floats, slots, count, gradients);
  if (dim == 128) return TouchRows<128>(rows, state, state_floats, slots, count, gradients);
  __builtin_trap();
}

HOTBED_BENCH_CLONES
void PlainUpdatePerLookup(float* rows, float* state, uint32_t dim, const uint64_t* ids,
                          uint32_t count, uint32_t bag, const float* gradients, float learning_rate,
                          float epsilon, bool prefetch) {
  if (dim == 64) {
    UpdateRows<64>(rows, state, ids, count, bag, gradients, learning_rate, epsilon, prefetch);
  } else if (dim == 128) {
    UpdateRows<128>(rows, state, ids, count, bag, gradients, learning_rate, epsilon, prefetch);
  } else {
    __builtin_trap();
  }
}

namespace {

template <uint32_t kDim>
__attribute__((always_inline)) inline void FetchRow(const float* row) {
#pragma GCC unroll 8
  for (uint32_t line = 0; line < kDim / 16; ++line) __builtin_prefetch(row + 16 * line, 0, 3);
}

#if defined(__x86_64__)
template <uint32_t kDim>
__attribute__((target("avx512f"))) void PooledSum512(const float* rows, const uint64_t* ids,
                                                     uint32_t bags, uint32_t length, float* out) {
  constexpr int kRegisters = kDim / 16;
  const uint64_t count = uint64_t{bags} * length;
  uint64_t k = 0;
  for (uint32_t b = 0; b < bags; ++b, out += kDim) {
    __m512 sums[kRegisters] = {};
    for (uint32_t i = 0; i < length; ++i, ++k) {
      if (k + kAhead < count) FetchRow<kDim>(rows + kDim * ids[k + kAhead]);
      const float* const row = rows + kDim * ids[k];
#pragma GCC unroll 8
      for (int r = 0; r < kRegisters; ++r) {
        sums[r] = _mm512_add_ps(sums[r], _mm512_loadu_ps(row + 16 * r));
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRegisters; ++r) _mm512_storeu_ps(out + 16 * r, sums[r]);
  }
}

// Pieces of 64 floats of a row, each in eight registers.
template <uint32_t kDim>
__attribute__((target("avx2"))) void PooledSum256(const float* rows, const uint64_t* ids,
                                                  uint32_t bags, uint32_t length, float* out) {
  const uint64_t count = uint64_t{bags} * length;
  for (uint32_t b = 0; b < bags; ++b, ids += length, out += kDim) {
    const uint64_t left = count - uint64_t{b} * length;
    for (uint32_t piece = 0; piece < kDim; piece += 64) {
      __m256 sums[8] = {};
      for (uint32_t i = 0; i < length; ++i) {
        if (piece == 0 && i + kAhead < left) FetchRow<kDim>(rows + kDim * ids[i + kAhead]);
        const float* const row = rows + kDim * ids[i] + piece;
#pragma GCC unroll 8
        for (int r = 0; r < 8; ++r) {
          sums[r] = _mm256_add_ps(sums[r], _mm256_loadu_ps(row + 8 * r));
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) _mm256_storeu_ps(out + piece + 8 * r, sums[r]);
    }
  }
}
#endif

template <uint32_t kDim>
void PooledSum(const float* rows, const uint64_t* ids, uint32_t bags, uint32_t length, float* out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return PooledSum512<kDim>(rows, ids, bags, length, out);
  if (__builtin_cpu_supports("avx2")) return PooledSum256<kDim>(rows, ids, bags, length, out);
#endif
  for (uint32_t b = 0; b < bags; ++b, ids += length, out += kDim) {
    std::memset(out, 0, 4 * kDim);
    for (uint32_t i = 0; i < length; ++i) {
      FetchRow<kDim>(rows + kDim * ids[i + (i + kAhead < length ? kAhead : 0)]);
      const float* const row = rows + kDim * ids[i];
      for (uint32_t c = 0; c < kDim; ++c) out[c] += row[c];
    }
  }
}

}  // namespace

namespace {

// 32 words at a time, so that no addition waits for another.
#define HOTBED_PLAIN_READ_LOOP                                  \
  uint64_t lanes[32] = {};                                      \
  uint64_t i = 0;                                               \
  for (; i + 32 <= count; i += 32) {                            \
    __builtin_prefetch(words + i + 512);                        \
    for (uint32_t l = 0; l < 32; ++l) lanes[l] ^= words[i + l]; \
  }                                                             \
  uint64_t parity = 0;                                          \
  for (uint32_t l = 0; l < 32; ++l) parity ^= lanes[l];         \
  for (; i < count; ++i) parity ^= words[i];                    \
  return parity;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t Read512(const uint64_t* words, uint64_t count) {
  HOTBED_PLAIN_READ_LOOP
}
__attribute__((target("avx2"))) uint64_t Read256(const uint64_t* words,
                                                 uint64_t count){HOTBED_PLAIN_READ_LOOP}
#endif
uint64_t ReadPlain(const uint64_t* words, uint64_t count) {
  HOTBED_PLAIN_READ_LOOP
}

}  // namespace

uint64_t PlainRead(const uint64_t* words, uint64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Read512(words, count);
  if (__builtin_cpu_supports("avx2")) return Read256(words, count);
#endif
  return ReadPlain(words, count);
}

void PlainPooledSum(const float* rows, const uint64_t* ids, uint32_t dim, uint32_t bags,
                    uint32_t length, float* out) {
  if (dim == 64) return PooledSum<64>(rows, ids, bags, length, out);
  if (dim == 128) return PooledSum<128>(rows, ids, bags, length, out);
  __builtin_trap();
}

}  // namespace hotbed::bench
