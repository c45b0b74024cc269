#include "planner/sources/plan_by_slices.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "planner/sources/check_plan.h"
#include "tests/common/test_seed.h"
#include "tests/planner/sources/source_cases.h"

namespace hotbed {
namespace plan_by_slices_test {

using WidthMaps = std::vector<std::map<uint32_t, uint32_t>>;

constexpr auto kBasic = PlannerStrategy::kBasic;
constexpr auto kBalanced = PlannerStrategy::kMemoryBalanced;
constexpr auto kOptimized = PlannerStrategy::kMemoryOptimized;

PlanError Refusal(const PlannerInput& input) {
  const PlanResult<PlannerOutput> plan = ComputePlan(input);
  EXPECT_FALSE(plan.ok());
  return plan.ok() ? PlanError() : plan.error();
}

const std::vector<Shape>& MergeCase() {
  static const auto* const kShapes = new std::vector<Shape>{{100, 8}, {5, 8}, {10, 8}, {25, 4}};
  return *kShapes;
}

TEST(PlanBySlices, MergesSlicesOfATableOnAServer) {
  const auto basic = Planned(SourceInput(MergeCase(), 4, kBasic, 45));
  EXPECT_EQ(Loads(basic), std::vector<uint64_t>({265, 265, 265, 225}));
  const auto balanced = Planned(SourceInput(MergeCase(), 4, kBalanced, 45));
  EXPECT_EQ(Loads(balanced), std::vector<uint64_t>({250, 265, 265, 240}));
  EXPECT_EQ(Widths(balanced), WidthMaps({{{0, 2}, {3, 2}},
                                         {{0, 2}, {3, 1}, {1, 8}},
                                         {{0, 2}, {3, 1}, {2, 4}},
                                         {{0, 2}, {2, 4}}}));
  const auto optimized = Planned(SourceInput(MergeCase(), 4, kOptimized, 45));
  EXPECT_EQ(Loads(optimized), std::vector<uint64_t>({240, 250, 265, 265}));
}

TEST(PlanBySlices, DuplicateWorkers) {
  const std::vector<Shape> shapes = {{10, 4}, {11, 2}, {4, 2}, {4, 2}};
  const auto basic = Planned(SourceInput(shapes, 4, kBasic, 10));
  EXPECT_EQ(Loads(basic), std::vector<uint64_t>({21, 21, 18, 18}));
  for (const PlannerStrategy strategy : {kBalanced, kOptimized}) {
    const auto plan = Planned(SourceInput(shapes, 4, strategy, 10));
    EXPECT_EQ(Loads(plan), std::vector<uint64_t>({19, 19, 20, 20}));
    ASSERT_EQ(plan.tables[0].ranges.size(), 2u);
    EXPECT_EQ(plan.tables[0].ranges[0].column_limit, 2u);
    EXPECT_EQ(plan.tables[0].ranges[1].column_first, 2u);
    EXPECT_EQ(plan.tables[0].sharding, Sharding::kColumnWise);
    EXPECT_EQ(plan.tables[2].sharding, Sharding::kTableWise);
  }
}

TEST(PlanBySlices, FusesEqualWidths) {
  const std::vector<Shape> shapes = {{10, 2}, {11, 2}, {4, 2}, {4, 2},
                                     {10, 2}, {11, 2}, {4, 2}, {4, 2}};
  const auto basic = Planned(SourceInput(shapes, 4, kBasic));
  EXPECT_EQ(Loads(basic), std::vector<uint64_t>({40, 44, 16, 16}));
  const auto plan = Planned(SourceInput(shapes, 4, kBalanced));
  EXPECT_EQ(Loads(plan), std::vector<uint64_t>({30, 30, 28, 28}));
  for (const PlacedServer& server : plan.servers) EXPECT_EQ(server.groups.size(), 1u);
  EXPECT_EQ(plan.servers[0].groups[0], (FusedGroup{2, "sum", {"t5", "t2"}, {0, 11}}));
}

TEST(PlanBySlices, FusesByCombinerToo) {
  PlannerInput input = SourceInput({{10, 2}, {11, 2}, {12, 2}}, 1, kBasic);
  input.tables[1].combiner = PlannerCombiner::kMean;
  const auto plan = Planned(input);
  ASSERT_EQ(plan.servers[0].groups.size(), 2u);
  EXPECT_EQ(plan.servers[0].groups[0], (FusedGroup{2, "sum", {"t0", "t2"}, {0, 10}}));
  EXPECT_EQ(plan.servers[0].groups[1], (FusedGroup{2, "mean", {"t1"}, {0}}));
}

// The source divides the columns again by the number of holders when weights are set, and reads
// table 1 as 2 and 1 columns.
TEST(PlanBySlices, KeepsMergedWidths) {
  const auto four = Planned(SourceInput({{5, 3}, {11, 3}, {3, 8}, {6, 6}}, 4, kBalanced, 10));
  std::vector<uint32_t> widths;
  for (const PlacedRange& range : four.tables[1].ranges) {
    widths.push_back(range.column_limit - range.column_first);
  }
  EXPECT_EQ(widths, std::vector<uint32_t>({1, 2}));
  const auto three = Planned(SourceInput({{12, 6}, {6, 6}, {9, 5}}, 3, kBalanced, 20));
  std::vector<std::vector<uint32_t>> all;
  for (const PlacedTable& table : three.tables) {
    all.emplace_back();
    for (const PlacedRange& range : table.ranges) {
      all.back().push_back(range.column_limit - range.column_first);
    }
  }
  EXPECT_EQ(all[2], std::vector<uint32_t>({4, 1}));
}

// The source shortens the output of the input whose number is the merged table's: here of input 0,
// of table 1, for the merge of table 0.
TEST(PlanBySlices, SharedTablesHaveRightOutputWidthsAfterAMerge) {
  PlannerInput input = SourceInput({{10, 4}, {11, 2}, {4, 2}, {4, 2}}, 4, kBalanced, 10);
  input.features = {{.name = "a", .table = 1},
                    {.name = "b", .table = 0},
                    {.name = "c", .table = 2},
                    {.name = "d", .table = 0},
                    {.name = "e", .table = 3}};
  const auto plan = Planned(input);
  ASSERT_EQ(plan.outputs.size(), 5u);
  EXPECT_EQ(plan.outputs[0], (FeatureOutput{"a", "t1", 2, 0}));
  EXPECT_EQ(plan.outputs[1], (FeatureOutput{"b", "t0", 4, 2}));
  EXPECT_EQ(plan.outputs[2], (FeatureOutput{"c", "t2", 2, 6}));
  EXPECT_EQ(plan.outputs[3], (FeatureOutput{"d", "t0", 4, 8}));
  EXPECT_EQ(plan.outputs[4], (FeatureOutput{"e", "t3", 2, 12}));
}

TEST(PlanBySlices, ThresholdsChooseTheSharding) {
  PlannerInput input = SourceInput({{10, 1}, {100, 1}, {1000, 1}}, 4, kBasic);
  input.options.data_parallel_threshold = 10;
  input.options.row_slice_threshold = 1000;
  const auto plan = Planned(input);
  EXPECT_EQ(plan.tables[0].sharding, Sharding::kDataParallel);
  ASSERT_EQ(plan.tables[0].ranges.size(), 4u);
  EXPECT_EQ(plan.tables[0].ranges[0].role, Role::kPrimary);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(plan.tables[0].ranges[i].role, Role::kReplica);
  EXPECT_EQ(plan.tables[1].sharding, Sharding::kTableWise);
  EXPECT_EQ(plan.tables[2].sharding, Sharding::kRowWise);
  EXPECT_EQ(plan.tables[2].ranges[3].row_first, 750u);
}

TEST(PlanBySlices, RowSlicesTakeTheRemainderFirst) {
  PlannerInput input = SourceInput({{10, 1}, {3, 1}, {1, 1}}, 4, kBasic);
  input.options.row_slice_threshold = 3;
  const auto plan = Planned(input);
  std::vector<uint64_t> firsts;
  for (const PlacedRange& range : plan.tables[0].ranges) firsts.push_back(range.row_first);
  EXPECT_EQ(firsts, std::vector<uint64_t>({0, 3, 6, 8}));
  EXPECT_EQ(plan.tables[1].ranges.size(), 3u) << "a server without rows has no range";
}

TEST(PlanBySlices, OneServerIsBasicAndNothingElse) {
  PlannerInput input = SourceInput({{10, 1}, {100, 1}, {1000, 4}}, 1, kOptimized, 5);
  input.options.data_parallel_threshold = 10;
  input.options.row_slice_threshold = 100;
  const auto plan = Planned(input);
  EXPECT_EQ(plan.strategy, "basic");
  for (const PlacedTable& table : plan.tables) {
    EXPECT_EQ(table.sharding, Sharding::kTableWise);
    EXPECT_EQ(table.ranges.size(), 1u);
  }
  EXPECT_EQ(plan.servers[0].groups[0].tables, std::vector<std::string>({"t0", "t1"}));
}

TEST(PlanBySlices, FewerTablesThanServersAreSlicedByThemselves) {
  const auto plan = Planned(SourceInput({{7, 5}}, 4, kBalanced));
  EXPECT_EQ(Widths(plan), WidthMaps({{{0, 2}}, {{0, 1}}, {{0, 1}}, {{0, 1}}}));
  const auto tiny = Planned(SourceInput({{1, 1}}, 4, kBalanced));
  EXPECT_EQ(tiny.tables[0].ranges.size(), 1u);
}

TEST(PlanBySlices, StrictRefusesAServerWithoutASlice) {
  PlannerInput input = SourceInput({{1, 1}}, 4, kBasic);
  Planned(input);
  input.options.strict = true;
  const PlanError error = Refusal(input);
  EXPECT_EQ(error.kind, PlanErrorKind::kStrictConstraints);
  EXPECT_NE(error.message.find("'s1' gets no slice"), std::string::npos) << error.message;
  input.options.row_slice_threshold = 1;  // no table is cut by columns: nothing to ask for
  Planned(input);
}

TEST(PlanBySlices, WholeRowStatisticsForbidColumnSlices) {
  PlannerInput input = SourceInput({{100, 8}, {3, 2}}, 2, kBasic, 400);
  input.tables[0].optimizer = PlannerOptimizer::kRowwiseAdagrad;
  const PlanError error = Refusal(input);
  EXPECT_EQ(error.kind, PlanErrorKind::kStrictConstraints);
  EXPECT_EQ(error.table, "t0");
  EXPECT_NE(error.message.find("row_statistics=slice"), std::string::npos) << error.message;
  input.options.column_slice_threshold = 800;  // what the message offers
  Planned(input);
  input.options.column_slice_threshold = 400;
  input.tables[0].row_statistics = RowStatistics::kSlice;
  const auto plan = Planned(input);
  EXPECT_EQ(plan.tables[0].ranges[0].bytes, 100u * (4 * 4 + 4)) << "a statistic a slice";
}

TEST(PlanBySlices, ColumnEven) {
  const auto even = PlannerStrategy::kColumnEven;
  const auto wide = Planned(SourceInput({{3, 4096}}, 8, even));
  EXPECT_EQ(wide.tables[0].ranges[2].column_first, 1024u);
  EXPECT_EQ(4096 - wide.tables[0].ranges[2].column_limit, 2560u);
  EXPECT_EQ(wide.tables[0].ranges[7].column_first, 3584u);
  const auto rest = Planned(SourceInput({{3, 10}, {3, 2}}, 4, even));
  EXPECT_EQ(Widths(rest), WidthMaps({{{0, 3}, {1, 1}}, {{0, 3}, {1, 1}}, {{0, 2}}, {{0, 2}}}));
  PlannerInput strict = SourceInput({{3, 10}}, 4, even);
  strict.options.strict = true;
  const PlanError error = Refusal(strict);
  EXPECT_EQ(error.kind, PlanErrorKind::kStrictConstraints);
  EXPECT_EQ(error.table, "t0");
  EXPECT_NE(error.message.find("evenly by 4 servers"), std::string::npos) << error.message;
}

// Sizes 40, 10, 30, 20 and room for 60 elements: 40 is offloaded.
TEST(PlanBySlices, OffloadsTheLargestFromADevice) {
  PlannerInput input = SourceInput({{40, 1}, {10, 1}, {30, 1}, {20, 1}}, 1, kBasic);
  input.topology.device = PlannerDevice::kCuda;
  input.topology.servers[0].device_bytes = 240;
  const auto plan = Planned(input);
  EXPECT_EQ(plan.servers[0].bytes.device, 240u);
  EXPECT_EQ(plan.servers[0].bytes.host, 160u);
  EXPECT_EQ(plan.tables[0].ranges[0].kernel, "offloaded");
  EXPECT_EQ(plan.tables[2].ranges[0].kernel, "");
  ASSERT_EQ(plan.servers[0].groups.size(), 2u) << "what is offloaded is not fused";
  EXPECT_EQ(plan.servers[0].groups[0].tables, std::vector<std::string>({"t0"}));
  EXPECT_EQ(plan.servers[0].groups[1], (FusedGroup{1, "sum", {"t1", "t2", "t3"}, {0, 10, 40}}));
  input.topology.device = PlannerDevice::kCpu;
  EXPECT_EQ(Planned(input).servers[0].bytes.device, 0u);
}

TEST(PlanBySlices, CopiedTablesAreNotOffloaded) {
  PlannerInput input = SourceInput({{10, 1}, {40, 1}, {40, 1}}, 2, kBasic);
  input.options.data_parallel_threshold = 10;
  input.topology.device = PlannerDevice::kCuda;
  for (InputServer& server : input.topology.servers) server.device_bytes = 100;
  EXPECT_EQ(Planned(input).servers[0].bytes, (TierBytes{40, 160, 0}));
  for (InputServer& server : input.topology.servers) server.device_bytes = 39;
  EXPECT_EQ(Refusal(input).missing_bytes, 1u);
}

TEST(PlanBySlices, DrainingServersTakeNothing) {
  PlannerInput input = SourceInput({{10, 4}, {10, 4}}, 3, kBasic);
  input.topology.servers[0].draining = true;
  const auto plan = Planned(input);
  EXPECT_EQ(Loads(plan), std::vector<uint64_t>({0, 40, 40}));
  for (InputServer& server : input.topology.servers) server.draining = true;
  EXPECT_EQ(Refusal(input).kind, PlanErrorKind::kStrictConstraints);
}

TEST(CheckSourcePlan, NamesWhatDoesNotFit) {
  PlannerInput input = SourceInput({{10, 4}, {20, 4}, {5, 4}}, 2, kBasic);
  input.topology.servers[0].host_bytes = 200;  // takes t0 and t2: 240 bytes
  const PlanError error = Refusal(input);
  EXPECT_EQ(error.kind, PlanErrorKind::kInsufficientStorage);
  EXPECT_EQ(error.table, "t0");
  EXPECT_EQ(error.limit, 200u);
  EXPECT_EQ(error.missing_bytes, 40u);
}

TEST(CheckSourcePlan, NamesBrokenConstraints) {
  PlannerInput input = SourceInput({{10, 4}, {20, 4}}, 2, kBasic);
  input.options.constraints = {{.table = 1, .servers = {1}}};
  Planned(input);
  input.options.constraints = {{.table = 1, .servers = {0}}};
  EXPECT_EQ(Refusal(input).table, "t1");
  input.options.constraints = {{.table = 0, .sharding = {Sharding::kRowWise}}};
  EXPECT_EQ(Refusal(input).table, "t0");
  input.options.constraints.clear();
  input.tables[1].replicas = 2;
  EXPECT_EQ(Refusal(input).table, "t1");
}

TEST(PlanBySlices, RandomPlansHold) {
  const TestSeed seed(3);
  Random random(seed.value());
  const PlannerStrategy strategies[] = {kBasic, kBalanced, kOptimized,
                                        PlannerStrategy::kColumnEven};
  for (int round = 0; round < 500; ++round) {
    std::vector<Shape> shapes(1 + random.Uniform(12));
    for (Shape& shape : shapes) {
      shape = {1 + random.Uniform(200), static_cast<uint32_t>(1 + random.Uniform(20))};
    }
    PlannerInput input = SourceInput(shapes, 1 + random.Uniform(9), strategies[round % 4]);
    if (random.OneIn(2)) input.options.column_slice_threshold = random.Uniform(300);
    if (random.OneIn(3)) input.options.row_slice_threshold = random.Uniform(1000);
    if (random.OneIn(3)) input.options.data_parallel_threshold = random.Uniform(100);
    for (InputTable& table : input.tables) table.hashed = random.OneIn(4);
    const PlannerOutput plan = Planned(input);
    EXPECT_TRUE(plan == Planned(input));
    for (const PlacedTable& table : plan.tables) {
      std::vector<bool> seen(plan.servers.size());
      for (const PlacedRange& range : table.ranges) {
        EXPECT_FALSE(seen[range.server]) << table.name << " stands twice on a server";
        seen[range.server] = true;
      }
    }
  }
}

}  // namespace plan_by_slices_test
}  // namespace hotbed
