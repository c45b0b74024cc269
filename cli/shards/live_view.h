// The planner's view of a cluster map, and texts for reports of a live placement. Pure functions.
#ifndef HOTBED_CLI_SHARDS_LIVE_VIEW_H_
#define HOTBED_CLI_SHARDS_LIVE_VIEW_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/cluster_problem.h"
#include "proto/control.pb.h"

namespace hotbed {

// All servers (those without a lease as unreachable) and all tables with the replicas of their
// shards, in the map's order, with the memory, free disk space and bytes that the servers reported
// and the rates of shards if the map has them. Errors of FromProto: the map has values that only a
// later version knows.
absl::StatusOr<ClusterView> ViewOfMap(const v1::ClusterMap& map);

// One line: the workload that the times of a live plan assume.
std::string LiveWorkloadText(const v1::ClusterMap& map);

// One line per unreachable server that has shards without other replicas; may be empty.
std::string UnreachableText(const ClusterView& view);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_LIVE_VIEW_H_
