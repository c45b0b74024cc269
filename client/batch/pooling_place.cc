#include "client/batch/pooling_place.h"

#include <cmath>

namespace hotbed {

void PoolingWork::AddBags(absl::Span<const uint32_t> lengths, bool max) {
  const double shards = ranges;
  double partial = 0;
  for (uint32_t n : lengths) {
    if (n == 1 || ranges == 1) {
      partial += n > 0 ? 1 : 0;
    } else {
      partial += shards * (1 - std::pow(1 - 1 / shards, static_cast<double>(n)));
    }
  }
  partial_bags += partial;
  if (max) max_partial_bags += partial;
}

double BytesPooledHere(const PoolingWork& work, RowType wire_type) {
  return static_cast<double>(work.distinct) *
         (8.0 * work.slices + RowWireBytes(wire_type, work.dim));
}

double BytesPooledOnServers(const PoolingWork& work, RowType wire_type) {
  const RowType sums = wire_type == RowType::kInt8 ? RowType::kFp32 : wire_type;
  return static_cast<double>(work.ids) * 8 * work.slices +
         static_cast<double>(work.weights) * 4 * work.slices +
         work.partial_bags * (4.0 * work.slices + RowWireBytes(sums, work.dim)) +
         work.max_partial_bags * 4.0 * work.dim;
}

}  // namespace hotbed
