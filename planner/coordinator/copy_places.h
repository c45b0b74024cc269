// Where copies of shards may go: which servers may take any, and which of them is best. Pure
// functions.
#ifndef HOTBED_PLANNER_COORDINATOR_COPY_PLACES_H_
#define HOTBED_PLANNER_COORDINATOR_COPY_PLACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "planner/coordinator/cluster_state.h"
#include "planner/coordinator/leases.h"

namespace hotbed {

// Why the server cannot take copies of shards now, or OK: it is unknown (NotFound), or
// (FailedPrecondition) down, about to stop, draining, read-only or of an older version.
absl::Status MayTakeCopies(const ClusterState& state, const Leases& leases, ServerId server);

// Whether one of the others is in the server's failure domain (FailureDomainOf): no two copies of a
// shard are.
bool SharesDomain(const ClusterState& state, ServerId server, const std::vector<ServerId>& others);

// The server, other than `members` and apart from all of their domains, that may take a copy and
// has the fewest shards, those counted that it will get (`promised`); of equal ones the lowest
// number. `learners`, which have rows already, come first. 0: none.
struct PlaceSearch {
  std::vector<ServerId> members;
  std::vector<ServerId> learners;
  std::vector<ServerId> avoid;  // its primary did not hear of them
  const absl::flat_hash_map<ServerId, uint64_t>* promised = nullptr;
  const absl::flat_hash_set<ServerId>* busy = nullptr;  // taken only where there is no other
};
ServerId PlaceForCopy(const ClusterState& state, const Leases& leases, const PlaceSearch& search);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_COPY_PLACES_H_
