// Cuts of shards that a command has asked for.
#ifndef HOTBED_CLI_SHARDS_SHARD_CUTS_H_
#define HOTBED_CLI_SHARDS_SHARD_CUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/base/coordinator_stub.h"
#include "planner/plan_on_cluster.h"
#include "proto/control.pb.h"

namespace hotbed {

// Waits until both parts of each, or the merged shard, are served, for `patience` after the last
// one that was done.
absl::Status AwaitCuts(const std::vector<v1::CutShardReply>& cuts, absl::Duration patience,
                       CoordinatorStub* coordinator);

// Asks for all cuts and waits for them. After an error some are made.
absl::Status CarryOutCuts(const std::vector<WantedCut>& wanted, const std::string& reason,
                          absl::Duration patience, CoordinatorStub* coordinator);

// Likewise for merges, each when those before it of the same shards are done.
absl::Status CarryOutMerges(std::vector<WantedMerge> wanted, const std::string& reason,
                            absl::Duration patience, CoordinatorStub* coordinator);

}  // namespace hotbed

#endif  // HOTBED_CLI_SHARDS_SHARD_CUTS_H_
