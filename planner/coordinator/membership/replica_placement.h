// Where replicas of shards may go: which servers may take one, and which of them is best. Pure
// functions.
#ifndef HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_PLACEMENT_H_
#define HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "planner/coordinator/state/cluster_state.h"
#include "planner/coordinator/state/leases.h"

namespace hotbed {

// Bytes of shards as last reported by their primaries; 0 if a primary did not report the shard
// (servers report their busiest shards only). Valid for one instant.
class ShardBytes {
 public:
  explicit ShardBytes(const Leases* leases) : leases_(leases) {}
  uint64_t Of(const ShardRecord& record);

 private:
  const Leases* const leases_;
  // By server, then by packed shard.
  absl::flat_hash_map<ServerId, absl::flat_hash_map<uint64_t, uint64_t>> of_server_;
};

// Free bytes that a server needs for replicas with `bytes` bytes of rows: a quarter more, for the
// records' headers, for files that are being merged, and for the log during the transfer.
uint64_t RoomFor(uint64_t bytes);

// OK if the server can take replicas of shards now. NotFound: the server is unknown.
// FailedPrecondition: it is down, about to stop, draining, read-only, or reports too little room
// for `bytes` bytes of rows.
absl::Status MayTakeReplicas(const ClusterState& state, const Leases& leases, ServerId server,
                             uint64_t bytes = 0);

// Whether one of the others is in the server's failure domain (FailureDomainOf). No two replicas of
// a shard may share one.
bool SharesDomain(const ClusterState& state, ServerId server, const std::vector<ServerId>& others);

// The server that may take a replica, is none of `members` and shares no failure domain with them,
// and has the fewest shards, including those promised to it; among equals the lowest id. `learners`
// go first, because they have rows already. 0: there is none.
struct PlaceSearch {
  std::vector<ServerId> members;
  std::vector<ServerId> learners;
  std::vector<ServerId> avoid;
  uint64_t bytes = 0;                                                 // of the replica
  const absl::flat_hash_map<ServerId, uint64_t>* bytes_to = nullptr;  // of transfers in flight
  const absl::flat_hash_map<ServerId, uint64_t>* promised = nullptr;
  const absl::flat_hash_set<ServerId>* busy = nullptr;  // chosen only if there is no other
};
ServerId PlaceForReplica(const ClusterState& state, const Leases& leases,
                         const PlaceSearch& search);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_PLACEMENT_H_
