// What the demo does to a cluster while it is used: shards move onto an added server, a server is
// lost. Blocking; `tick` is called all the time meanwhile, keeps the cluster's processes alive, and
// ends the wait by an error.
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
  uint64_t bytes = 0;  // as servers estimate them
  double seconds = 0;
};

struct LossReport {
  double fail_over_seconds = 0;  // until all its shards had another primary, and were active
  // Until every shard had all its copies again on other servers.
  double refill_seconds = 0;
};

using Tick = std::function<absl::Status()>;

// Moves one primary of every `one_of` shards onto `server`, which must be up. The cluster's own
// rebalancing is switched off before, so that the two do not ask for the same shards.
absl::StatusOr<MoveReport> MoveOnto(const std::string& coordinator, const std::string& server,
                                    uint64_t one_of, const Tick& tick, const Clock* clock);

// Until every shard is active and has as many live members as its table wants.
absl::Status WaitForCopies(const std::string& coordinator, const Tick& tick, const Clock* clock);

// After `server` was killed at `killed_ns`.
absl::StatusOr<LossReport> WaitOutLoss(const std::string& coordinator, const std::string& server,
                                       int64_t killed_ns, const Tick& tick, const Clock* clock);

// How many shards it is primary of.
absl::StatusOr<uint64_t> PrimariesOf(const std::string& coordinator, const std::string& server);

}  // namespace hotbed

#endif  // HOTBED_CLI_DEMO_CLUSTER_CHANGES_H_
