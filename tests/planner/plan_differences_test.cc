#include "planner/model/plan_differences.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace plan_differences_test {

PlannerOutput OutputOf(std::vector<std::string> servers, std::vector<PlacedRange> ranges) {
  PlannerOutput plan;
  for (std::string& name : servers) plan.servers.push_back({.name = std::move(name)});
  plan.tables = {{.name = "t", .ranges = std::move(ranges)}};
  return plan;
}

// 80 bytes for 10 rows of 4 columns.
PlacedRange Range(uint32_t server, uint64_t first, uint64_t limit, uint32_t column_first = 0,
                  uint32_t column_limit = 4) {
  PlacedRange range{.server = server,
                    .row_first = first,
                    .row_limit = limit,
                    .column_first = column_first,
                    .column_limit = column_limit};
  range.bytes = (limit - first) * (column_limit - column_first) * 2;
  return range;
}

TEST(PlanDifferences, RectanglesThatChangeTheirServer) {
  const auto before = OutputOf({"a", "b"}, {Range(0, 0, 10), Range(1, 10, 20)});
  const auto after = OutputOf({"b", "c"}, {Range(0, 0, 20, 0, 2), Range(1, 0, 20, 2, 4)});
  const auto moves = PlanDifferences(before, after, "why");
  ASSERT_EQ(moves.size(), 3u);
  EXPECT_EQ(moves[0], (PlannedMove{"t", 0, 10, 0, 2, "", "b", 40, "why"})) << "a is gone";
  EXPECT_EQ(moves[1], (PlannedMove{"t", 0, 10, 2, 4, "", "c", 40, "why"}));
  EXPECT_EQ(moves[2], (PlannedMove{"t", 10, 20, 2, 4, "b", "c", 40, "why"}));
}

TEST(PlanDifferences, SameServersUnderOtherNumbersStay) {
  const auto before = OutputOf({"a", "b"}, {Range(0, 0, 10), Range(1, 10, 20)});
  const auto after = OutputOf({"b", "a"}, {Range(0, 10, 20), Range(1, 0, 5), Range(1, 5, 10)});
  EXPECT_TRUE(PlanDifferences(before, after, "").empty());
}

TEST(PlanDifferences, OnlyPrimariesOfKnownTables) {
  auto before = OutputOf({"a", "b"}, {Range(0, 0, 10), Range(1, 0, 10)});
  before.tables[0].ranges[1].role = Role::kReplica;
  auto after = OutputOf({"a", "b"}, {Range(0, 0, 10)});
  after.tables.push_back({.name = "new", .ranges = {Range(1, 0, 10)}});
  EXPECT_TRUE(PlanDifferences(before, after, "").empty());
}

}  // namespace plan_differences_test
}  // namespace hotbed
