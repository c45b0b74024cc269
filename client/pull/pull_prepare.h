// The part of a pull that needs no lock: checks the call, resolves its ids, plans its parts, and
// lays ids, bag lengths and weights out in message buffers.
#ifndef HOTBED_CLIENT_PULL_PULL_PREPARE_H_
#define HOTBED_CLIENT_PULL_PULL_PREPARE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/map/cluster_map.h"
#include "client/pull/pull_call.h"
#include "hotbed/client.h"

namespace hotbed {

struct PullPlanCounts {
  uint64_t ids = 0;     // with duplicates
  uint64_t zeroed = 0;  // outside of their table, bounds mode `zero`
};

// Both are thread-safe. InvalidArgument names the feature or option, its value and what is allowed.
absl::Status CheckPull(absl::Span<const PullFeature> features, const PullOptions& options,
                       RowType wire_type);

// Fills the call's scratch, its buffers, and everything that follows from `features`, which
// CheckPull has accepted. Zeroes rows and `exists` of ids that no shard is asked for.
absl::Status PlanPull(absl::Span<const PullFeature> features, const PlanInput& input,
                      PullCall* call, PullPlanCounts* counts);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_PULL_PULL_PREPARE_H_
