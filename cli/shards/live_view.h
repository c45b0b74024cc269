// The cluster's map as the planner sees it, and what reports of a live placement say beside the
// plan. Pure functions.
#ifndef HOTBED_CLI_SHARDS_LIVE_VIEW_H_
#define HOTBED_CLI_SHARDS_LIVE_VIEW_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/cluster_problem.h"
#include "proto/control.pb.h"

namespace hotbed {

// All servers, those without a lease as unreachable, and all tables with the copies of their
// shards, in the map's order; bytes as servers said them. Errors of FromProto: the map holds what
// only a later version knows.
absl::StatusOr<ClusterView> ViewOfMap(const v1::ClusterMap& map);

// One line: which workload the times of a live plan are for.
inline constexpr char kLiveWorkloadText[] =
    "Times are for 512 evenly spread ids of each table a step: a cluster doesn't know its "
    "workload.\n";

// A line for each unreachable server that has shards without other copies; empty without any.
std::string UnreachableText(const ClusterView& view);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_LIVE_VIEW_H_
