// Clusters with several replicas of shards, with measured loads and bytes, as the planner's
// problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/cluster_problem.h"
#include "planner/model/placement.h"
#include "planner/model/validate_input.h"
#include "planner/plan_by_cost.h"

namespace hotbed {
namespace cluster_replicas_test {

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

TableSpec Copied(TableId id, const std::string& name, uint32_t replicas, uint64_t rows = 100000) {
  TableSpec spec = Spec(id, name, rows);
  spec.durability = Durability::kReplicated;
  spec.replicas = replicas;
  return spec;
}

TEST(PlaceNewTables, ReplicasOnDistinctDomains) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b"), Server(3, "c"), Server(4, "d")};
  view.servers[0].failure_domain = view.servers[2].failure_domain = "h1";
  view.servers[1].failure_domain = view.servers[3].failure_domain = "h2";
  view.tables = {{Spec(1, "one", 100000), {}}, {Copied(2, "two", 2), {}}};
  const absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::map<ServerId, int> replicas;
  for (const PlannedShard& shard : plan->shards) {
    ASSERT_THAT(shard.assignments, SizeIs(shard.shard.table));
    EXPECT_EQ(shard.assignments[0].role, Role::kPrimary);
    if (shard.shard.table == 1) continue;
    EXPECT_EQ(shard.assignments[1].role, Role::kBackup);
    EXPECT_NE(shard.assignments[0].server % 2, shard.assignments[1].server % 2);
    for (const Assignment& a : shard.assignments) ++replicas[a.server];
  }
  EXPECT_THAT(replicas, SizeIs(4)) << "every server holds some";
}

TEST(PlaceNewTables, TooFewDomainsAreNamed) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b"), Server(3, "c")};
  for (ClusterServer& server : view.servers) server.failure_domain = "127.0.0.1";
  view.tables = {{Copied(1, "clicks", 2), {}}};
  absl::Status status = PlaceNewTables(view).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* part : {"\"clicks\"", "2 replicas", "the 3 servers", "have 1"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  view.servers[2].failure_domain = "10.0.0.7";
  EXPECT_TRUE(PlaceNewTables(view).ok());
  view.servers[2].usable = false;
  EXPECT_EQ(PlaceNewTables(view).status().code(), absl::StatusCode::kFailedPrecondition);
}

// A replica that is missing since a server died, or a domain that is: nothing of what is there has
// to move before a table can be made.
TEST(PlaceNewTables, MissingReplicasOfOthersDoNotMatter) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b")};
  view.servers[1].usable = view.servers[1].reachable = false;
  view.tables = {Placed(Copied(1, "old", 2), 4, {1}), {Spec(2, "new", 100), {}}};
  view.tables[0].shards[0].backups = {2};
  const absl::StatusOr<Plan> plan = PlaceNewTables(view);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(plan->shards, SizeIs(1));
  EXPECT_EQ(plan->shards[0].assignments.front().server, 1u);
}

TEST(ClusterProblem, ADrainMovesPrimariesAndBackupsApart) {
  ClusterView view;
  for (ServerId s = 1; s <= 4; ++s) {
    view.servers.push_back(Server(s, std::string(1, static_cast<char>('a' + s - 1))));
    view.servers.back().failure_domain = s == 4 ? "h1" : absl::StrCat("h", s);
  }
  view.tables = {Placed(Copied(1, "u", 2), 8, {1, 2, 3})};
  for (uint32_t i = 0; i < 8; ++i) view.tables[0].shards[i].backups = {(i + 1) % 3 + 1};
  view.servers[1].draining = true;
  view.servers[1].usable = false;
  const PlanResult<PlannerOutput> plan = PlanCluster(ClusterProblem(view));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan.value().moves, SizeIs(6)) << "three primaries and three backups were on b";
  std::map<uint64_t, std::set<std::string>> domains;
  for (const PlacedRange& range : plan.value().tables[0].ranges) {
    EXPECT_NE(range.server, 1u) << "b is to be empty";
    domains[range.row_first].insert(view.servers[range.server].failure_domain);
  }
  ASSERT_THAT(domains, SizeIs(8));
  for (const auto& [row, names] : domains) EXPECT_THAT(names, SizeIs(2)) << row;
}

TEST(ClusterProblem, AReadOnlyServerGetsNothingAndKeepsWhatItHas) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "full"), Server(3, "c")};
  view.servers[0].usable = false;
  view.servers[0].draining = true;
  view.servers[1].usable = false;
  view.tables = {Placed(Spec(1, "u", 90000), 9, {1, 2})};
  const PlanResult<PlannerOutput> plan = PlanCluster(ClusterProblem(view));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan.value().moves, SizeIs(5));
  for (const PlannedMove& move : plan.value().moves) EXPECT_EQ(move.to, "c");
}

// The same shards, evenly placed by number: what is measured says that all the work is on a.
TEST(ClusterProblem, MeasuredLoadIsWhatCounts) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b")};
  view.tables = {Placed(Spec(1, "u", 100000), 8, {1, 2})};
  ASSERT_THAT(PlanCluster(ClusterProblem(view)).value().moves, SizeIs(0));
  for (uint32_t i = 0; i < 8; ++i) {
    ClusterShard& shard = view.tables[0].shards[i];
    shard.rows_pulled = shard.rows_pushed = shard.primary == 1 ? 1e6 : 1;
  }
  const PlannerInput input = ClusterProblem(view);
  ASSERT_FALSE(ValidateInput(input).has_value()) << ValidateInput(input)->message;
  double rows = 0;
  for (const MeasuredRange& range : input.tables[0].measured) rows += range.reads + range.updates;
  EXPECT_NEAR(rows, 2 * 65536, 1e-6);
  const PlanResult<PlannerOutput> plan = PlanCluster(input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_THAT(plan.value().moves, SizeIs(2)) << "two of the four that are busy";
  for (const PlannedMove& move : plan.value().moves) {
    EXPECT_EQ(move.from, "a");
    EXPECT_EQ(move.to, "b");
  }
}

TEST(ClusterProblem, MeasuredBytesCountWhereTheyAreMore) {
  ClusterView view;
  view.servers = {Server(1, "a", 7 << 20), Server(2, "b", 64 << 20)};
  for (ClusterServer& server : view.servers) server.spill_bytes = 1;
  TableSpec spec = Spec(1, "ids", 0);
  spec.hashed = true;
  view.tables = {Placed(spec, 8, {1, 2})};
  ASSERT_THAT(PlanCluster(ClusterProblem(view)).value().moves, SizeIs(0));
  for (uint32_t i = 0; i < 8; i += 2) {
    view.servers[0].replicas.push_back({{1, i}, 0, 0, 2 << 20});
  }
  TakeMeasuredBytes(&view);
  EXPECT_EQ(view.tables[0].shards[0].bytes, 2u << 20);
  const PlanResult<PlannerOutput> plan = PlanCluster(ClusterProblem(view));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_FALSE(plan.value().moves.empty()) << "8 MiB on a, which has 7";
  EXPECT_EQ(plan.value().moves[0].reason, "a is above its capacity");
  EXPECT_GE(plan.value().moves[0].bytes, 2u << 20);
}

TEST(ClusterProblem, ReadReplicasTakeRoomEverywhere) {
  ClusterView view;
  view.servers = {Server(1, "a"), Server(2, "b")};
  for (ClusterServer& server : view.servers) server.spill_bytes = kGiB;
  view.tables = {Placed(Spec(1, "u", 100000), 2, {1})};
  view.tables[0].spec.data_parallel = true;
  const PlannerInput input = ClusterProblem(view);
  EXPECT_EQ(input.topology.servers[0].spill_bytes, kGiB);
  EXPECT_EQ(input.topology.servers[1].spill_bytes, kGiB - 100000 * 68);
}

}  // namespace cluster_replicas_test
}  // namespace hotbed
