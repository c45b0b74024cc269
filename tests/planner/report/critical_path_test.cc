#include "planner/report/critical_path.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace critical_path_test {

TEST(CriticalPathOf, TakesTheSlowestOfEachTerm) {
  PlannerOutput plan;
  plan.servers.resize(3);
  plan.servers[0].perf = TablePerf{1, 20, 3, 40, 5};
  plan.servers[1].perf = TablePerf{10, 2, 30, 4, 50};
  EXPECT_EQ(CriticalPathOf(plan).comms_ms, 60);
  EXPECT_EQ(CriticalPathOf(plan).compute_ms, 40);
}

TEST(CriticalPathOf, WithoutCostsThereIsNone) {
  EXPECT_EQ(CriticalPathOf(PlannerOutput()).comms_ms, 0);
}

}  // namespace critical_path_test
}  // namespace hotbed
