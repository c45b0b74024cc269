// Pools the bags of a feature from rows that are here, in the order of the ids, in fp32: the
// client's side of pooling, and the reference for what servers pool. Pure.
#ifndef HOTBED_CLIENT_EMBEDDING_EMBEDDING_POOL_H_
#define HOTBED_CLIENT_EMBEDDING_EMBEDDING_POOL_H_

#include <cstdint>

#include "client/embedding/embedding_batch.h"

namespace hotbed {

// Id i of the feature has the row rows[index[i] * dim]; index of what is skipped is not looked at.
struct IndexedRows {
  const float* rows = nullptr;
  const uint32_t* index = nullptr;  // one an id
};

// Bag b becomes dim floats at out + b * stride. `arg_max` (max only): bags x dim, which id of its
// bag an element is from, kNoIndex in a bag of zeros.
void PoolBags(const BoundFeature& bound, const IndexedRows& from, float* out, uint64_t stride,
              uint32_t* arg_max);

// Of bags that are sums: a mean's are divided as PoolBags divides them, others left alone.
void DivideBags(const BoundFeature& bound, float* out, uint64_t stride);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_EMBEDDING_POOL_H_
