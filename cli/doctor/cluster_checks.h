// Checks of what the coordinator says about the cluster. Pure, except where a function asks it.
#ifndef HOTBED_CLI_DOCTOR_CLUSTER_CHECKS_H_
#define HOTBED_CLI_DOCTOR_CLUSTER_CHECKS_H_

#include "cli/base/coordinator_stub.h"
#include "cli/doctor/check.h"
#include "proto/control.pb.h"

namespace hotbed {

Check CheckServers(const v1::ClusterMap& map);
// Servers with data of this cluster, or of one whose metadata were lost, that are not let in yet.
Check CheckStrangers(CoordinatorStub* coordinator);
Check CheckShards(const v1::ClusterMap& map);
// Shards that have lost all members, and replicas that were passed over though they may hold more.
Check CheckDoubts(const v1::ClusterMap& map, const v1::ListMovesReply& list);
Check CheckReplicas(const v1::ClusterMap& map);
Check CheckDomains(const v1::ClusterMap& map);
Check CheckMoves(const v1::ClusterMap& map, const v1::ListMovesReply& list);
Check CheckRebalancing(const v1::ListMovesReply& list);
Check CheckRoom(const v1::ClusterMap& map);
// Processes that were not let in, and data that was given up.
Check CheckDirectories(const v1::ListEventsReply& events);

}  // namespace hotbed

#endif  // HOTBED_CLI_DOCTOR_CLUSTER_CHECKS_H_
