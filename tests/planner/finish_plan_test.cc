#include "planner/model/finish_plan.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "planner/model/context_hash.h"
#include "planner/model/fused_groups.h"
#include "planner/model/plan_names.h"

namespace hotbed {
namespace finish_plan_test {

// Two servers; a table of 10 rows x 4 columns, and a hashed one of 1000 expected rows x 4.
PlannerInput Input() {
  PlannerInput input;
  input.tables = {{.name = "a", .rows = 10, .dim = 4, .optimizer = PlannerOptimizer::kAdam},
                  {.name = "b", .rows = 1000, .dim = 4, .hashed = true}};
  input.features = {
      {.name = "f", .table = 1}, {.name = "g", .table = 0}, {.name = "h", .table = 1}};
  input.topology.servers = {{.name = "s0", .host_bytes = 1 << 20}, {.name = "s1"}};
  return input;
}

PlacedRange Range(uint32_t server, uint64_t first, uint64_t limit, uint32_t column_limit) {
  return {.server = server, .row_first = first, .row_limit = limit, .column_limit = column_limit};
}

PlannerOutput Ranges() {
  PlannerOutput plan;
  plan.tables = {{.name = "a", .ranges = {Range(1, 5, 10, 4), Range(0, 0, 5, 4)}},
                 {.name = "b", .ranges = {Range(0, 0, 65536, 4)}}};
  plan.tables[0].ranges.push_back(Range(1, 0, 5, 4));
  plan.tables[0].ranges.back().role = Role::kReplica;
  return plan;
}

TEST(FinishPlan, MeasuresAndSorts) {
  PlannerOutput plan = Ranges();
  FinishPlan(Input(), &plan);
  const auto& ranges = plan.tables[0].ranges;
  EXPECT_EQ(ranges[0].server, 0u);
  EXPECT_EQ(ranges[1].role, Role::kReplica);
  EXPECT_EQ(ranges[2].row_first, 5u);
  EXPECT_EQ(ranges[0].elements, 20u);
  EXPECT_EQ(ranges[0].weight_bytes, 80u);
  EXPECT_EQ(ranges[0].bytes, 240u) << "Adam keeps two moments";
  const PlacedRange& hashed = plan.tables[1].ranges[0];
  EXPECT_EQ(hashed.elements, 4000u);
  EXPECT_EQ(hashed.bytes, 1000u * (16 + 4 + 14)) << "weights, row-wise statistic, index";
  EXPECT_EQ(plan.servers[0].elements, 4020u);
  EXPECT_EQ(plan.servers[0].bytes.host, 34240u);
  EXPECT_EQ(plan.servers[1].elements, 40u) << "a replica takes room too";
  EXPECT_EQ(plan.strategy, "cost");
  EXPECT_EQ(plan.servers[1].name, "s1");
  EXPECT_EQ(plan.context_hash, ContextHash(Input()));
}

TEST(FinishPlan, KeepsWhatTheStrategyHasSet) {
  PlannerOutput plan = Ranges();
  plan.strategy = "mine";
  plan.servers.resize(2);
  plan.servers[0].bytes.device = 7;
  plan.tables[0].ranges[0].elements = 1;
  plan.tables[0].ranges[0].bytes = 2;
  FinishPlan(Input(), &plan);
  EXPECT_EQ(plan.strategy, "mine");
  EXPECT_EQ(plan.servers[0].bytes.device, 7u);
  EXPECT_EQ(plan.servers[0].bytes.host, 0u);
  EXPECT_EQ(plan.tables[0].ranges[2].bytes, 2u);
  const PlannerOutput once = plan;
  FinishPlan(Input(), &plan);
  EXPECT_TRUE(plan == once) << "finished twice is finished";
}

TEST(FinishPlan, FusesPrimariesByWidthAndCombiner) {
  PlannerOutput plan = Ranges();
  FinishPlan(Input(), &plan);
  EXPECT_EQ(plan.servers[0].groups, std::vector<FusedGroup>({{4, "sum", {"a", "b"}, {0, 5}}}));
  EXPECT_EQ(plan.servers[1].groups, std::vector<FusedGroup>({{4, "sum", {"a"}, {0}}}));
}

TEST(FinishPlan, OutputsStandInTheFeaturesOrder) {
  PlannerOutput plan = Ranges();
  FinishPlan(Input(), &plan);
  ASSERT_EQ(plan.outputs.size(), 3u);
  EXPECT_EQ(plan.outputs[2], (FeatureOutput{"h", "b", 4, 8}));
}

TEST(FusedGroups, GroupsAreInTheOrderOfTheirFirst) {
  FusedGroups groups(1);
  InputTable sum{.name = "sum"};
  InputTable mean{.name = "mean", .combiner = PlannerCombiner::kMean};
  groups.Add(0, sum, 2, 10);
  groups.Add(0, mean, 2, 3);
  groups.Add(0, sum, 1, 5);
  groups.Add(0, sum, 2, 7);
  groups.Add(0, sum, 2, 1);
  PlannerOutput plan;
  plan.servers.resize(1);
  groups.MoveTo(&plan);
  EXPECT_EQ(plan.servers[0].groups,
            std::vector<FusedGroup>({{2, "sum", {"sum", "sum", "sum"}, {0, 10, 17}},
                                     {2, "mean", {"mean"}, {0}},
                                     {1, "sum", {"sum"}, {0}}}));
}

TEST(PlanNames, EveryValueHasAWord) {
  for (size_t kind = 0; kind < kOptimizerWords.size(); ++kind) {
    EXPECT_EQ(absl::StrReplaceAll(PlanWord(static_cast<PlannerOptimizer>(kind)), {{"_", "-"}}),
              kOptimizerWords[kind]);
  }
  EXPECT_STREQ(PlanWord(Sharding::kTableColumnWise), "table_column_wise");
  EXPECT_STREQ(PlanWord(PlanErrorKind::kPartition), "partition");
  EXPECT_STREQ(PlanWord(static_cast<PlannerStrategy>(99)), "unknown");
}

}  // namespace finish_plan_test
}  // namespace hotbed
