#include "planner/rebalance/rebalance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/random.h"
#include "planner/plan_by_cost.h"
#include "tests/common/sanitized.h"
#include "tests/common/test_seed.h"
#include "tests/planner/plan_checks.h"
#include "tests/planner/random_input.h"

namespace hotbed {
namespace rebalance_test {

constexpr uint64_t kMiB = 1ull << 20;

PlannerInput FourServersEightTables() {
  PlannerInput input = EqualServers(4, 400 * kMiB, 0);
  for (int t = 0; t < 8; ++t) {
    AddTable(input, "t" + std::to_string(t), 100000 + 1000 * t, 64, 2000);
  }
  return input;
}

PlannerOutput MustPlan(const PlannerInput& input) {
  PlanResult<PlannerOutput> plan = PlanByCost(input);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.ok() ? plan.value() : PlannerOutput{};
}

uint64_t MovedBytes(const PlannerOutput& plan) {
  uint64_t bytes = 0;
  for (const PlannedMove& move : plan.moves) bytes += move.bytes;
  return bytes;
}

uint64_t BytesOn(const PlannerOutput& plan, uint32_t server) {
  const TierBytes& tiers = plan.servers[server].bytes;
  return tiers.device + tiers.host + tiers.spill;
}

TEST(Rebalance, APlanThatIsGoodEnoughMovesNothing) {
  PlannerInput input = FourServersEightTables();
  input.current = MustPlan(input);
  const PlannerOutput again = MustPlan(input);
  EXPECT_TRUE(again.moves.empty());
  EXPECT_EQ(again.tables, input.current->tables);
}

TEST(Rebalance, DrainingMovesWhatIsThereAndNoMore) {
  PlannerInput input = FourServersEightTables();
  input.current = MustPlan(input);
  const uint64_t there = BytesOn(*input.current, 3);
  input.topology.servers[3].draining = true;
  const PlannerOutput plan = MustPlan(input);
  EXPECT_EQ(CheckPlan(input, plan), "");
  EXPECT_EQ(CheckMoves(input, plan), "");
  EXPECT_EQ(BytesOn(plan, 3), 0u);
  EXPECT_LE(MovedBytes(plan), there + there / 10);
  EXPECT_EQ(plan.moves.front().reason, "s3 is draining");
}

TEST(Rebalance, AddingAServerMovesAboutItsShare) {
  PlannerInput input = FourServersEightTables();
  input.current = MustPlan(input);
  uint64_t total = 0;
  for (uint32_t s = 0; s < 4; ++s) total += BytesOn(*input.current, s);
  InputServer server = input.topology.servers[0];
  server.name = server.host = "s4";
  input.topology.servers.push_back(server);
  const PlannerOutput plan = MustPlan(input);
  EXPECT_EQ(CheckPlan(input, plan), "");
  EXPECT_EQ(CheckMoves(input, plan), "");
  EXPECT_LT(plan.cost.gap, 0.06);
  EXPECT_GT(MovedBytes(plan), total / 5 * 8 / 10);
  EXPECT_LT(MovedBytes(plan), total / 5 * 11 / 10);
  for (const PlannedMove& move : plan.moves) {
    EXPECT_EQ(move.to, "s4");
    EXPECT_TRUE(absl::StrContains(move.reason, "the slowest")) << move.reason;
  }
}

TEST(Rebalance, ALostServerIsReplacedFromNowhere) {
  PlannerInput input = FourServersEightTables();
  input.current = MustPlan(input);
  input.topology.servers.erase(input.topology.servers.begin() + 1);
  const PlannerOutput plan = MustPlan(input);
  EXPECT_EQ(CheckPlan(input, plan), "");
  EXPECT_EQ(CheckMoves(input, plan), "");
  EXPECT_EQ(MovedBytes(plan), BytesOn(*input.current, 1));
  for (const PlannedMove& move : plan.moves) {
    EXPECT_EQ(move.from, "");
    EXPECT_EQ(move.reason, "s1 is gone");
  }
}

TEST(Rebalance, ABackupTakesOverWithoutAMove) {
  PlannerInput input = FourServersEightTables();
  for (InputTable& table : input.tables) table.replicas = 2;
  input.current = MustPlan(input);
  input.topology.servers.erase(input.topology.servers.begin() + 1);
  const PlannerOutput plan = MustPlan(input);
  EXPECT_EQ(CheckPlan(input, plan), "");
  EXPECT_EQ(CheckMoves(input, plan), "");
  // As many bytes as were lost, and not the primaries' twice.
  uint64_t again = 0;
  for (const PlannedMove& move : plan.moves) {
    if (move.reason == "s1 is gone") again += move.bytes;
  }
  EXPECT_EQ(again, BytesOn(*input.current, 1));
}

TEST(Rebalance, TheDialLimitsWhatMayMove) {
  PlannerInput input = FourServersEightTables();
  input.current = MustPlan(input);
  InputServer server = input.topology.servers[0];
  server.name = server.host = "s4";
  input.topology.servers.push_back(server);
  const uint64_t unlimited = MovedBytes(MustPlan(input));
  input.options.move_bytes_max = unlimited / 2;
  const PlannerOutput half = MustPlan(input);
  EXPECT_LE(MovedBytes(half), unlimited / 2);
  EXPECT_GT(MovedBytes(half), unlimited / 4);
  input.options.move_bytes_max = 0;
  EXPECT_TRUE(MustPlan(input).moves.empty());
}

TEST(Rebalance, TheDialNeverLeavesADrainingServerHalfFull) {
  PlannerInput input = FourServersEightTables();
  input.current = MustPlan(input);
  const uint64_t there = BytesOn(*input.current, 3);
  input.topology.servers[3].draining = true;
  input.options.move_bytes_max = there - 10;
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, PlanErrorKind::kStrictConstraints);
  EXPECT_EQ(plan.error().missing_bytes, 10u);
}

TEST(Rebalance, DrainingWithoutRoomSaysWhatIsMissing) {
  PlannerInput input = EqualServers(2, 30 * kMiB, 0);
  const uint32_t t = AddTable(input, "t", 163840, 64, 100);
  input.tables[t].optimizer = PlannerOptimizer::kSgd;  // 40 MiB
  input.current = MustPlan(input);
  input.topology.servers[0].draining = true;
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, PlanErrorKind::kInsufficientStorage);
  EXPECT_EQ(plan.error().missing_bytes, 10 * kMiB);
}

TEST(Rebalance, ARangeOfAnotherStrategyIsRefinedFirst) {
  PlannerInput input = EqualServers(2, 400 * kMiB, 0);
  AddTable(input, "t", 100000, 64, 1000);
  PlannerOutput current;
  current.servers.resize(2);
  current.servers[0].name = "s0";
  current.servers[1].name = "s1";
  current.tables.resize(1);
  current.tables[0].name = "t";
  PlacedRange whole;
  whole.row_limit = 100000;
  whole.column_limit = 64;
  current.tables[0].ranges = {whole};
  input.current = current;
  const PlannerOutput plan = MustPlan(input);
  EXPECT_EQ(CheckPlan(input, plan), "");
  EXPECT_EQ(plan.tables[0].ranges.size(), 8u);
  EXPECT_EQ(plan.moves.size(), 4u);
}

// The changes allowed between a plan and the next one.
void Disturb(Random& random, PlannerInput& input) {
  std::vector<InputServer>& servers = input.topology.servers;
  for (uint64_t i = 1 + random.Uniform(2); i > 0; --i) {
    InputServer& server = servers[random.Uniform(servers.size())];
    switch (random.Uniform(7)) {
      case 0:
        server.draining = !server.draining;
        break;
      case 1:
        server.load += random.Double();
        break;
      case 2:
        server.host_bytes -= server.host_bytes / 8;
        break;
      case 3:
        if (servers.size() > 1) servers.erase(servers.begin() + random.Uniform(servers.size()));
        break;
      case 4: {
        InputServer added = server;
        added.name = added.host = "added" + std::to_string(servers.size());
        servers.push_back(added);
        break;
      }
      case 5:
        AddTable(input, "new", 1 + random.Uniform(20000), 16, 1000);
        break;
      default:
        input.tables[0].reads_per_step *= 10;
        break;
    }
  }
}

TEST(Rebalance, KeepsEveryRuleAndItsMovesCanBeExecuted) {
  const TestSeed seed(20261122);
  Random random(seed.value());
  int plans = 0;
  int moved = 0;
  int errors = 0;
  for (int i = 0; i < FewerIfSanitized(800); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    RandomInputLimits limits;
    limits.room_min = 1.3;
    limits.servers_max = 6;
    limits.constraints = i % 2 == 0;
    PlannerInput input = RandomInput(random, limits);
    const PlanResult<PlannerOutput> first = PlanByCost(input);
    if (!first.ok()) continue;
    input.current = first.value();
    // Pins are by index, so servers keep theirs.
    if (input.options.constraints.empty()) {
      Disturb(random, input);
    } else {
      input.topology.servers[random.Uniform(input.topology.servers.size())].draining = true;
    }
    if (random.OneIn(4)) input.options.move_bytes_max = random.Uniform(30000000);
    const PlanResult<PlannerOutput> plan = PlanByCost(input);
    if (!plan.ok()) {
      ++errors;
      EXPECT_NE(plan.error().kind, PlanErrorKind::kInput);
      continue;
    }
    ++plans;
    moved += !plan.value().moves.empty();
    ASSERT_EQ(CheckPlan(input, plan.value()), "");
    ASSERT_EQ(CheckMoves(input, plan.value()), "");
    if (input.options.move_bytes_max.has_value()) {
      ASSERT_LE(MovedBytes(plan.value()), *input.options.move_bytes_max);
    }
  }
  printf("%d plans, %d of them with moves, %d errors\n", plans, moved, errors);
  EXPECT_GT(plans, FewerIfSanitized(250));
  EXPECT_GT(moved, FewerIfSanitized(150));
}

// One server of a cluster drains; the others end about as fast as in a plan from nothing. With
// little room to spare, single moves get stuck where two units could change places.
TEST(Rebalance, DrainsEndNearAPlanFromNothing) {
  const TestSeed seed(20261126);
  Random random(seed.value());
  std::vector<double> slower;
  size_t swaps = 0;
  for (int i = 0; i < FewerIfSanitized(600); ++i) {
    RandomInputLimits limits;
    limits.servers_max = 6;
    limits.constraints = false;
    PlannerInput input = RandomInput(random, limits);
    const PlanResult<PlannerOutput> first = PlanByCost(input);
    std::vector<InputServer>& servers = input.topology.servers;
    if (!first.ok() || servers.size() < 2) continue;
    servers[random.Uniform(servers.size())].draining = true;
    const PlanResult<PlannerOutput> from_nothing = PlanByCost(input);
    input.current = first.value();
    const PlanResult<PlannerOutput> plan = PlanByCost(input);
    if (!plan.ok() || !from_nothing.ok()) continue;
    slower.push_back(plan.value().cost.max_server_ms / from_nothing.value().cost.max_server_ms);
    for (const PlannedMove& move : plan.value().moves) {
      swaps += absl::StartsWith(move.reason, "a swap that relieves");
    }
  }
  ASSERT_GT(slower.size(), FewerIfSanitized(150));
  std::sort(slower.begin(), slower.end());
  const auto at = [&](double part) {
    return slower[static_cast<size_t>(part * static_cast<double>(slower.size() - 1))];
  };
  printf(
      "%zu drains, times of a plan from nothing: median %.4f, ninth decile %.4f, worst %.4f; "
      "%zu moves of swaps\n",
      slower.size(), at(0.5), at(0.9), at(1), swaps);
  EXPECT_GT(swaps, 0u);
  // By single moves alone they are 1.0152 and 1.2336.
  if (FewerIfSanitized(600) == 600) {
    EXPECT_LT(at(0.5), 1.012);
    EXPECT_LT(at(0.9), 1.18);
  }
}

}  // namespace rebalance_test
}  // namespace hotbed
