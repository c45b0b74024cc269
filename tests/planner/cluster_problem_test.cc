#include "planner/cluster_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/model/placement.h"
#include "planner/model/table_bytes.h"
#include "planner/model/validate_input.h"
#include "planner/plan_by_cost.h"

namespace hotbed {
namespace cluster_problem_test {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kGiB = 1ull << 30;

ClusterServer Server(ServerId id, const std::string& name, uint64_t host_bytes = kGiB) {
  ClusterServer server;
  server.id = id;
  server.name = name;
  server.host_bytes = host_bytes;
  return server;
}

TableSpec Spec(TableId id, const std::string& name, uint64_t rows, uint32_t dim = 16) {
  TableSpec spec;
  spec.id = id;
  spec.name = name;
  spec.rows = rows;
  spec.dim = dim;
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  return spec;
}

// The table in `shards` shards, by turns on `servers`.
ClusterTable Placed(const TableSpec& spec, uint32_t shards, const std::vector<ServerId>& servers) {
  ClusterTable table{spec, {}};
  const auto ranges = CutTable(spec, shards);
  EXPECT_TRUE(ranges.ok()) << ranges.status();
  for (const ShardRange& range : *ranges) {
    table.shards.push_back({range, servers[table.shards.size() % servers.size()]});
  }
  return table;
}

// The servers of the shards of `table`, which must tile it in order.
std::vector<ServerId> ServersOf(const Plan& plan, const TableSpec& spec) {
  std::vector<ServerId> servers;
  uint64_t next = 0;
  for (const PlannedShard& shard : plan.shards) {
    if (shard.shard.table != spec.id) continue;
    EXPECT_EQ(shard.shard.index, servers.size());
    EXPECT_EQ(shard.range.first, next);
    EXPECT_EQ(shard.range.column_first, 0u);
    EXPECT_EQ(shard.range.column_limit, spec.dim);
    next = shard.range.limit;
    servers.push_back(shard.assignments.at(0).server);
  }
  EXPECT_EQ(next, spec.hashed ? kHashBuckets : spec.rows) << spec.name;
  return servers;
}

TEST(ClusterProblem, ServersAndTablesKeepOrderAndNames) {
  ClusterView view;
  view.servers = {Server(7, "b"), Server(3, "a"), Server(9, "b"), Server(4, "")};
  view.servers[1].spill_bytes = 5 * kGiB;
  view.tables = {Placed(Spec(2, "u", 1000), 4, {7, 3, 9, 4}), {Spec(5, "v", 10), {}}};
  const PlannerInput input = ClusterProblem(view);
  EXPECT_FALSE(ValidateInput(input).has_value()) << ValidateInput(input)->message;
  EXPECT_THAT(input.topology.servers,
              ElementsAre(Field(&InputServer::name, "b#7"), Field(&InputServer::name, "a"),
                          Field(&InputServer::name, "b#9"), Field(&InputServer::name, "#4")));
  EXPECT_EQ(input.topology.servers[1].spill_bytes, 5 * kGiB);
  EXPECT_GT(input.topology.servers[0].spill_bytes, 1ull << 40) << "not counted, not none";
  ASSERT_THAT(input.tables, SizeIs(2));
  EXPECT_EQ(input.tables[0].name, "u");
  ASSERT_TRUE(input.current.has_value());
  EXPECT_EQ(*input.current, LivePlan(view));
  ASSERT_THAT(input.current->tables, SizeIs(1)) << "v is nowhere yet";
  const std::vector<PlacedRange>& ranges = input.current->tables[0].ranges;
  ASSERT_THAT(ranges, SizeIs(4));
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(ranges[i].server, i);
    EXPECT_EQ(ranges[i].row_first, 250 * i);
    EXPECT_EQ(ranges[i].row_limit, 250 * (i + 1));
  }
}

// A plan counts the bytes that servers store, for every optimizer and every option that a row of
// state depends on, for whole rows and slices.
TEST(ClusterProblem, RowsWeighWhatServersStore) {
  for (int kind = 0; kind <= static_cast<int>(kLastOptimizerKind); ++kind) {
    for (int options = 0; options < 16; ++options) {
      TableSpec spec = Spec(1, "t", 1000, 7);
      spec.optimizer.kind = static_cast<OptimizerKind>(kind);
      spec.optimizer.lazy_decay = (options & 1) != 0;
      spec.optimizer.row_bias_correction = (options & 2) != 0;
      spec.optimizer.state_type = (options & 4) != 0 ? StateType::kBf16 : StateType::kFp32;
      spec.weight_type = (options & 8) != 0 ? WeightType::kFp16 : WeightType::kFp32;
      ClusterView view;
      view.servers = {Server(1, "a")};
      view.tables = {{spec, {}}};
      const InputTable table = ClusterProblem(view).tables[0];
      for (const uint32_t columns : {7u, 4u, 3u, 1u}) {
        const uint64_t stored = uint64_t{BytesPerWeight(spec.weight_type)} * columns +
                                StateBytes(spec.optimizer, columns);
        EXPECT_EQ(RowBytes(table, columns), stored)
            << kOptimizerWords[kind] << ", options " << options << ", " << columns << " columns";
      }
    }
  }
}

TEST(ClusterProblem, WhatIsThereAndGoodIsAnsweredAsItIs) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b")};
  view.tables = {Placed(Spec(1, "u", 100000), 8, {1, 2})};
  const PlanResult<PlannerOutput> plan = PlanCluster(ClusterProblem(view));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan.value().moves, SizeIs(0));
  EXPECT_THAT(plan.value().tables[0].ranges, SizeIs(8));
}

TEST(ClusterProblem, UnreachableServersKeepWhatTheyHaveAndGetNothing) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b"), Server(3, "c")};
  view.servers[1].usable = view.servers[1].reachable = false;
  view.servers[0].usable = false;
  view.servers[0].draining = true;
  view.tables = {Placed(Spec(1, "u", 90000), 9, {1, 2, 3}), Placed(Spec(2, "small", 10), 1, {2})};
  const PlanResult<PlannerOutput> plan = PlanCluster(ClusterProblem(view));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan.value().moves, SizeIs(3)) << "the shards of a";
  for (const PlannedMove& move : plan.value().moves) {
    EXPECT_EQ(move.from, "a");
    EXPECT_EQ(move.to, "c");
    EXPECT_EQ(move.reason, "a is draining");
  }
  std::vector<uint64_t> on_b;
  for (const PlacedRange& range : plan.value().tables[0].ranges) {
    if (range.server == 1) on_b.push_back(range.row_first);
  }
  EXPECT_THAT(on_b, ElementsAre(10000, 40000, 70000));
  EXPECT_EQ(plan.value().tables[1].ranges[0].server, 1u);
  EXPECT_EQ(plan.value().cost.lower_bound_ms, 0) << "none is proved";
}

TEST(PlaceNewTables, NewTablesTogetherAndNothingOnUnusableServers) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b"), Server(3, "c")};
  view.servers[1].usable = false;
  const std::vector<TableSpec> specs = {Spec(1, "u", 100000), Spec(2, "v", 200000),
                                        Spec(3, "w", 50)};
  for (const TableSpec& spec : specs) view.tables.push_back({spec, {}});
  const absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::set<ServerId> used;
  for (const TableSpec& spec : specs) {
    const std::vector<ServerId> servers = ServersOf(*plan, spec);
    EXPECT_EQ(servers.size() >= 8, spec.rows > 1000) << spec.name;
    used.insert(servers.begin(), servers.end());
  }
  EXPECT_THAT(used, ElementsAre(1, 3));
  EXPECT_TRUE(std::is_sorted(
      plan->shards.begin(), plan->shards.end(),
      [](const PlannedShard& a, const PlannedShard& b) { return a.shard < b.shard; }));
}

TEST(PlaceNewTables, WhatIsThereNeverMoves) {
  ClusterView view;
  view.servers = {Server(1, "a", kGiB), Server(2, "b", kGiB), Server(3, "c", 1 << 20)};
  view.servers[0].draining = true;
  view.servers[0].usable = false;
  // As bad as can be: all on one server, a server that is over its memory, one that was cut finer
  // than its size asks for.
  view.tables = {Placed(Spec(1, "lopsided", 1000000), 0, {1}),
                 Placed(Spec(2, "big", 1000000), 0, {3}),
                 Placed(Spec(3, "fine", 100), 10, {1, 2, 3})};
  view.tables.push_back({Spec(4, "new", 100000), {}});
  const absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const PlannedShard& shard : plan->shards) EXPECT_EQ(shard.shard.table, 4u);
  const std::vector<ServerId> servers = ServersOf(*plan, view.tables.back().spec);
  EXPECT_EQ(std::count(servers.begin(), servers.end(), 1), 0) << "it is to be emptied";
}

// The table's slices of columns stand one after the other, each cut at the same rows; how many.
size_t CheckSlices(const Plan& plan, const TableSpec& spec) {
  std::vector<ShardRange> ranges;
  for (const PlannedShard& shard : plan.shards) {
    if (shard.shard.table != spec.id) continue;
    EXPECT_EQ(shard.shard.index, ranges.size());
    ranges.push_back(shard.range);
  }
  EXPECT_EQ(ranges.size() % spec.column_slices, 0u) << spec.name;
  const size_t in_slice = ranges.size() / spec.column_slices;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ColumnRange columns =
        SliceColumns(spec.dim, spec.column_slices, static_cast<uint32_t>(i / in_slice));
    EXPECT_EQ(ranges[i].column_first, columns.first) << spec.name << " shard " << i;
    EXPECT_EQ(ranges[i].column_limit, columns.limit) << spec.name << " shard " << i;
    EXPECT_EQ(ranges[i].first, i % in_slice == 0 ? 0 : ranges[i - 1].limit);
    EXPECT_EQ(ranges[i].limit, ranges[i % in_slice].limit);
  }
  EXPECT_EQ(ranges.back().limit, spec.hashed ? kHashBuckets : spec.rows);
  EXPECT_LE(ranges.size(), kShardsPerTableMax);
  return ranges.size();
}

TEST(PlaceNewTables, SlicedTablesAreCutAlikeAndNothingMovesAfterwards) {
  ClusterView view;
  view.servers = {Server(1, "a", 1000 * kGiB), Server(2, "b", 1000 * kGiB)};
  std::vector<TableSpec> specs = {Spec(1, "u", 100000), Spec(2, "odd", 200000, 67),
                                  Spec(3, "small", 50, 5), Spec(4, "ids", 0, 7),
                                  Spec(5, "huge", 1ull << 32, 67)};
  const uint32_t slices[] = {4, 3, 5, 2, 9};
  for (size_t i = 0; i < specs.size(); ++i) {
    specs[i].column_slices = slices[i];
    specs[i].row_statistics = RowStatistics::kSlice;
    specs[i].hashed = specs[i].rows == 0;
    view.tables.push_back({specs[i], {}});
  }
  const absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t i = 0; i < specs.size(); ++i) {
    const size_t shards = CheckSlices(*plan, specs[i]);
    EXPECT_EQ(shards == slices[i], specs[i].name == "small") << specs[i].name << ": " << shards;
    for (const PlannedShard& shard : plan->shards) {
      if (shard.shard.table != specs[i].id) continue;
      view.tables[i].shards.push_back({shard.range, shard.assignments.at(0).server});
    }
  }
  const PlanResult<PlannerOutput> again = PlanCluster(ClusterProblem(view));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_THAT(again.value().moves, SizeIs(0));
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_THAT(again.value().tables[i].ranges, SizeIs(view.tables[i].shards.size()));
  }
  // And a server that is emptied gives its shards as they are.
  view.servers[0].usable = false;
  view.servers[0].draining = true;
  const PlanResult<PlannerOutput> drained = PlanCluster(ClusterProblem(view));
  ASSERT_TRUE(drained.ok()) << drained.error().message;
  size_t on_a = 0;
  for (const PlannedShard& shard : plan->shards) on_a += shard.assignments.at(0).server == 1;
  EXPECT_EQ(drained.value().moves.size(), on_a);
}

TEST(PlaceNewTables, WholeRowsAreNotSliced) {
  ClusterView view;
  view.servers = {Server(1, "a")};
  view.tables = {{Spec(1, "u", 100000), {}}};  // row-wise Adagrad, statistics of rows
  view.tables[0].spec.column_slices = 2;
  const absl::Status status = PlaceNewTables(view).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("row_statistics=slice"));
}

TEST(PlaceNewTables, HashedTablesWithoutRows) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b")};
  TableSpec spec = Spec(1, "ids", 0);
  spec.hashed = true;
  view.tables = {{spec, {}}};
  const absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<ServerId> servers = ServersOf(*plan, spec);
  EXPECT_GE(servers.size(), 8u);
  EXPECT_EQ(std::count(servers.begin(), servers.end(), 1),
            std::count(servers.begin(), servers.end(), 2));
}

TEST(PlaceNewTables, SmallTablesAreWholeAndSpread) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b"), Server(3, "c")};
  for (TableId id = 1; id <= 30; ++id) view.tables.push_back({Spec(id, absl::StrCat(id), 100), {}});
  const absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(plan->shards, SizeIs(30));
  std::vector<int> tables(4, 0);
  for (const PlannedShard& shard : plan->shards) ++tables[shard.assignments.at(0).server];
  EXPECT_THAT(tables, ElementsAre(0, 10, 10, 10));
}

TEST(PlaceNewTables, NoServerIsUsable) {
  ClusterView view;
  view.tables = {{Spec(1, "u", 100), {}}};
  EXPECT_EQ(PlaceNewTables(view).status().code(), absl::StatusCode::kFailedPrecondition);
  view.servers = {Server(1, "a")};
  view.servers[0].usable = false;
  const absl::Status status = PlaceNewTables(view).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no shard server is live"));
}

TEST(PlaceNewTables, WhatDoesNotFitNamesLimitAndMissingBytes) {
  ClusterView view;
  view.servers = {Server(1, "a", 1 << 20), Server(2, "b", 1 << 20)};
  for (ClusterServer& server : view.servers) server.spill_bytes = 1 << 20;
  view.tables = {{Spec(1, "wide", 1000000), {}}};
  const absl::Status status = PlaceNewTables(view).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("68000000 bytes, the 2 servers that may take them have 4194304"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("63805696 bytes are missing"));
}

TEST(ClusterProblem, DeviceMemoryAndFreeDisksAreKnown) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b"), Server(3, "c")};
  view.servers[0].device_bytes = 5 << 20;
  view.servers[0].free_bytes = 10 * kGiB;
  view.servers[1].free_bytes = 1000;
  view.tables = {Placed(Spec(1, "u", 100000), 1, {2})};
  TakeFreeBytes(&view);
  const PlannerInput input = ClusterProblem(view);
  EXPECT_EQ(input.topology.device, PlannerDevice::kCuda);
  EXPECT_EQ(input.topology.servers[0].device_bytes, 5u << 20);
  EXPECT_EQ(input.topology.servers[0].spill_bytes, 8 * kGiB - kGiB - (5 << 20));
  // b may fill what it has now and four fifths of what is free, in whatever tier.
  EXPECT_EQ(input.topology.servers[1].host_bytes, 100000 * 68 + 800u);
  EXPECT_EQ(input.topology.servers[1].spill_bytes, 1u);
  EXPECT_GT(input.topology.servers[2].spill_bytes, 1ull << 40) << "unknown, not none";
  const PlanResult<PlannerOutput> plan = PlanCluster(input);
  ASSERT_TRUE(plan.ok()) << "what is there fits: " << plan.error().message;
}

TEST(PlaceNewTables, AFullDiskTakesNothingAsLongAsOthersHaveRoom) {
  ClusterView view;
  view.servers = {Server(1, "a", 1 << 20), Server(2, "b", 1 << 20)};
  view.servers[0].free_bytes = 1 << 20;
  view.servers[1].free_bytes = 10 * kGiB;
  TakeFreeBytes(&view);
  view.tables = {{Spec(1, "wide", 1000000), {}}};
  absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(ServersOf(*plan, view.tables[0].spec), ::testing::Each(2));
  view.servers[1].free_bytes = 1 << 20;
  TakeFreeBytes(&view);
  plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << "tables need not fill: " << plan.status();
  EXPECT_THAT(ServersOf(*plan, view.tables[0].spec), ::testing::Contains(1));
}

}  // namespace cluster_problem_test
}  // namespace hotbed
