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

}  // namespace hotbed::bench
