#include "planner/sources/plan_by_row_space.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/planner/sources/source_cases.h"

namespace hotbed {
namespace plan_by_row_space_test {

constexpr auto kFair = PlannerStrategy::kFair;
constexpr auto kWhole = PlannerStrategy::kWholeFeature;

PlannerInput NotebookInput(PlannerStrategy strategy) {
  return SourceInput(
      {{100, 2}, {2020, 2}, {3203, 2}, {3434, 2}, {3023, 2}, {4545, 2}, {123, 2}, {4566, 2}}, 4,
      strategy);
}

TEST(PlanByRowSpace, FairCutsTheRowSpace) {
  const auto plan = Planned(NotebookInput(kFair));
  EXPECT_EQ(Loads(plan), std::vector<uint64_t>({2 * 5253, 2 * 5253, 2 * 5253, 2 * 5255}));
  EXPECT_EQ(plan.servers[1].row_base, 5253u);
  EXPECT_EQ(plan.servers[1].features, std::vector<std::string>({"t2", "t3", "t4"}));
  EXPECT_EQ(plan.servers[1].feature_offsets, std::vector<uint64_t>({0, 70, 3504}));
  EXPECT_EQ(plan.servers[3].row_base, 3 * 5253u);
  EXPECT_EQ(plan.tables[2].sharding, Sharding::kRowWise);
  EXPECT_EQ(plan.tables[2].ranges[0].row_limit, 3133u);
  EXPECT_EQ(plan.tables[3].sharding, Sharding::kTableWise);
  ASSERT_EQ(plan.cuts.size(), 3u);
  EXPECT_EQ(plan.cuts[1], (FeatureCuts{4, {1749}}));
}

TEST(PlanByRowSpace, FairDropsMembersWithoutRows) {
  const auto plan = Planned(SourceInput({{4, 1}, {4, 1}, {4, 1}, {4, 1}}, 2, kFair));
  EXPECT_EQ(plan.cuts, std::vector<FeatureCuts>({{2, {0}}}));
  EXPECT_EQ(plan.servers[0].features, std::vector<std::string>({"t0", "t1"}));
  EXPECT_EQ(plan.servers[0].feature_offsets, std::vector<uint64_t>({0, 4}));
  EXPECT_EQ(plan.tables[2].ranges.size(), 1u);
}

TEST(PlanByRowSpace, SharedTablesListEachFeature) {
  PlannerInput input = SourceInput({{4, 1}, {4, 1}}, 1, kFair);
  input.features = {
      {.name = "b", .table = 1}, {.name = "a", .table = 0}, {.name = "c", .table = 1}};
  const auto plan = Planned(input);
  EXPECT_EQ(plan.servers[0].features, std::vector<std::string>({"a", "b", "c"}));
  EXPECT_EQ(plan.servers[0].feature_offsets, std::vector<uint64_t>({0, 4, 4}));
}

TEST(PlanByRowSpace, WholeFeatureByDifference) {
  const auto plan = Planned(NotebookInput(kWhole));
  EXPECT_EQ(Loads(plan), std::vector<uint64_t>({2 * 4789, 2 * 4545, 2 * 5454, 2 * 6226}));
  EXPECT_EQ(plan.servers[0].features, std::vector<std::string>({"t7", "t0", "t6"}));
  EXPECT_EQ(plan.servers[0].feature_offsets, std::vector<uint64_t>({0, 4566, 4666}));
  EXPECT_EQ(plan.servers[0].groups[0].tables, plan.servers[0].features);
  EXPECT_EQ(plan.servers[0].groups[0].row_offsets, plan.servers[0].feature_offsets);
  EXPECT_EQ(plan.servers[3].row_base, 4789u + 4545 + 5454);
}

// The published dims and buckets of four servers with rows of 128.
TEST(PlanByRowSpace, ServersHaveDimsAndBucketsForComposedTables) {
  const auto fair = Planned(SourceInput({{100, 128},
                                         {2020, 128},
                                         {3203, 128},
                                         {3434, 128},
                                         {3023, 128},
                                         {4545, 128},
                                         {123, 128},
                                         {4566, 128}},
                                        4, kFair));
  for (const PlacedServer& server : fair.servers) {
    EXPECT_EQ(server.block_dim, 32u);
    EXPECT_EQ(server.buckets, 73u);
  }
  PlannerInput input = SourceInput({{100, 128},
                                    {2020, 128},
                                    {3203, 128},
                                    {3434302, 128},
                                    {3023, 128},
                                    {45459, 128},
                                    {123, 128},
                                    {4566, 128}},
                                   4, kWhole);
  input.options.order = FeatureOrder::kShuffled;
  input.options.seed = 111;  // groups [3,0], [1,2], [5,6], [7,4]
  const auto whole = Planned(input);
  std::vector<uint32_t> dims;
  std::vector<uint64_t> buckets;
  for (const PlacedServer& server : whole.servers) {
    dims.push_back(server.block_dim);
    buckets.push_back(server.buckets);
  }
  EXPECT_EQ(dims, std::vector<uint32_t>({128, 2, 2, 2}));
  EXPECT_EQ(buckets, std::vector<uint64_t>({1854, 73, 214, 88}));
}

TEST(PlanByRowSpace, WholeFeatureAscendingAndShuffled) {
  PlannerInput input = NotebookInput(kWhole);
  input.options.order = FeatureOrder::kAscending;
  EXPECT_EQ(Planned(input).servers[3].features, std::vector<std::string>({"t5", "t7"}));
  input.options.order = FeatureOrder::kShuffled;
  input.options.seed = 1;
  const auto one = Planned(input);
  input.options.seed = 2;
  const auto two = Planned(input);
  EXPECT_NE(one.servers[0].features, two.servers[0].features);
}

TEST(PlanByRowSpace, StrictRefusesFewerFeaturesThanServers) {
  for (const PlannerStrategy strategy : {kFair, kWhole}) {
    PlannerInput input = SourceInput({{4, 1}, {4, 1}}, 3, strategy);
    Planned(input);
    input.options.strict = true;
    const auto plan = ComputePlan(input);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().kind, PlanErrorKind::kStrictConstraints);
    EXPECT_NE(plan.error().message.find("2 tables for 3 servers"), std::string::npos);
  }
}

TEST(PlanByRowSpace, RandomPlansHold) {
  const TestSeed seed(8);
  Random random(seed.value());
  for (int round = 0; round < 500; ++round) {
    std::vector<Shape> shapes(1 + random.Uniform(12));
    for (Shape& shape : shapes) {
      shape = {1 + random.Uniform(round % 3 == 0 ? 4 : 200000),
               static_cast<uint32_t>(1 + random.Uniform(4))};
    }
    PlannerInput input =
        SourceInput(shapes, 1 + random.Uniform(9), round % 2 == 0 ? kFair : kWhole);
    input.options.order = static_cast<FeatureOrder>(random.Uniform(3));
    for (InputTable& table : input.tables) table.hashed = random.OneIn(4);
    const PlannerOutput plan = Planned(input);
    EXPECT_TRUE(plan == Planned(input));
  }
}

}  // namespace plan_by_row_space_test
}  // namespace hotbed
