// The coordinator's state as the planner sees it.
#ifndef HOTBED_PLANNER_COORDINATOR_CLUSTER_VIEW_H_
#define HOTBED_PLANNER_COORDINATOR_CLUSTER_VIEW_H_

#include <functional>

#include "common/ids.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/cluster_state.h"

namespace hotbed {

// All registered servers, with whether `live` says that they may take shards, and all tables with
// the primaries of their shards. Thread-compatible, as the state is.
ClusterView ViewOf(const ClusterState& state, const std::function<bool(ServerId)>& live);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_CLUSTER_VIEW_H_
