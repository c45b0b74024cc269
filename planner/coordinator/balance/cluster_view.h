// The coordinator's state as the planner sees it.
#ifndef HOTBED_PLANNER_COORDINATOR_BALANCE_CLUSTER_VIEW_H_
#define HOTBED_PLANNER_COORDINATOR_BALANCE_CLUSTER_VIEW_H_

#include <functional>
#include <string>

#include "common/ids.h"
#include "planner/cluster_problem.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"
#include "proto/control.pb.h"

namespace hotbed {

// The load that a server reported last; null: none.
using LoadOf = std::function<const v1::ServerLoad*(ServerId)>;

// From the last heartbeats. The leases must outlive it.
LoadOf LastLoads(const Leases* leases);

// All registered servers and all tables with the members of their shards. A server may take shards
// if `live` says so and it is neither draining nor read-only. Loads of servers and replicas come
// from `load`, or without it from the metadata store. Thread-compatible, as the state is.
ClusterView ViewOf(const ClusterState& state, const std::function<bool(ServerId)>& live,
                   const LoadOf& load = nullptr);

// The servers without the tables, whose bytes are in ClusterServer::other_bytes, and without loads
// of replicas: a new table of which the shards are told is placed without a look at all others.
ClusterView ServersView(const ClusterState& state, const std::function<bool(ServerId)>& live,
                        const LoadOf& load);

// The server's failure domain: the one it was started with, else the host of its data port. Servers
// of one domain may fail together.
std::string FailureDomainOf(const v1::ServerInfo& info);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_BALANCE_CLUSTER_VIEW_H_
