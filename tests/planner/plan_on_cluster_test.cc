// Plans of any strategy on the shards of a live cluster, and tables that are created for a plan.
#include "planner/plan_on_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "planner/compute_plan.h"
#include "planner/model/placement.h"
#include "planner/model/refine.h"
#include "tests/common/test_seed.h"
#include "tests/planner/random_input.h"

namespace hotbed {
namespace plan_on_cluster_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TableSpec Spec(const std::string& name, uint64_t rows, uint32_t dim, uint32_t replicas = 1) {
  TableSpec spec;
  spec.id = 1;
  spec.name = name;
  spec.rows = rows;
  spec.dim = dim;
  spec.replicas = replicas;
  spec.durability = replicas > 1 ? Durability::kReplicated : Durability::kLog;
  spec.optimizer.kind = OptimizerKind::kSgd;
  return spec;
}

ClusterView Servers(const std::vector<std::string>& names) {
  ClusterView view;
  for (const std::string& name : names) {
    ClusterServer& server = view.servers.emplace_back();
    server.id = 10 + view.servers.size();
    server.name = name;
    server.host_bytes = 1 << 30;
  }
  return view;
}

// Rows [0, 100), [100, 200), ... of table "t", shard i with the members of `holders[i]`.
ClusterView Live(const std::vector<std::string>& names,
                 const std::vector<std::vector<ServerId>>& holders, uint32_t replicas = 1) {
  ClusterView view = Servers(names);
  ClusterTable& table = view.tables.emplace_back();
  table.spec = Spec("t", 100 * holders.size(), 16, replicas);
  for (const std::vector<ServerId>& on : holders) {
    const uint64_t first = 100 * table.shards.size();
    table.shards.push_back({{first, first + 100, 0, 16}, on[0], {on.begin() + 1, on.end()}});
  }
  return view;
}

struct Range {
  std::string server;
  uint64_t first;
  uint64_t limit;
  uint32_t column_first = 0;
  uint32_t column_limit = 16;
  Role role = Role::kPrimary;
};

PlannerOutput PlanOf(const std::string& table, const std::vector<Range>& ranges) {
  PlannerOutput plan;
  PlacedTable& placed = plan.tables.emplace_back();
  placed.name = table;
  std::map<std::string, uint32_t> servers;
  for (const Range& r : ranges) {
    const auto [it, added] = servers.emplace(r.server, plan.servers.size());
    if (added) plan.servers.emplace_back().name = r.server;
    PlacedRange& range = placed.ranges.emplace_back();
    range.server = it->second;
    range.role = r.role;
    range.row_first = r.first;
    range.row_limit = r.limit;
    range.column_first = r.column_first;
    range.column_limit = r.column_limit;
  }
  return plan;
}

std::vector<std::string> Lines(const std::vector<WantedShard>& goals) {
  std::vector<std::string> lines;
  for (const WantedShard& goal : goals) {
    lines.push_back(absl::StrCat(goal.shard.index, ":"));
    for (const ServerId server : goal.servers) absl::StrAppend(&lines.back(), " ", server);
  }
  return lines;
}

#define EXPECT_REFUSED(expression, expected_code, matcher)                 \
  do {                                                                     \
    const absl::Status status_ = (expression).status();                    \
    EXPECT_EQ(status_.code(), absl::StatusCode::expected_code) << status_; \
    EXPECT_THAT(std::string(status_.message()), matcher);                  \
  } while (false)

TEST(WantedByPlan, OnlyShardsThatAreElsewhereMove) {
  const ClusterView view = Live({"a", "b", "c"}, {{11}, {12}, {12}, {13}});
  const PlannerOutput plan = PlanOf("t", {{"a", 0, 150}, {"a", 150, 200}, {"b", 200, 400}});
  const auto wanted = WantedByPlan(view, plan, "why");
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_THAT(Lines(*wanted), ElementsAre("1: 11", "3: 12"));
  EXPECT_EQ((*wanted)[0].reason, "why");
  const std::vector<PlannedMove> moves = MovesOf(view, *wanted);
  ASSERT_THAT(moves, SizeIs(2));
  EXPECT_EQ(moves[0].from, "b");
  EXPECT_EQ(moves[0].to, "a");
  EXPECT_EQ(moves[0].row_first, 100u);
  EXPECT_EQ(moves[0].bytes, 100u * 64);
  EXPECT_EQ(moves[1].from, "c");
  EXPECT_THAT(*WantedByPlan(After(view, *wanted), plan, ""), IsEmpty());
}

TEST(WantedByPlan, ACutShardIsRefusedByName) {
  const ClusterView view = Live({"a", "b"}, {{11}, {11}});
  EXPECT_REFUSED(WantedByPlan(view, PlanOf("t", {{"a", 0, 150}, {"b", 150, 200}}), ""),
                 kFailedPrecondition,
                 AllOf(HasSubstr("table \"t\", shard 1 (rows [100, 200) x columns [0, 16))"),
                       HasSubstr("parts of it on a and b"), HasSubstr("as a whole")));
  EXPECT_REFUSED(WantedByPlan(view, PlanOf("t", {{"a", 0, 200, 0, 8}, {"b", 0, 200, 8, 16}}), ""),
                 kFailedPrecondition, HasSubstr("shard 0"));
}

TEST(CutsByPlan, CutsWhereThePartsOfAShardMeet) {
  const ClusterView view = Live({"a", "b"}, {{11}, {11}});
  const PlannerOutput plan =
      PlanOf("t", {{"a", 0, 30}, {"a", 30, 60}, {"b", 60, 80}, {"a", 80, 100}, {"b", 100, 200}});
  const auto cuts = CutsByPlan(view, plan);
  ASSERT_TRUE(cuts.ok()) << cuts.status();
  ASSERT_THAT(*cuts, SizeIs(1)) << "shard 1 is on one server";
  EXPECT_EQ((*cuts)[0].shard.index, 0u);
  EXPECT_THAT((*cuts)[0].at, ElementsAre(80, 60)) << "not at 30: a has both sides";
  const ClusterView after = AfterCuts(view, *cuts);
  std::vector<std::string> shards;
  for (const ClusterShard& shard : after.tables[0].shards) {
    shards.push_back(absl::StrCat(shard.index, ": ", shard.range.first, "-", shard.range.limit));
  }
  EXPECT_THAT(shards, ElementsAre("0: 0-60", "3: 60-80", "2: 80-100", "1: 100-200"));
  EXPECT_THAT(*CutsByPlan(after, plan), IsEmpty());
  const auto wanted = WantedByPlan(after, plan, "");
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_THAT(Lines(*wanted), ElementsAre("3: 12", "1: 12"));
}

TEST(CutsByPlan, NoCutAtRowsDividesColumns) {
  const ClusterView view = Live({"a", "b"}, {{11}, {11}});
  EXPECT_REFUSED(
      CutsByPlan(view, PlanOf("t", {{"a", 0, 50, 0, 8}, {"b", 0, 50, 8, 16}, {"a", 50, 200}})),
      kFailedPrecondition, HasSubstr("shard 0"));
}

std::vector<std::string> Texts(const absl::StatusOr<std::vector<WantedMerge>>& merges) {
  if (!merges.ok()) return {std::string(merges.status().message())};
  std::vector<std::string> texts;
  for (const WantedMerge& merge : *merges) {
    texts.push_back(absl::StrCat(merge.upper.index, " into ", merge.lower.index, " at ", merge.at));
  }
  return texts;
}

TEST(MergesByPlan, NeighboursInOneRangeBecomeOneShard) {
  const ClusterView view = Live({"a", "b"}, {{11}, {11}, {11}, {12}, {12}});
  const PlannerOutput plan = PlanOf("t", {{"a", 0, 300}, {"b", 300, 400}, {"b", 400, 500}});
  EXPECT_THAT(Texts(MergesByPlan(view, plan)), ElementsAre("1 into 0 at 100", "2 into 0 at 200"))
      << "the plan has an edge between the two of b";
  const PlannerOutput joined = PlanOf("t", {{"a", 0, 300}, {"b", 300, 500}});
  EXPECT_THAT(Texts(MergesByPlan(view, joined)), Contains("4 into 3 at 400"));
  EXPECT_THAT(Texts(MergesByPlan(view, PlanOf("t", {{"a", 0, 250}, {"a", 250, 500}}))),
              ElementsAre("1 into 0 at 100", "4 into 3 at 400"))
      << "shard 2 lies in neither range";
}

TEST(MergesByPlan, TheSmallestFirstAndNoneAboveTheLimit) {
  ClusterView view = Live({"a"}, {{11}, {11}, {11}, {11}});
  std::vector<ClusterShard>& shards = view.tables[0].shards;
  const PlannerOutput plan = PlanOf("t", {{"a", 0, 400}});
  shards[0].bytes = 200 << 20;
  shards[1].bytes = 100 << 20;
  EXPECT_THAT(Texts(MergesByPlan(view, plan)), ElementsAre("3 into 2 at 300", "2 into 1 at 200"))
      << "with shard 0 they would have 300 MiB";
}

TEST(MergesByPlan, SomeTablesAreNeverMerged) {
  for (const auto change : std::vector<void (*)(TableSpec*)>{
           [](TableSpec* spec) { spec->data_parallel = true; },
           [](TableSpec* spec) { spec->consistency = Consistency::kSync; }}) {
    ClusterView view = Live({"a"}, {{11}, {11}});
    EXPECT_THAT(Texts(MergesByPlan(view, PlanOf("t", {{"a", 0, 200}}))), SizeIs(1));
    change(&view.tables[0].spec);
    EXPECT_THAT(Texts(MergesByPlan(view, PlanOf("t", {{"a", 0, 200}}))), IsEmpty());
  }
}

TEST(WantedByPlan, APlanOfAnotherTableOrClusterIsRefusedByName) {
  const ClusterView view = Live({"a", "b"}, {{11}, {11}});
  EXPECT_REFUSED(WantedByPlan(view, PlanOf("u", {{"a", 0, 200}}), ""), kNotFound,
                 HasSubstr("table \"u\""));
  EXPECT_REFUSED(WantedByPlan(view, PlanOf("t", {{"d", 0, 200}}), ""), kNotFound,
                 AllOf(HasSubstr("server \"d\""), HasSubstr("it has a, b")));
  EXPECT_REFUSED(WantedByPlan(view, PlanOf("t", {{"a", 0, 300}}), ""), kFailedPrecondition,
                 HasSubstr("outside of the table's 200 x 16"));
  EXPECT_REFUSED(WantedByPlan(view, PlanOf("t", {{"a", 0, 100}}), ""), kFailedPrecondition,
                 HasSubstr("cover 1600 of 3200"));
  PlannerOutput twice = PlanOf("t", {{"a", 0, 200}});
  twice.tables.push_back(twice.tables[0]);
  EXPECT_REFUSED(WantedByPlan(view, twice, ""), kFailedPrecondition, HasSubstr("twice"));
}

TEST(WantedByPlan, BackupsAreAsAskedOrStay) {
  const ClusterView view = Live({"a", "b", "c"}, {{11, 12}, {11, 13}, {12, 11}}, 2);
  // The primary of shard 0 changes places with its backup; shard 1 gets another primary beside its
  // backup; shard 2 is there.
  const auto primaries = WantedByPlan(view, PlanOf("t", {{"b", 0, 300}}), "");
  ASSERT_TRUE(primaries.ok()) << primaries.status();
  EXPECT_THAT(Lines(*primaries), ElementsAre("0: 12 11", "1: 12 13"));
  EXPECT_THAT(MovesOf(view, *primaries), SizeIs(1)) << "roles alone are no move";
  const auto all =
      WantedByPlan(view, PlanOf("t", {{"a", 0, 300}, {"c", 0, 300, 0, 16, Role::kBackup}}), "");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(Lines(*all), ElementsAre("0: 11 13", "2: 11 13"));
  EXPECT_REFUSED(WantedByPlan(view,
                              PlanOf("t", {{"a", 0, 300},
                                           {"b", 0, 300, 0, 16, Role::kBackup},
                                           {"c", 0, 300, 0, 16, Role::kBackup}}),
                              ""),
                 kFailedPrecondition, HasSubstr("3 replicas of it, and the table has 2"));
  EXPECT_REFUSED(
      WantedByPlan(view, PlanOf("t", {{"a", 0, 300}, {"a", 0, 300, 0, 16, Role::kBackup}}), ""),
      kFailedPrecondition, HasSubstr("two replicas of it on a"));
  EXPECT_REFUSED(
      WantedByPlan(view, PlanOf("t", {{"a", 0, 300}, {"b", 0, 250, 0, 16, Role::kBackup}}), ""),
      kFailedPrecondition, HasSubstr("shard 2"));
}

TEST(WantedByPlan, ABackupMakesWayInItsFailureDomain) {
  ClusterView view = Live({"a", "b", "c"}, {{11, 12}}, 2);
  view.servers[0].failure_domain = "x";
  view.servers[1].failure_domain = view.servers[2].failure_domain = "y";
  const auto wanted = WantedByPlan(view, PlanOf("t", {{"c", 0, 100}}), "");
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_THAT(Lines(*wanted), ElementsAre("0: 13 11")) << "c and b would fail together";
}

TEST(WantedByPlan, ReadReplicasAreThoseOfTheTable) {
  ClusterView view = Live({"a", "b"}, {{11}});
  const PlannerOutput plan = PlanOf("t", {{"b", 0, 100}, {"a", 0, 100, 0, 16, Role::kReplica}});
  EXPECT_REFUSED(WantedByPlan(view, plan, ""), kFailedPrecondition,
                 HasSubstr("without --data-parallel"));
  view.tables[0].spec.data_parallel = true;
  EXPECT_THAT(Lines(*WantedByPlan(view, plan, "")), ElementsAre("0: 12"));
}

TEST(CutAsPlanned, ShardsAreThePlansRanges) {
  const ClusterView view = Servers({"a", "b"});
  const auto rows =
      CutAsPlanned(view, Spec("t", 1000, 16), PlanOf("t", {{"a", 0, 300}, {"b", 300, 1000}}));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_THAT(rows->shards, SizeIs(2)) << "small: it need not be cut further";
  EXPECT_EQ(rows->shards[0].range.limit, 300u);
  EXPECT_THAT(rows->shards[0].servers, ElementsAre(11));
  EXPECT_THAT(rows->shards[1].servers, ElementsAre(12));
  EXPECT_EQ(rows->spec.column_slices, 1u);
  const auto large = CutAsPlanned(view, Spec("t", 100000, 16),
                                  PlanOf("t", {{"a", 0, 30000}, {"b", 30000, 100000}}));
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_GE(large->shards.size(), 8u);
  for (const NewShard& shard : large->shards) {
    EXPECT_EQ(shard.servers[0], shard.range.limit <= 30000 ? 11u : 12u);
    EXPECT_TRUE(shard.range.limit <= 30000 || shard.range.first >= 30000);
  }
}

TEST(CutAsPlanned, ColumnsBecomeTheFewestSlices) {
  const ClusterView view = Servers({"a", "b"});
  const PlannerOutput plan = PlanOf("t", {{"a", 0, 100, 0, 12}, {"b", 0, 100, 12, 16}});
  TableSpec spec = Spec("t", 100, 16);
  const auto planned = CutAsPlanned(view, spec, plan);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->spec.column_slices, 4u);
  ASSERT_THAT(planned->shards, SizeIs(4));
  EXPECT_EQ(planned->shards[2].range.column_first, 8u);
  EXPECT_THAT(planned->shards[2].servers, ElementsAre(11));
  EXPECT_THAT(planned->shards[3].servers, ElementsAre(12));
  spec.column_slices = 2;
  EXPECT_REFUSED(CutAsPlanned(view, spec, plan), kFailedPrecondition,
                 HasSubstr("16 columns where 2 column slices of equal width end"));
  spec.column_slices = 1;
  spec.optimizer.kind = OptimizerKind::kRowwiseAdagrad;
  EXPECT_REFUSED(CutAsPlanned(view, spec, plan), kInvalidArgument, HasSubstr("column_slices is 4"));
}

TEST(CutAsPlanned, SlicesAreAllCutAtTheSameRows) {
  const auto planned = CutAsPlanned(
      Servers({"a", "b"}), Spec("t", 100, 16),
      PlanOf(
          "t",
          {{"a", 0, 40, 0, 8}, {"b", 40, 100, 0, 8}, {"b", 0, 70, 8, 16}, {"a", 70, 100, 8, 16}}));
  ASSERT_TRUE(planned.ok()) << planned.status();
  ASSERT_THAT(planned->shards, SizeIs(6));
  std::vector<ServerId> servers;
  for (const NewShard& shard : planned->shards) servers.push_back(shard.servers[0]);
  EXPECT_THAT(servers, ElementsAre(11, 12, 12, 12, 12, 11));
  EXPECT_EQ(planned->shards[4].range.first, 40u);
  EXPECT_EQ(planned->shards[4].range.limit, 70u);
}

TEST(CutAsPlanned, RefusalsNameTheTable) {
  const ClusterView view = Servers({"a", "b"});
  EXPECT_REFUSED(CutAsPlanned(view, Spec("u", 100, 16), PlanOf("t", {{"a", 0, 100}})), kNotFound,
                 HasSubstr("table \"u\" is not in the plan"));
  EXPECT_REFUSED(CutAsPlanned(view, Spec("t", 100, 8), PlanOf("t", {{"a", 0, 100}})),
                 kFailedPrecondition, HasSubstr("100 rows x 8 columns"));
  std::vector<Range> many;
  for (uint64_t i = 0; i < 1025; ++i) many.push_back({i % 2 == 0 ? "a" : "b", i, i + 1});
  EXPECT_REFUSED(CutAsPlanned(view, Spec("t", 1025, 16), PlanOf("t", many)), kInvalidArgument,
                 HasSubstr("1025 shards of it, the limit is 1024"));
  const auto everywhere = CutAsPlanned(
      view, Spec("t", 100, 16), PlanOf("t", {{"a", 0, 100}, {"b", 0, 100, 0, 16, Role::kReplica}}));
  ASSERT_TRUE(everywhere.ok()) << everywhere.status();
  EXPECT_TRUE(everywhere->spec.data_parallel);
}

TableToCreate Halves(uint32_t replicas) {
  return {Spec("t", 100, 16, replicas), {{{0, 50, 0, 16}, {11}}, {{50, 100, 0, 16}, {12}}}};
}

TEST(PlaceAsAsked, PrimariesAsAskedAndBackupsApart) {
  ClusterView view = Servers({"a", "b", "c"});
  auto plan = PlaceAsAsked(view, Halves(2));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(plan->shards, SizeIs(2));
  for (const PlannedShard& shard : plan->shards) {
    ASSERT_THAT(shard.assignments, SizeIs(2));
    EXPECT_EQ(shard.assignments[0].server, 11u + shard.shard.index);
    EXPECT_NE(shard.assignments[1].server, shard.assignments[0].server);
    EXPECT_EQ(shard.assignments[1].role, Role::kBackup);
  }
  TableToCreate given = Halves(2);
  given.shards[0].servers = {13, 12};
  given.shards[1].servers = {12, 13};
  plan = PlaceAsAsked(view, given);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shards[0].assignments[0].server, 13u);
  EXPECT_EQ(plan->shards[0].assignments[1].server, 12u);
}

TEST(PlaceAsAsked, WhatCannotBeIsRefusedByName) {
  ClusterView view = Servers({"a", "b", "c"});
  TableToCreate table = Halves(1);
  table.shards[1].range.first = 51;
  EXPECT_REFUSED(PlaceAsAsked(view, table), kInvalidArgument,
                 AllOf(HasSubstr("do not tile 100 rows"), HasSubstr("shard 1 is rows [51, 100)")));
  table = Halves(1);
  table.shards.pop_back();
  EXPECT_REFUSED(PlaceAsAsked(view, table), kInvalidArgument, HasSubstr("do not tile"));
  table = Halves(1);
  table.shards[0].servers = {};
  EXPECT_REFUSED(PlaceAsAsked(view, table), kInvalidArgument, HasSubstr("no server"));
  table.shards[0].servers = {99};
  EXPECT_REFUSED(PlaceAsAsked(view, table), kNotFound, HasSubstr("no server 99"));
  table.shards[0].servers = {11, 12};
  EXPECT_REFUSED(PlaceAsAsked(view, table), kFailedPrecondition, HasSubstr("given 2 servers"));
  view.servers[0].usable = false;
  EXPECT_REFUSED(PlaceAsAsked(view, Halves(1)), kFailedPrecondition,
                 HasSubstr("shard 0: a may not take shards"));
  view.servers[0].usable = true;
  view.servers[0].failure_domain = view.servers[1].failure_domain = "x";
  table = Halves(2);
  for (NewShard& shard : table.shards) shard.servers = {11, 12};
  EXPECT_REFUSED(PlaceAsAsked(view, table), kFailedPrecondition,
                 HasSubstr("a and b are in one failure domain"));
  table.spec.column_slices = 2;
  EXPECT_REFUSED(PlaceAsAsked(view, table), kInvalidArgument, HasSubstr("2 column slices"));
}

// What no table may be, no plan has.
TEST(ComputePlan, ShapesOfNoTableAreRefused) {
  for (int strategy = 0; strategy < 8; ++strategy) {
    PlannerInput input = EqualServers(2, 1 << 30, 0);
    input.options.strategy = static_cast<PlannerStrategy>(strategy);
    input.options.column_slice_threshold = 1 << 30;
    AddTable(input, "wide", 1000, 8192, 10);
    input.tables[0].optimizer = PlannerOptimizer::kSgd;
    AddTable(input, "other", 1000, 8192, 10);
    input.tables[1].optimizer = PlannerOptimizer::kSgd;
    const PlanResult<PlannerOutput> plan = ComputePlan(input);
    ASSERT_TRUE(plan.ok()) << plan.error().message << " strategy " << strategy;
    input.tables[0].dim = 9000;
    const PlanResult<PlannerOutput> wide = ComputePlan(input);
    ASSERT_FALSE(wide.ok());
    EXPECT_EQ(wide.error().kind, PlanErrorKind::kInput);
    EXPECT_EQ(wide.error().table, "wide");
    EXPECT_EQ(wide.error().limit, 8192u);
    EXPECT_THAT(wide.error().message, HasSubstr("dim is 9000, allowed: 1..8192"));
  }
  PlannerInput input = EqualServers(5, 1 << 30, 0);
  AddTable(input, "many", 1000, 8, 10);
  input.tables[0].replicas = 4;
  EXPECT_THAT(ComputePlan(input).error().message, HasSubstr("replicas is 4, allowed: 1..3"));
}

// Any plan of any strategy becomes tables, and those lie as the plan says.
TEST(CutAsPlanned, AnyPlanOfAnyStrategyIsReached) {
  const TestSeed seed(11);
  Random random(seed.value());
  int reached = 0;
  for (int round = 0; round < 300; ++round) {
    RandomInputLimits limits;
    limits.rows_max = 5000;
    limits.constraints = limits.drain = limits.replicas = false;
    limits.room_min = 4;
    PlannerInput input = RandomInput(random, limits);
    input.options.strategy = static_cast<PlannerStrategy>(round % 8);
    if (input.options.strategy == PlannerStrategy::kBasic) {
      input.options.row_slice_threshold = 2000;
      input.options.data_parallel_threshold = 100;
    }
    const PlanResult<PlannerOutput> plan = ComputePlan(input);
    if (!plan.ok()) continue;
    ClusterView view;
    for (const InputServer& server : input.topology.servers) {
      view.servers.push_back({.id = 1 + view.servers.size(), .name = server.name});
    }
    for (const InputTable& table : input.tables) {
      TableSpec spec = Spec(table.name, table.rows, table.dim);
      spec.id = static_cast<TableId>(1 + view.tables.size());
      spec.hashed = table.hashed;
      spec.optimizer.kind = OptimizerKind::kAdagrad;
      const auto planned = CutAsPlanned(view, spec, plan.value());
      ASSERT_TRUE(planned.ok()) << planned.status() << " round " << round;
      const auto placed = PlaceAsAsked(view, *planned);
      ASSERT_TRUE(placed.ok()) << placed.status() << " round " << round;
      ClusterTable& live = view.tables.emplace_back();
      live.spec = planned->spec;
      for (const PlannedShard& shard : placed->shards) {
        live.shards.push_back({shard.range, shard.assignments[0].server, {}});
      }
    }
    const auto wanted = WantedByPlan(view, plan.value(), "");
    ASSERT_TRUE(wanted.ok()) << wanted.status() << " round " << round;
    EXPECT_THAT(*wanted, IsEmpty()) << "round " << round;
    ++reached;
  }
  EXPECT_GT(reached, 100);
}

}  // namespace plan_on_cluster_test
}  // namespace hotbed
