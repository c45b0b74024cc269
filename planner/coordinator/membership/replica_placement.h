// Where copies of shards may go: which servers may take any, and which of them is best. Pure
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

// Bytes of shards, as their primaries said last; 0 where they did not (they name the busiest). For
// one instant.
class ShardBytes {
 public:
  explicit ShardBytes(const Leases* leases) : leases_(leases) {}
  uint64_t Of(const v1::ShardRecord& record);

 private:
  const Leases* const leases_;
  // By server; of the shards that its last heartbeat named.
  absl::flat_hash_map<ServerId, absl::flat_hash_map<uint64_t, uint64_t>> of_server_;
};

// What a server must have free for copies of so many bytes of rows: a quarter more, for what their
// records have beside rows, for files that are merged and for the log meanwhile.
uint64_t RoomFor(uint64_t bytes);

// Why the server cannot take copies of shards now, or OK: it is unknown (NotFound), or
// (FailedPrecondition) down, about to stop, draining, read-only, or says that
// it has not the room for `bytes` of rows.
absl::Status MayTakeReplicas(const ClusterState& state, const Leases& leases, ServerId server,
                             uint64_t bytes = 0);

// Whether one of the others is in the server's failure domain (FailureDomainOf): no two copies of a
// shard are.
bool SharesDomain(const ClusterState& state, ServerId server, const std::vector<ServerId>& others);

// The server, other than `members` and apart from all of their domains, that may take a copy and
// has the fewest shards, those counted that it will get (`promised`); of equal ones the lowest
// number. `learners`, which have rows already, come first. 0: none.
struct PlaceSearch {
  std::vector<ServerId> members;
  std::vector<ServerId> learners;
  std::vector<ServerId> avoid;
  uint64_t bytes = 0;                                                 // of the copy
  const absl::flat_hash_map<ServerId, uint64_t>* bytes_to = nullptr;  // of others on their way
  const absl::flat_hash_map<ServerId, uint64_t>* promised = nullptr;
  const absl::flat_hash_set<ServerId>* busy = nullptr;  // taken only where there is no other
};
ServerId PlaceForReplica(const ClusterState& state, const Leases& leases,
                         const PlaceSearch& search);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_MEMBERSHIP_REPLICA_PLACEMENT_H_
