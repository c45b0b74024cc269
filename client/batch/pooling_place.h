// Compares the bytes that travel when bags are pooled on the servers and when they are pooled in
// the client. Pure functions.
#ifndef HOTBED_CLIENT_BATCH_POOLING_PLACE_H_
#define HOTBED_CLIENT_BATCH_POOLING_PLACE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "row_math/types.h"

namespace hotbed {

// The pooled features of one table in one batch.
struct PoolingWork {
  uint32_t dim = 0;
  uint32_t ranges = 1;    // shards that a column slice is cut into
  uint32_t slices = 1;    // column slices
  uint64_t ids = 0;       // with duplicates, without skipped ids
  uint64_t distinct = 0;  // rows
  uint64_t weights = 0;   // number of ids that have a weight
  // AddBags adds the expected number of shards that hold ids of a bag: for n ids drawn at random,
  // ranges * (1 - (1 - 1 / ranges) ^ n).
  double partial_bags = 0;
  double max_partial_bags = 0;  // the share of max-pooled features in partial_bags

  void AddBags(absl::Span<const uint32_t> lengths, bool max);
};

// Bytes of ids, lengths and weights sent and of rows answered:
//   in client    distinct * (8 * slices + row bytes)
//   on servers   ids * 8 * slices + weights * 4 * slices
//                + partial bags * (4 * slices + row bytes [+ 4 * dim for arg-max])
// Sums travel as rows do, int8 as fp32.
double BytesPooledHere(const PoolingWork& work, RowType wire_type);
double BytesPooledOnServers(const PoolingWork& work, RowType wire_type);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_BATCH_POOLING_PLACE_H_
