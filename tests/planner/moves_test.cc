#include "planner/model/moves.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/planner/random_input.h"

namespace hotbed {
namespace moves_test {

PlannerOutput PlanOf(const PlannerInput& input) {
  PlannerOutput plan;
  for (const InputServer& server : input.topology.servers) {
    plan.servers.emplace_back();
    plan.servers.back().name = server.name;
  }
  for (const InputTable& table : input.tables) {
    plan.tables.emplace_back();
    plan.tables.back().name = table.name;
  }
  return plan;
}

void Own(PlannerOutput& plan, uint32_t table, uint32_t server, uint64_t first, uint64_t limit,
         Role role = Role::kPrimary) {
  PlacedRange range;
  range.server = server;
  range.role = role;
  range.row_first = first;
  range.row_limit = limit;
  range.column_limit = 4;
  plan.tables[table].ranges.push_back(range);
}

// Rows of 20 bytes: 4 weights and one number of state.
PlannerInput Servers(std::vector<uint64_t> rows_of_room) {
  PlannerInput input = EqualServers(static_cast<uint32_t>(rows_of_room.size()), 0, 0);
  for (size_t s = 0; s < rows_of_room.size(); ++s) {
    input.topology.servers[s].host_bytes = 20 * rows_of_room[s];
  }
  AddTable(input, "t", 100, 4, 1);
  return input;
}

TEST(MovesBetween, EqualPlansNeedNone) {
  const PlannerInput input = Servers({100, 100});
  PlannerOutput plan = PlanOf(input);
  Own(plan, 0, 0, 0, 60);
  Own(plan, 0, 1, 60, 100);
  const auto moves = MovesBetween(input, plan, plan);
  ASSERT_TRUE(moves.ok());
  EXPECT_TRUE(moves.value().empty());
}

TEST(MovesBetween, CutsAtTheEdgesOfBoth) {
  const PlannerInput input = Servers({100, 100});
  PlannerOutput current = PlanOf(input);
  Own(current, 0, 0, 0, 60);
  Own(current, 0, 1, 60, 100);
  PlannerOutput wanted = PlanOf(input);
  Own(wanted, 0, 0, 0, 50);
  Own(wanted, 0, 1, 50, 100);
  const auto moves = MovesBetween(input, current, wanted);
  ASSERT_TRUE(moves.ok());
  ASSERT_EQ(moves.value().size(), 1u);
  const PlannedMove& move = moves.value()[0];
  EXPECT_EQ(move.row_first, 50u);
  EXPECT_EQ(move.row_limit, 60u);
  EXPECT_EQ(move.from, "s0");
  EXPECT_EQ(move.to, "s1");
  EXPECT_EQ(move.bytes, 200u);
  EXPECT_EQ(move.reason, "the plan has it on s1");
}

TEST(MovesBetween, WhatFreesRoomGoesFirst) {
  // s1 is full: its piece has to leave for s2 before that of s0 can come.
  const PlannerInput input = Servers({60, 60, 60});
  PlannerOutput current = PlanOf(input);
  Own(current, 0, 0, 0, 40);
  Own(current, 0, 1, 40, 100);
  PlannerOutput wanted = PlanOf(input);
  Own(wanted, 0, 1, 0, 40);
  Own(wanted, 0, 2, 40, 100);
  const auto moves = MovesBetween(input, current, wanted);
  ASSERT_TRUE(moves.ok()) << moves.error().message;
  ASSERT_EQ(moves.value().size(), 2u);
  EXPECT_EQ(moves.value()[0].from, "s1");
  EXPECT_EQ(moves.value()[1].from, "s0");
}

TEST(MovesBetween, SaysWhatTwoFullServersLackToChangePlaces) {
  const PlannerInput input = Servers({50, 50});
  PlannerOutput current = PlanOf(input);
  Own(current, 0, 0, 0, 50);
  Own(current, 0, 1, 50, 100);
  PlannerOutput wanted = PlanOf(input);
  Own(wanted, 0, 1, 0, 50);
  Own(wanted, 0, 0, 50, 100);
  const auto moves = MovesBetween(input, current, wanted);
  ASSERT_FALSE(moves.ok());
  EXPECT_EQ(moves.error().kind, PlanErrorKind::kPartition);
  EXPECT_EQ(moves.error().missing_bytes, 1000u);
}

TEST(MovesBetween, ReplicasComeFromNowhereOrFromWhatLeaves) {
  PlannerInput input = Servers({100, 100, 100});
  PlannerOutput current = PlanOf(input);
  current.servers[2].name = "old";  // gone
  Own(current, 0, 0, 0, 100);
  Own(current, 0, 2, 0, 100, Role::kBackup);
  PlannerOutput wanted = PlanOf(input);
  Own(wanted, 0, 0, 0, 100);
  Own(wanted, 0, 1, 0, 100, Role::kBackup);
  const auto moves = MovesBetween(input, current, wanted);
  ASSERT_TRUE(moves.ok());
  ASSERT_EQ(moves.value().size(), 1u);
  EXPECT_EQ(moves.value()[0].from, "");
  EXPECT_EQ(moves.value()[0].to, "s1");
  EXPECT_EQ(moves.value()[0].reason, "old is gone");
}

// Any two random plans over servers with some room to spare: executed row by row by a dumb twin.
TEST(MovesBetween, ExecutedRowByRowTheyGiveTheWantedPlan) {
  const TestSeed seed(3);
  Random random(seed.value());
  int ordered = 0;
  for (int i = 0; i < 300; ++i) {
    const PlannerInput input = Servers({60, 60, 60, 40});
    std::vector<PlannerOutput> plans;
    std::vector<std::vector<uint32_t>> owner(2, std::vector<uint32_t>(100));
    for (int p = 0; p < 2; ++p) {
      plans.push_back(PlanOf(input));
      std::vector<uint64_t> room = {60, 60, 60, 40};
      for (uint64_t row = 0; row < 100;) {
        const uint32_t s = static_cast<uint32_t>(random.Uniform(4));
        const uint64_t rows = std::min({room[s], 1 + random.Uniform(20), 100 - row});
        if (rows == 0) continue;
        room[s] -= rows;
        Own(plans[p], 0, s, row, row + rows);
        for (uint64_t r = row; r < row + rows; ++r) owner[p][r] = s;
        row += rows;
      }
    }
    const auto moves = MovesBetween(input, plans[0], plans[1]);
    if (!moves.ok()) continue;
    ++ordered;
    std::map<uint32_t, int> rows_on;
    for (const uint32_t s : owner[0]) ++rows_on[s];
    for (const PlannedMove& move : moves.value()) {
      for (uint64_t r = move.row_first; r < move.row_limit; ++r) {
        ASSERT_EQ("s" + std::to_string(owner[0][r]), move.from);
        ++rows_on[move.to[1] - '0'];
      }
      ASSERT_LE(rows_on[move.to[1] - '0'], move.to == "s3" ? 40 : 60);
      for (uint64_t r = move.row_first; r < move.row_limit; ++r) {
        --rows_on[owner[0][r]];
        owner[0][r] = static_cast<uint32_t>(move.to[1] - '0');
      }
    }
    ASSERT_EQ(owner[0], owner[1]);
  }
  EXPECT_GT(ordered, 200);
}

}  // namespace moves_test
}  // namespace hotbed
