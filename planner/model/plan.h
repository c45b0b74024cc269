// A plan: which server holds which shard in which role. A plain value that can be printed, compared
// and stored; the planner makes it, the coordinator turns it into shard records. Safe from any
// thread.
#ifndef HOTBED_PLANNER_MODEL_PLAN_H_
#define HOTBED_PLANNER_MODEL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/tables/shard_record.h"

namespace hotbed {

enum class Role : uint8_t { kPrimary = 0, kBackup = 1, kReplica = 2 };

struct Assignment {
  ServerId server = 0;
  Role role = Role::kPrimary;
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// One shard of a plan. `bytes` counts weights and optimizer state, `weight_bytes` the weights
// alone; for a hashed table both are computed from the expected number of rows.
struct PlannedShard {
  ShardId shard;
  ShardRange range;
  uint64_t bytes = 0;
  uint64_t weight_bytes = 0;
  std::vector<Assignment> assignments;  // the primary first
  friend bool operator==(const PlannedShard& a, const PlannedShard& b);
};

struct Plan {
  std::vector<PlannedShard> shards;  // sorted by shard

  // One line per run of adjacent shards of a table with the same assignments, as in
  //   table 3 shards 0..2: rows [0, 375) columns [0, 64), 96000 bytes on 1 primary
  // Runs are for display only: the unit of placement and moves is the shard.
  std::string ToString() const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_PLAN_H_
