// The coordinator's state as the planner sees it.
#ifndef HOTBED_PLANNER_COORDINATOR_BALANCE_CLUSTER_VIEW_H_
#define HOTBED_PLANNER_COORDINATOR_BALANCE_CLUSTER_VIEW_H_

#include <functional>
#include <string>

#include "common/ids.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/state/cluster_state.h"
#include "proto/control.pb.h"

namespace hotbed {

// What the coordinator has last heard from a server; null: nothing.
using LoadOf = std::function<const v1::ServerLoad*(ServerId)>;

// All registered servers, with whether `live` says that they may take shards, and all tables with
// the members of their shards. A draining or read-only server takes none. What `load` says of
// servers and copies is taken over; without it, what the metadata store has. Thread-compatible, as
// the state is.
ClusterView ViewOf(const ClusterState& state, const std::function<bool(ServerId)>& live,
                   const LoadOf& load = nullptr);

// Servers of one domain may fail together: the one that it was started with, else the host of its
// data port.
std::string FailureDomainOf(const v1::ServerInfo& info);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_CLUSTER_VIEW_H_
