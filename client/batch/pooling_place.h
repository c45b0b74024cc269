// Where bags are pooled: on the servers or here, whichever sends fewer bytes. A pure function.
#ifndef HOTBED_CLIENT_BATCH_POOLING_PLACE_H_
#define HOTBED_CLIENT_BATCH_POOLING_PLACE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "row_math/types.h"

namespace hotbed {

// One table's pooled features in one batch.
struct PoolingWork {
  uint32_t dim = 0;
  uint32_t ranges = 1;    // shards that a column slice is cut into
  uint32_t slices = 1;    // column slices
  uint64_t ids = 0;       // with duplicates, without what is skipped
  uint64_t distinct = 0;  // rows
  uint64_t weights = 0;   // how many of the ids have one
  // A bag of n ids meets this many shards, were they drawn at random: ranges * (1 - (1 - 1 /
  // ranges) ^ n); added up over the bags by AddBags.
  double partial_bags = 0;
  double max_partial_bags = 0;  // of these, those of max-pooled features

  void AddBags(absl::Span<const uint32_t> lengths, bool max);
};

// Bytes of ids, lengths and weights sent and of rows answered:
//   here         distinct * (8 * slices + row bytes)
//   on servers   ids * 8 * slices + weights * 4 * slices
//                + partial bags * (4 * slices + row bytes [+ 4 * dim for arg-max])
// Sums travel as rows do, int8 as fp32.
double BytesPooledHere(const PoolingWork& work, RowType wire_type);
double BytesPooledOnServers(const PoolingWork& work, RowType wire_type);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_POOLING_PLACE_H_
