// Whole plans: TorchRec's published plans (planner/tests/test_planners.py at a48cef7), how they
// become ranges, and what is refused and why.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "planner/torchrec/plan_like_torchrec.h"
#include "planner/torchrec/plan_output.h"
#include "planner/torchrec/search_error.h"
#include "tests/planner/torchrec_inputs.h"

namespace hotbed::torchrec {
namespace torchrec_plan_test {

constexpr uint64_t kMib = 1 << 20;

std::vector<uint32_t> ServersOfTable(const PlacedTable& table) {
  std::vector<uint32_t> servers;
  for (const PlacedRange& range : table.ranges) servers.push_back(range.server);
  return servers;
}

// Two ranks of 2 MiB of device memory, tables of 100 x 64, table- or row-wise on fused kernels; no
// room is kept for what the dense part of the model needs.
PlannerInput TwoMebibytes(int tables) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (InputServer& server : input.topology.servers) server.device_bytes = 2 * kMib;
  for (int i = 0; i < tables; ++i) {
    Allow(&input, AddTable(&input, 100, 64), {Sharding::kTableWise, Sharding::kRowWise}, {"fused"});
  }
  input.options.reserve = {.kind = ReserveKind::kHeuristic, .fraction = 0.15};
  return input;
}

std::vector<std::vector<uint32_t>> SortedServers(const PlannerOutput& output) {
  std::vector<std::vector<uint32_t>> servers;
  for (const PlacedTable& table : output.tables) servers.push_back(ServersOfTable(table));
  std::sort(servers.begin(), servers.end());
  return servers;
}

// TorchRec's table_wise and hidden row_wise solutions. It rates row_wise faster here, but two
// buffers a table leave no room for all four, and table_wise ones balance.
TEST(TorchrecPlanTest, PublishedSolutions) {
  const auto three = PlanLikeTorchrec(TwoMebibytes(3));
  ASSERT_TRUE(three.ok()) << three.error().message;
  EXPECT_EQ(SortedServers(three.value()), (std::vector<std::vector<uint32_t>>{{0}, {0, 1}, {1}}));
  const auto four = PlanLikeTorchrec(TwoMebibytes(4));
  ASSERT_TRUE(four.ok()) << four.error().message;
  EXPECT_EQ(SortedServers(four.value()), (std::vector<std::vector<uint32_t>>{{0}, {0}, {1}, {1}}));
}

TEST(TorchrecPlanTest, PublishedRefusals) {
  PlannerInput never = TwoMebibytes(2);
  for (InputTable& table : never.tables) table.rows = table.dim = 10000000;
  const auto insufficient = PlanLikeTorchrec(never);
  ASSERT_FALSE(insufficient.ok());
  EXPECT_EQ(insufficient.error().kind, PlanErrorKind::kInsufficientStorage);
  ASSERT_TRUE(insufficient.error().table.has_value());
  EXPECT_GT(insufficient.error().missing_bytes.value_or(0), uint64_t{1} << 40);
  EXPECT_NE(insufficient.error().message.find("Add servers"), std::string::npos);

  // 4096 x 128 fits two ranks by rows, but none as a whole.
  PlannerInput strict = TwoMebibytes(1);
  strict.tables[0].rows = 4096;
  strict.tables[0].dim = 128;
  ConstraintOf(&strict, 0).sharding = {Sharding::kTableWise};
  const auto refused = PlanLikeTorchrec(strict);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, PlanErrorKind::kStrictConstraints);
  EXPECT_EQ(refused.error().table, "table_0");
  // Device memory less 15 % and 20 x 512 x 8 bytes of ids; weights and buffers of the shard.
  const uint64_t room = static_cast<uint64_t>(0.85 * 2 * kMib) - 20 * 512 * 8;
  const uint64_t need = 4096 * 128 * 4 + 512 * 2 * 8 + 512 * 2 * 128 * 4;
  EXPECT_EQ(refused.error().limit, room);
  EXPECT_EQ(refused.error().missing_bytes, need - room);
  ConstraintOf(&strict, 0).sharding.push_back(Sharding::kRowWise);
  const auto by_rows = PlanLikeTorchrec(strict);
  ASSERT_TRUE(by_rows.ok()) << by_rows.error().message;
  EXPECT_EQ(ServersOfTable(by_rows.value().tables[0]), (std::vector<uint32_t>{0, 1}));
}

TEST(TorchrecPlanTest, ConstraintsWithoutAChoice) {
  PlannerInput cpu = ServersOf(1, 2, PlannerDevice::kCpu);
  Allow(&cpu, AddTable(&cpu, 100, 16), {Sharding::kRowWise}, {});
  const auto rows = PlanLikeTorchrec(cpu);
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.error().kind, PlanErrorKind::kStrictConstraints);
  EXPECT_NE(rows.error().message.find("row_wise"), std::string::npos);
  Allow(&cpu, 0, {}, {"fused_uvm"});
  EXPECT_EQ(PlanLikeTorchrec(cpu).error().kind, PlanErrorKind::kStrictConstraints);
  Allow(&cpu, 0, {}, {"fuzed"});
  EXPECT_EQ(PlanLikeTorchrec(cpu).error().kind, PlanErrorKind::kInput);
  Allow(&cpu, 0, {Sharding::kDataParallel}, {});
  ConstraintOf(&cpu, 0).servers = {1};
  EXPECT_EQ(PlanLikeTorchrec(cpu).error().kind, PlanErrorKind::kStrictConstraints);
  ConstraintOf(&cpu, 0).sharding.clear();
  EXPECT_EQ(ServersOfTable(PlanLikeTorchrec(cpu).value().tables[0]), (std::vector<uint32_t>{1}));
  cpu.topology.servers[1].draining = true;
  EXPECT_EQ(PlanLikeTorchrec(cpu).error().kind, PlanErrorKind::kStrictConstraints);
}

// Three shards of 32,080 bytes on two ranks of 51,000: in sum they fit.
TEST(TorchrecPlanTest, ShardsThatDoNotPack) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  for (InputServer& server : input.topology.servers) server.device_bytes = 51000;
  input.workload.batch_size = 1;
  Allow(&input, AddTable(&input, 1000, 24), {Sharding::kTableColumnWise}, {"fused"});
  ConstraintOf(&input, 0).columns_min = 8;
  const auto refused = PlanLikeTorchrec(input);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, PlanErrorKind::kStrictConstraints);
  EXPECT_FALSE(refused.error().missing_bytes.has_value());
  EXPECT_NE(refused.error().message.find("96240 device_bytes"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("not for each of them"), std::string::npos);
}

TEST(TorchrecPlanTest, HostsMustBeEqual) {
  PlannerInput input = ServersOf(2, 2, PlannerDevice::kCuda);
  AddTable(&input, 100, 16);
  input.topology.servers[3].host = "h0";
  const auto refused = PlanLikeTorchrec(input);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, PlanErrorKind::kInput);
  EXPECT_NE(refused.error().message.find("'h0' has 3"), std::string::npos)
      << refused.error().message;
  for (InputServer& server : input.topology.servers) server.draining = true;
  EXPECT_EQ(PlanLikeTorchrec(input).error().kind, PlanErrorKind::kInput);
}

// Ranks go host by host, whatever the order of the servers; the answer keeps the input's.
TEST(TorchrecPlanTest, ScatteredHosts) {
  PlannerInput input = ServersOf(2, 2, PlannerDevice::kCuda);
  std::swap(input.topology.servers[1], input.topology.servers[2]);
  Allow(&input, AddTable(&input, 100, 16), {Sharding::kTableRowWise}, {"fused"});
  const auto plan = PlanLikeTorchrec(input);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(ServersOfTable(plan.value().tables[0]), (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(plan.value().servers[1].name, "s2");
  EXPECT_EQ(plan.value().servers[1].elements, 0u);
  EXPECT_EQ(plan.value().servers[2].elements, 800u);
}

TEST(TorchrecPlanTest, DrainingServersTakeNothing) {
  PlannerInput input = ServersOf(2, 2, PlannerDevice::kCuda);
  Allow(&input, AddTable(&input, 101, 16), {Sharding::kRowWise}, {"fused"});
  input.topology.servers[0].draining = input.topology.servers[3].draining = true;
  const auto plan = PlanLikeTorchrec(input);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(ServersOfTable(plan.value().tables[0]), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(plan.value().tables[0].ranges[1].row_first, 51u);
}

TEST(TorchrecPlanTest, DataParallelIsAPrimaryAndReplicas) {
  PlannerInput input = ServersOf(1, 3, PlannerDevice::kCuda);
  Allow(&input, AddTable(&input, 10, 4), {Sharding::kDataParallel}, {});
  const PlacedTable table = PlanLikeTorchrec(input).value().tables[0];
  ASSERT_EQ(table.ranges.size(), 3u);
  EXPECT_EQ(table.ranges[0].role, Role::kPrimary);
  EXPECT_EQ(table.ranges[1].role, Role::kReplica);
  EXPECT_EQ(table.ranges[2].role, Role::kReplica);
  EXPECT_EQ(table.ranges[2].elements, 40u);
  EXPECT_EQ(table.ranges[2].weight_bytes, 160u);
  EXPECT_EQ(table.ranges[2].kernel, "dense");
}

TEST(TorchrecPlanTest, EmptyRowShardsAreLeftOut) {
  PlannerInput input = ServersOf(1, 4, PlannerDevice::kCuda);
  Allow(&input, AddTable(&input, 5, 4), {Sharding::kRowWise}, {"fused"});
  const PlacedTable table = PlanLikeTorchrec(input).value().tables[0];
  ASSERT_EQ(table.ranges.size(), 3u);
  EXPECT_EQ(table.ranges[2].row_first, 4u);
  EXPECT_EQ(table.ranges[2].row_limit, 5u);
}

// Five slices on two servers: three and two of them, each one range.
TEST(TorchrecPlanTest, ColumnSlicesThatMeetAreOneRange) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  Allow(&input, AddTable(&input, 100, 40), {Sharding::kColumnWise}, {"fused"});
  ConstraintOf(&input, 0).columns_min = 8;
  const PlacedTable table = PlanLikeTorchrec(input).value().tables[0];
  ASSERT_EQ(table.ranges.size(), 2u);
  EXPECT_EQ(table.ranges[0].column_first, 0u);
  EXPECT_EQ(table.ranges[0].column_limit, 24u);
  EXPECT_EQ(table.ranges[1].column_first, 24u);
  EXPECT_EQ(table.ranges[1].column_limit, 40u);
  EXPECT_EQ(table.ranges[0].elements, 2400u);
  // Three shards' weights and buffers.
  EXPECT_EQ(table.ranges[0].bytes, 3u * (100 * 8 * 4 + 1024 * 8 + 1024 * 8 * 4));
}

TEST(TorchrecPlanTest, GridTilesTheTable) {
  PlannerInput input = ServersOf(2, 2, PlannerDevice::kCuda);
  Allow(&input, AddTable(&input, 101, 24), {Sharding::kGrid}, {"fused"});
  ConstraintOf(&input, 0).columns_min = 8;
  const PlacedTable table = PlanLikeTorchrec(input).value().tables[0];
  ASSERT_EQ(table.ranges.size(), 4u);
  // Three column blocks on two hosts: the first takes two.
  const std::vector<std::vector<uint64_t>> expected = {
      {0, 51, 0, 16}, {51, 101, 0, 16}, {0, 51, 16, 24}, {51, 101, 16, 24}};
  for (size_t i = 0; i < 4; ++i) {
    const PlacedRange& range = table.ranges[i];
    EXPECT_EQ((std::vector<uint64_t>{range.row_first, range.row_limit, range.column_first,
                                     range.column_limit}),
              expected[i]);
    EXPECT_EQ(range.server, i);
  }
}

TEST(TorchrecPlanTest, WholeRowStatisticsKeepColumnsTogether) {
  PlannerInput input = ServersOf(1, 4, PlannerDevice::kCuda);
  AddTable(&input, 1000, 512);
  input.tables[0].optimizer = PlannerOptimizer::kRowwiseAdagrad;
  const auto slices = [&](std::vector<Sharding> allowed, RowStatistics statistics) {
    Allow(&input, 0, std::move(allowed), {"fused"});
    input.tables[0].row_statistics = statistics;
    const auto plan = PlanLikeTorchrec(input);
    return plan.ok() ? plan.value().tables[0].ranges.size() : 0;
  };
  EXPECT_EQ(slices({Sharding::kColumnWise}, RowStatistics::kSlice), 4u);
  // Asked for by name it is TorchRec's column_wise all the same.
  EXPECT_EQ(slices({Sharding::kColumnWise}, RowStatistics::kRow), 4u);
  input.tables[0].row_statistics = RowStatistics::kRow;
  input.options.constraints.clear();
  const auto plan = PlanLikeTorchrec(input);
  ASSERT_TRUE(plan.ok());
  for (const PlacedRange& range : plan.value().tables[0].ranges) {
    EXPECT_EQ(range.column_limit - range.column_first, 512u);
  }
}

TEST(TorchrecPlanTest, HashedTablesAreCutInBuckets) {
  PlannerInput input = ServersOf(1, 3, PlannerDevice::kCuda);
  Allow(&input, AddTable(&input, 1000000, 8), {Sharding::kRowWise}, {"fused"});
  input.tables[0].hashed = true;
  const PlacedTable table = PlanLikeTorchrec(input).value().tables[0];
  ASSERT_EQ(table.ranges.size(), 3u);
  EXPECT_EQ(table.ranges[1].row_first, 21846u);
  EXPECT_EQ(table.ranges[2].row_limit, 65536u);
}

TEST(TorchrecPlanTest, UnevenServersShareRowsByMemory) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  input.topology.servers[1].device_bytes *= 3;
  Allow(&input, AddTable(&input, 1000, 8), {Sharding::kRowWise}, {"fused"});
  const PlacedTable table = PlanLikeTorchrec(input).value().tables[0];
  ASSERT_EQ(table.ranges.size(), 2u);
  EXPECT_EQ(table.ranges[0].row_limit, 250u);
}

TEST(TorchrecPlanTest, NoDeviceMemoryNamedIsTheDefault) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  AddTable(&input, 1000, 8);
  for (InputServer& server : input.topology.servers) server.device_bytes = 0;
  EXPECT_EQ(BuildRankTopology(input).value().capacity[1].hbm, absl::int128(32) << 30);
  EXPECT_TRUE(PlanLikeTorchrec(input).ok());
  input.topology.servers[0].device_bytes = 1 << 30;
  EXPECT_EQ(BuildRankTopology(input).value().capacity[1].hbm, 0);
}

TEST(TorchrecPlanTest, EvaluationsSpentBeforeAPlan) {
  PlannerInput input = TwoMebibytes(4);
  input.options.evaluations_max = 1;
  for (TableConstraint& constraint : input.options.constraints) {
    constraint.kernels = {"fused", "fused_uvm"};
  }
  // The fastest proposal fits in sum, but not on the ranks.
  for (InputTable& table : input.tables) table.rows = 1200;
  const auto plan = PlanLikeTorchrec(input);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, PlanErrorKind::kPartition) << plan.error().message;
  input.options.evaluations_max = 100000;
  EXPECT_TRUE(PlanLikeTorchrec(input).ok());
}

TEST(TorchrecPlanTest, CostIsThatOfTheSlowestServer) {
  PlannerInput input = ServersOf(1, 2, PlannerDevice::kCuda);
  Allow(&input, AddTable(&input, 100, 10), {Sharding::kTableWise}, {"fused"});
  Allow(&input, AddTable(&input, 100, 10), {Sharding::kRowWise}, {"fused"});
  const auto plan = PlanLikeTorchrec(input);
  ASSERT_TRUE(plan.ok());
  const TablePerf& tw = *plan.value().tables[0].perf;
  const TablePerf& rw = *plan.value().tables[1].perf;
  const double first = TotalMs(tw) + TotalMs(rw);
  EXPECT_DOUBLE_EQ(plan.value().cost.max_server_ms, first);
  EXPECT_DOUBLE_EQ(plan.value().cost.lower_bound_ms,
                   std::max((TotalMs(tw) + 2 * TotalMs(rw)) / 2, TotalMs(tw)));
  EXPECT_EQ(plan.value().cost.binding, "time of s0");
}

}  // namespace torchrec_plan_test
}  // namespace hotbed::torchrec
