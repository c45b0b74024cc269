// The demo's changes of a cluster in use: moving shards onto an added server, and losing a server.
// Blocking; `tick` is called repeatedly during waits, keeps the cluster's processes alive, and ends
// a wait by returning an error.
#ifndef HOTBED_CLI_DEMO_CLUSTER_CHANGES_H_
#define HOTBED_CLI_DEMO_CLUSTER_CHANGES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"

namespace hotbed {

struct MoveReport {
  uint64_t shards = 0;
  uint64_t bytes = 0;  // as the servers estimate them
  double seconds = 0;
};

struct LossReport {
  double fail_over_seconds = 0;  // until all its shards had another active primary
  // Until every shard had all its replicas again, on other servers.
  double refill_seconds = 0;
};

using Tick = std::function<absl::Status()>;

// Moves one primary of every `one_of` shards onto `server`, which must be up. Switches the
// cluster's rebalancing off first, so that both do not move the same shards.
absl::StatusOr<MoveReport> MoveOnto(const std::string& coordinator, const std::string& server,
                                    uint64_t one_of, const Tick& tick, const Clock* clock);

// Waits until every shard is active and has as many live members as its table wants.
absl::Status WaitForReplicas(const std::string& coordinator, const Tick& tick, const Clock* clock);

// Waits for the fail-over and the refill after `server` was killed at `killed_ns`.
absl::StatusOr<LossReport> WaitOutLoss(const std::string& coordinator, const std::string& server,
                                       int64_t killed_ns, const Tick& tick, const Clock* clock);

// The number of shards whose primary it is.
absl::StatusOr<uint64_t> PrimariesOf(const std::string& coordinator, const std::string& server);

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_CLUSTER_CHANGES_H_
