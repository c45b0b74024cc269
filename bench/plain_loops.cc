#include "bench/plain_loops.h"

#include <cmath>
#include <cstring>

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

// Compiled into each clone of its caller, all counts of the inner loops known.
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
  for (uint32_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const char* next = reinterpret_cast<const char*>(rows + kPlainDim * ids[i + kAhead]);
      for (int line = 0; line < 4; ++line) __builtin_prefetch(next + 64 * line, 1, 3);
      __builtin_prefetch(state + ids[i + kAhead], 1, 3);
    }
    const float* g = gradients + kPlainDim * i;
    float* w = rows + kPlainDim * ids[i];
    float lanes[kLanes] = {};
    for (uint32_t k = 0; k < kPlainDim; k += kLanes) {
      for (uint32_t l = 0; l < kLanes; ++l) lanes[l] += g[k + l] * g[k + l];
    }
    for (uint32_t half = kLanes / 2; half > 0; half /= 2) {
      for (uint32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    float& s = state[ids[i]];
    s += lanes[0] / kPlainDim;
    const float step = learning_rate / (std::sqrt(s) + epsilon);
    for (uint32_t k = 0; k < kPlainDim; ++k) w[k] -= step * g[k];
  }
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
void PlainUpdatePerLookup(float* rows, float* state, const uint64_t* ids, uint32_t count,
                          uint32_t bag, const float* gradients, float learning_rate, float epsilon,
                          bool prefetch) {
  constexpr uint32_t kDim = 128;
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

}  // namespace hotbed::bench
