// The roofs of the in-process measurements: the shortest loops that gather rows, or apply row-wise
// Adagrad to them, with software prefetch, over one array on 2 MiB pages. They have no index, no
// tiers and no types, nothing that a store needs. Thread-safe.
#ifndef HOTBED_BENCH_ROOFS_PLAIN_LOOPS_H_
#define HOTBED_BENCH_ROOFS_PLAIN_LOOPS_H_

#include <cstdint>

namespace hotbed::bench {

constexpr uint32_t kPlainDim = 64;

// out[i] = rows[ids[i]], 64 floats each.
void PlainGather(const float* rows, const uint64_t* ids, uint32_t count, float* out);

// `gradients` are count * 64 floats in the order of the ids; `state` is one float per row.
void PlainRowwiseAdagrad(float* rows, float* state, const uint64_t* ids, uint32_t count,
                         const float* gradients, float learning_rate, float epsilon);

// Only the memory accesses of an optimizer step: reads each row's weights and state, adds the
// gradient and writes them. dim is 64 or 128; state_floats is at most 2 * dim + 1.
void PlainReadModifyWrite(float* __restrict rows, float* __restrict state, uint32_t dim,
                          uint32_t state_floats, const uint32_t* __restrict slots, uint32_t count,
                          const float* __restrict gradients);

// One row-wise Adagrad step per lookup, in order and including duplicates: lookup i updates row
// ids[i] of `dim` floats (64 or 128) with gradients[i / bag]. `prefetch`: fetches rows some lookups
// ahead.
void PlainUpdatePerLookup(float* rows, float* state, uint32_t dim, const uint64_t* ids,
                          uint32_t count, uint32_t bag, const float* gradients, float learning_rate,
                          float epsilon, bool prefetch);

// Reads memory in order, with loads as wide as the processor has; the parity of its words.
uint64_t PlainRead(const uint64_t* words, uint64_t count);

// out[b] = the sum of the rows of bag b, of `dim` floats (64 or 128) each, in the order of the ids;
// all bags have `length` ids. Sums stay in registers, columns are unrolled by hand, rows are
// fetched early.
void PlainPooledSum(const float* rows, const uint64_t* ids, uint32_t dim, uint32_t bags,
                    uint32_t length, float* out);

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_ROOFS_PLAIN_LOOPS_H_
