#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "planner/plan_by_cost.h"
#include "tests/common/sanitized.h"
#include "tests/common/test_seed.h"
#include "tests/planner/plan_checks.h"
#include "tests/planner/random_input.h"

namespace hotbed {
namespace cost_plan_test {

constexpr uint64_t kMiB = 1ull << 20;

TEST(PlanByCost, KeepsEveryRuleOnRandomInputs) {
  const TestSeed seed(20261121);
  Random random(seed.value());
  int plans = 0;
  int storage = 0;
  for (int i = 0; i < FewerIfSanitized(1000); ++i) {
    RandomInputLimits limits;
    limits.room_min = i % 3 == 0 ? 0.9 : 1.2;
    const PlannerInput input = RandomInput(random, limits);
    const PlanResult<PlannerOutput> plan = PlanByCost(input);
    SCOPED_TRACE(testing::Message() << "case " << i);
    if (plan.ok()) {
      ++plans;
      ASSERT_EQ(CheckPlan(input, plan.value()), "");
      EXPECT_LE(plan.value().cost.lower_bound_ms, plan.value().cost.max_server_ms * (1 + 1e-12));
    } else {
      ASSERT_NE(plan.error().kind, PlanErrorKind::kInput) << plan.error().message;
      storage += plan.error().kind == PlanErrorKind::kInsufficientStorage;
      if (plan.error().kind == PlanErrorKind::kInsufficientStorage) {
        EXPECT_GT(plan.error().missing_bytes.value_or(0), 0u) << plan.error().message;
      }
    }
  }
  // Else the test would check nothing.
  EXPECT_GT(plans, FewerIfSanitized(400));
  EXPECT_GT(storage, FewerIfSanitized(50));
}

TEST(PlanByCost, SameInputSamePlan) {
  const TestSeed seed(7);
  Random random(seed.value());
  for (int i = 0; i < 100; ++i) {
    const PlannerInput input = RandomInput(random, {});
    const PlanResult<PlannerOutput> a = PlanByCost(input);
    const PlanResult<PlannerOutput> b = PlanByCost(input);
    ASSERT_EQ(a.ok(), b.ok());
    if (a.ok()) {
      ASSERT_EQ(a.value(), b.value());
    }
  }
}

TEST(PlanByCost, ServersInAnotherOrderArePlannedAsWell) {
  const TestSeed seed(8);
  Random random(seed.value());
  for (int i = 0; i < FewerIfSanitized(300); ++i) {
    RandomInputLimits limits;
    limits.constraints = false;
    limits.room_min = 2;
    PlannerInput input = RandomInput(random, limits);
    const PlanResult<PlannerOutput> before = PlanByCost(input);
    std::shuffle(input.topology.servers.begin(), input.topology.servers.end(), random);
    const PlanResult<PlannerOutput> after = PlanByCost(input);
    SCOPED_TRACE(testing::Message() << "case " << i);
    ASSERT_EQ(before.ok(), after.ok());
    if (after.ok()) {
      ASSERT_EQ(CheckPlan(input, after.value()), "");
    }
  }
}

TEST(PlanByCost, SpreadsEqualTablesEvenly) {
  PlannerInput input = EqualServers(4, 1024 * kMiB, 0);
  for (int t = 0; t < 8; ++t) AddTable(input, "t" + std::to_string(t), 1000, 16, 5000);
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_LT(plan.value().cost.gap, 1e-3);
  for (const PlacedServer& server : plan.value().servers) {
    EXPECT_NEAR(server.perf->Total(), plan.value().cost.max_server_ms,
                plan.value().cost.max_server_ms * 0.001);
  }
}

TEST(PlanByCost, SaysHowManyBytesAreMissing) {
  PlannerInput input = EqualServers(2, 1 * kMiB, 2 * kMiB);
  const uint32_t t = AddTable(input, "big", 65536, 64, 100);
  input.tables[t].optimizer = PlannerOptimizer::kSgd;  // 16 MiB
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, PlanErrorKind::kInsufficientStorage);
  EXPECT_EQ(plan.error().missing_bytes, 10 * kMiB);
  EXPECT_EQ(plan.error().limit, 6 * kMiB);
}

TEST(PlanByCost, SaysWhatAnIndivisibleTableLacks) {
  PlannerInput input = EqualServers(2, 3 * kMiB, 0);
  const uint32_t t = AddTable(input, "whole", 16384, 64, 100);
  input.tables[t].optimizer = PlannerOptimizer::kSgd;  // 4 MiB of 6
  TableConstraint constraint;
  constraint.table = t;
  constraint.sharding = {Sharding::kTableWise};
  input.options.constraints.push_back(constraint);
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, PlanErrorKind::kInsufficientStorage);
  EXPECT_EQ(plan.error().table, "whole");
  EXPECT_EQ(plan.error().missing_bytes, 1 * kMiB);
  input.options.constraints.clear();
  EXPECT_TRUE(PlanByCost(input).ok());
}

TEST(PlanByCost, CutsHotRangesFinerAndSpreadsThem) {
  PlannerInput input = EqualServers(4, 1024 * kMiB, 0);
  const uint32_t t = AddTable(input, "user", 1000000, 64, 100000);
  input.tables[t].zipf = 1.05;
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  std::vector<PlacedRange> ranges = plan.value().tables[0].ranges;
  std::sort(ranges.begin(), ranges.end(),
            [](const PlacedRange& a, const PlacedRange& b) { return a.row_first < b.row_first; });
  EXPECT_LT(ranges[0].row_limit - ranges[0].row_first,
            (ranges.back().row_limit - ranges.back().row_first) / 4);
  std::set<uint32_t> hottest;
  for (int i = 0; i < 4; ++i) hottest.insert(ranges[i].server);
  EXPECT_GE(hottest.size(), 3u);
  EXPECT_LT(plan.value().cost.gap, 0.05);
}

TEST(PlanByCost, LeavesRoomForHotRowsWhereMemoryIsShort) {
  // Two hot tables and two cold ones; each server's memory holds one hot table. Both hot ones on
  // one server would spill.
  PlannerInput input = EqualServers(2, 5 * kMiB, 100 * kMiB);
  for (const char* name : {"hot0", "hot1", "cold0", "cold1"}) {
    const bool hot = std::string(name).substr(0, 3) == "hot";
    const uint32_t t = AddTable(input, name, hot ? 16384 : 65536, 64, hot ? 1000 : 1);
    TableConstraint constraint;
    constraint.table = t;
    constraint.sharding = {Sharding::kTableWise};
    input.options.constraints.push_back(constraint);
  }
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_NE(plan.value().tables[0].ranges[0].server, plan.value().tables[1].ranges[0].server);
  EXPECT_LT(plan.value().tables[0].perf->prefetch_ms, 0.01);
}

TEST(PlanByCost, ReplicasAvoidTheZoneWhereTheyCan) {
  PlannerInput input = EqualServers(4, 100 * kMiB, 0);
  input.topology.servers[0].zone = input.topology.servers[1].zone = "a";
  input.topology.servers[2].zone = input.topology.servers[3].zone = "b";
  const uint32_t t = AddTable(input, "t", 50000, 32, 1000);
  input.tables[t].replicas = 2;
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (const PlacedRange& a : plan.value().tables[0].ranges) {
    for (const PlacedRange& b : plan.value().tables[0].ranges) {
      if (a.row_first == b.row_first && a.role != b.role) {
        EXPECT_NE(a.server / 2, b.server / 2);
      }
    }
  }
}

// One zone (or host) of four servers has to hold a replica of each shard alone, and the others
// cannot help it: the bound knows, and the explanation says so.
TEST(PlanByCost, TheBoundKnowsWhereReplicasCannotBe) {
  for (const bool zones : {true, false}) {
    PlannerInput input = EqualServers(4, 100 * kMiB, 0);
    for (uint32_t s = 0; s < 4; ++s) {
      InputServer& server = input.topology.servers[s];
      (zones ? server.zone : server.host) = s == 2 ? "alone" : "others";
    }
    const uint32_t t = AddTable(input, "t", 50000, 32, 1000);
    input.tables[t].replicas = 2;
    const PlanResult<PlannerOutput> plan = PlanByCost(input);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const PlanCost& cost = plan.value().cost;
    EXPECT_LT(cost.gap, 0.02) << cost.max_server_ms << " ms, bound " << cost.lower_bound_ms;
    EXPECT_GE(cost.max_server_ms, cost.lower_bound_ms);
    EXPECT_EQ(cost.binding.substr(0, cost.binding.find(':')),
              zones ? "zones of the replicas" : "hosts of the replicas");
    // All work over all servers would be far less: that is what was reported before.
    double work = 0;
    for (const PlacedServer& server : plan.value().servers) work += server.perf->Total();
    EXPECT_GT(cost.lower_bound_ms, 1.1 * work / 4);
  }
}

TEST(PlanByCost, ZonesThatCannotBeKeptAreNoBound) {
  // Zone b has room for a part of the replicas only.
  PlannerInput input = EqualServers(3, 100 * kMiB, 0);
  input.topology.servers[0].zone = input.topology.servers[1].zone = "a";
  input.topology.servers[2].zone = "b";
  input.topology.servers[2].host_bytes = 2 * kMiB;
  const uint32_t t = AddTable(input, "t", 50000, 32, 1000);
  input.tables[t].replicas = 2;
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan.value().cost.binding.find("zones"), std::string::npos);
  EXPECT_GE(plan.value().cost.max_server_ms, plan.value().cost.lower_bound_ms);
}

TEST(PlanByCost, RefusesMoreReplicasThanHosts) {
  PlannerInput input = EqualServers(2, 100 * kMiB, 0);
  input.topology.servers[1].host = "s0";
  const uint32_t t = AddTable(input, "t", 50000, 32, 1000);
  input.tables[t].replicas = 2;
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, PlanErrorKind::kStrictConstraints);
  EXPECT_EQ(plan.error().limit, 1u);
}

TEST(PlanByCost, RefusesColumnSlicesOfWholeRows) {
  PlannerInput input = EqualServers(2, 100 * kMiB, 0);
  const uint32_t t = AddTable(input, "t", 50000, 64, 1000);
  TableConstraint constraint;
  constraint.table = t;
  constraint.sharding = {Sharding::kColumnWise};
  input.options.constraints.push_back(constraint);
  const PlanResult<PlannerOutput> refused = PlanByCost(input);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, PlanErrorKind::kStrictConstraints);
  input.tables[t].row_statistics = RowStatistics::kSlice;
  const PlanResult<PlannerOutput> plan = PlanByCost(input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan.value().tables[0].sharding, Sharding::kColumnWise);
}

// Numbers at the ends of what ValidateInput lets through: a plan or an error, and nothing undefined
// (the sanitizer builds run this too).
TEST(PlanByCost, SurvivesExtremeNumbers) {
  const TestSeed seed(9);
  Random random(seed.value());
  int plans = 0;
  for (int i = 0; i < 400; ++i) {
    RandomInputLimits limits;
    limits.tables_max = 3;
    PlannerInput input = RandomInput(random, limits);
    for (InputTable& table : input.tables) {
      if (random.OneIn(2)) table.rows = uint64_t{1} << random.Uniform(60);
      if (random.OneIn(4)) table.dim = 1u << random.Uniform(24);
      if (random.OneIn(4)) table.reads_per_step = 1e300;
      if (random.OneIn(4)) table.zipf = random.OneIn(2) ? 1e-9 : 50;
      if (random.OneIn(4)) table.hotness = {{1e-300, 1e-300}, {1e-299, 1.0}, {1.0, 1.0}};
    }
    for (InputServer& server : input.topology.servers) {
      if (random.OneIn(2)) server.host_bytes = uint64_t{1} << (40 + random.Uniform(23));
      if (random.OneIn(4)) server.spill_bytes = INT64_MAX;
      if (random.OneIn(8)) server.load = 1e300;
      if (random.OneIn(8)) server.host_bytes = server.spill_bytes = 0;
    }
    if (random.OneIn(4)) input.topology.bandwidth.inter_host = 1e-300;
    if (random.OneIn(4)) input.topology.bandwidth.spill = 1e300;
    if (random.OneIn(4)) input.workload = {uint64_t{1} << 62, UINT32_MAX};
    if (random.OneIn(4)) input.options.evaluations_max = 0;
    SCOPED_TRACE(testing::Message() << "case " << i);
    const PlanResult<PlannerOutput> plan = PlanByCost(input);
    if (!plan.ok()) continue;
    ++plans;
    ASSERT_EQ(CheckCapacities(input, plan.value()), "");
    ASSERT_EQ(CheckOwners(input, plan.value()), "");
    ASSERT_TRUE(std::isfinite(plan.value().cost.max_server_ms));
    ASSERT_TRUE(std::isfinite(plan.value().cost.gap));
    input.current = plan.value();
    const PlanResult<PlannerOutput> again = PlanByCost(input);
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_EQ(CheckMoves(input, again.value()), "");
  }
  EXPECT_GT(plans, 100);
}

}  // namespace cost_plan_test
}  // namespace hotbed
