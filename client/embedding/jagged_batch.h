// Finds the feature and sample of an id in a jagged batch, for messages. Pure functions.
#ifndef HOTBED_CLIENT_EMBEDDING_JAGGED_BATCH_H_
#define HOTBED_CLIENT_EMBEDDING_JAGGED_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "hotbed/batch.h"

namespace hotbed {

struct JaggedPlace {
  size_t key = 0;          // index
  uint32_t sample = 0;     // of the batch; a bag of the key where the batch is variable
  uint64_t key_begin = 0;  // index in the batch's ids of the key's first id
};

// The place of batch.ids[position], which exists; there is one length per bag. Walks the lengths.
JaggedPlace PlaceOfId(const JaggedBatch& batch, uint64_t position);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_EMBEDDING_JAGGED_BATCH_H_
