#include "planner/model/plan.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace plan_test {

PlannedShard Shard(uint32_t index, uint64_t first, uint64_t limit, ServerId server) {
  return {.shard = {3, index},
          .range = {first, limit, 0, 8},
          .bytes = (limit - first) * 36,
          .weight_bytes = (limit - first) * 32,
          .assignments = {{server, Role::kPrimary}}};
}

Plan Example() { return {{Shard(0, 0, 10, 1), Shard(1, 10, 20, 1), Shard(2, 20, 29, 2)}}; }

TEST(Plan, PrintsRunsOfAdjacentShards) {
  EXPECT_EQ(Example().ToString(),
            "table 3 shards 0..1: rows [0, 20) columns [0, 8), 720 bytes on 1 primary\n"
            "table 3 shards 2..2: rows [20, 29) columns [0, 8), 324 bytes on 2 primary\n");
  EXPECT_EQ(Plan().ToString(), "");
}

TEST(Plan, PrintsEveryRole) {
  Plan plan{{Shard(0, 0, 10, 1)}};
  plan.shards[0].assignments.push_back({2, Role::kBackup});
  plan.shards[0].assignments.push_back({3, Role::kReplica});
  EXPECT_EQ(plan.ToString(),
            "table 3 shards 0..0: rows [0, 10) columns [0, 8), 360 bytes on 1 primary 2 backup 3 "
            "replica\n");
}

TEST(Plan, ComparesByValue) {
  EXPECT_EQ(Example(), Example());
  for (const auto& change : {+[](PlannedShard* s) { s->range.limit = 11; },
                             +[](PlannedShard* s) { s->range.column_limit = 7; },
                             +[](PlannedShard* s) { s->bytes += 1; },
                             +[](PlannedShard* s) { s->assignments[0].server = 9; },
                             +[](PlannedShard* s) { s->assignments[0].role = Role::kReplica; }}) {
    Plan other = Example();
    change(&other.shards[0]);
    EXPECT_FALSE(other == Example());
  }
}

}  // namespace plan_test
}  // namespace hotbed
