// The roofs of the in-process measurements: the shortest loops that gather rows, or apply row-wise
// Adagrad to them, with software prefetch, over one array on 2 MiB pages. No index, no tiers, no
// types: nothing that a store needs.
#ifndef HOTBED_BENCH_PLAIN_LOOPS_H_
#define HOTBED_BENCH_PLAIN_LOOPS_H_

#include <cstdint>

namespace hotbed::bench {

constexpr uint32_t kPlainDim = 64;

// out[i] = rows[ids[i]], 64 floats each.
void PlainGather(const float* rows, const uint64_t* ids, uint32_t count, float* out);

// gradients: count * 64, in order of ids. state: one float a row.
void PlainRowwiseAdagrad(float* rows, float* state, const uint64_t* ids, uint32_t count,
                         const float* gradients, float learning_rate, float epsilon);

// out[b] = the sum of the rows of bag b, 128 floats each, in the order of the ids; all bags have
// `length` ids. Sums stay in registers, columns are unrolled by hand, rows are fetched early.
constexpr uint32_t kPlainPooledDim = 128;
void PlainPooledSum(const float* rows, const uint64_t* ids, uint32_t bags, uint32_t length,
                    float* out);

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_PLAIN_LOOPS_H_
