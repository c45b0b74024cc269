// Pools the bags of a feature from rows in memory, in the order of the ids and in fp32. This is the
// client's side of pooling, and the reference for pooling on servers. Pure functions.
#ifndef HOTBED_CLIENT_EMBEDDING_EMBEDDING_POOL_H_
#define HOTBED_CLIENT_EMBEDDING_EMBEDDING_POOL_H_

#include <cstdint>

#include "client/embedding/embedding_batch.h"

namespace hotbed {

// Id i of the feature has the row at rows[index[i] * dim]. The index of a skipped id is not read.
struct IndexedRows {
  const float* rows = nullptr;
  const uint32_t* index = nullptr;  // one per id
};

// Writes bag b as dim floats to out + b * stride. `arg_max` (max only) has bags x dim elements: the
// position in its bag of the id that an element comes from, kNoIndex in a bag of zeros.
void PoolBags(const BoundFeature& bound, const IndexedRows& from, float* out, uint64_t stride,
              uint32_t* arg_max);

// Divides the bags of a mean, which are sums so far, as PoolBags does; leaves the bags of other
// poolings alone.
void DivideBags(const BoundFeature& bound, float* out, uint64_t stride);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_EMBEDDING_POOL_H_
