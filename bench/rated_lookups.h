// Lookups of a serving server that come at a fixed rate, whether others are answered or not, and
// are not sent again. One thread sends them and takes the answers, as in the roof of unary calls
// (bench/roofs/roofs.h).
#ifndef HOTBED_BENCH_RATED_LOOKUPS_H_
#define HOTBED_BENCH_RATED_LOOKUPS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/serving.grpc.pb.h"

namespace hotbed::bench {

struct RatedLoad {
  absl::Span<const v1::ServingLookupRequest> requests;  // in turns
  double per_s = 0;
  double seconds = 1;
  int64_t deadline_ns = 0;  // of each, from when it is due
};

struct RatedResult {
  std::vector<double> ms;  // of those that were answered in time, from when each was due
  uint64_t refused = 0;    // since too much waited
  uint64_t late = 0;       // or failed
};

RatedResult LookUpAtRate(v1::Serving::Stub* stub, const RatedLoad& load);

}  // namespace hotbed::bench

#endif  // HOTBED_BENCH_RATED_LOOKUPS_H_
