#include "planner/sources/plan_by_row_space.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "common/tables/composition.h"
#include "planner/model/fused_groups.h"
#include "planner/model/placement.h"
#include "planner/model/plan_names.h"
#include "planner/sources/divide_rows.h"
#include "planner/sources/group_features.h"
#include "planner/sources/usable_servers.h"

namespace hotbed {
namespace {

// The end of the rows before `row`, in the units of the table's ranges: rows, or buckets.
uint64_t Unit(const InputTable& table, uint64_t row) {
  if (!table.hashed) return row;
  const absl::uint128 nearest = (absl::uint128(row) * kHashBuckets + table.rows / 2) / table.rows;
  return absl::Uint128Low64(nearest);
}

// One group of tables, or of parts of them, a server.
void Place(const PlannerInput& input, const std::vector<uint32_t>& servers,
           const std::vector<std::vector<GroupMember>>& groups, PlannerOutput* plan) {
  std::vector<std::vector<std::string>> features_of(input.tables.size());
  for (const InputFeature& feature : input.features) {
    features_of[feature.table].push_back(feature.name);
  }
  FusedGroups fused(plan->servers.size());
  uint64_t row_base = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    PlacedServer& server = plan->servers[servers[g]];
    server.row_base = row_base;
    for (const GroupMember& member : groups[g]) {
      const InputTable& table = input.tables[member.feature];
      row_base += member.row_limit - member.row_first;
      fused.Add(servers[g], table, table.dim, member.row_limit - member.row_first);
      for (const std::string& name : features_of[member.feature]) {
        server.features.push_back(name);
        server.feature_offsets.push_back(member.offset);
      }
      const uint64_t first = Unit(table, member.row_first);
      const uint64_t limit = Unit(table, member.row_limit);
      if (first == limit) continue;
      plan->tables[member.feature].ranges.push_back({.server = servers[g],
                                                     .role = Role::kPrimary,
                                                     .row_first = first,
                                                     .row_limit = limit,
                                                     .column_first = 0,
                                                     .column_limit = table.dim});
    }
  }
  fused.MoveTo(plan);
  for (PlacedTable& table : plan->tables) {
    table.sharding = table.ranges.size() > 1 ? Sharding::kRowWise : Sharding::kTableWise;
  }
}

// The dims and buckets with which the source makes low-rank and quotient-remainder tables of the
// rows of each group: with `rows_of`(g) of `all` rows in the dim rule, and `buckets_of`(g) in the
// other.
template <typename RowsOf, typename BucketsOf>
void NameParts(const PlannerInput& input, const std::vector<uint32_t>& servers, size_t groups,
               uint64_t all, const RowsOf& rows_of, const BucketsOf& buckets_of,
               PlannerOutput* plan) {
  uint32_t dim = 1;
  for (const InputTable& table : input.tables) dim = std::max(dim, table.dim);
  for (size_t g = 0; g < groups; ++g) {
    PlacedServer& server = plan->servers[servers[g]];
    server.block_dim = BlockDim(dim, all, rows_of(g));
    server.buckets = DefaultBuckets(buckets_of(g));
  }
}

FeatureGroups Ordered(const PlannerOptions& options, const std::vector<uint64_t>& rows,
                      uint32_t groups) {
  switch (options.order) {
    case FeatureOrder::kAscending:
      return GroupAscending(rows, groups);
    case FeatureOrder::kShuffled:
      return GroupShuffled(static_cast<uint32_t>(rows.size()), groups, options.seed);
    case FeatureOrder::kDifference:
      break;
  }
  return GroupByDifference(rows, groups);
}

std::vector<std::vector<GroupMember>> WholeMembers(const FeatureGroups& groups,
                                                   const std::vector<uint64_t>& rows) {
  std::vector<std::vector<GroupMember>> members(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    uint64_t offset = 0;
    for (const uint32_t feature : groups[g]) {
      members[g].push_back({feature, 0, rows[feature], offset});
      offset += rows[feature];
    }
  }
  return members;
}

}  // namespace

PlanResult<PlannerOutput> PlanByRowSpace(const PlannerInput& input) {
  const PlanResult<std::vector<uint32_t>> servers = UsableServers(input);
  if (!servers.ok()) return servers.error();
  const auto count = static_cast<uint32_t>(servers.value().size());
  PlannerOutput plan;
  plan.strategy = PlanWord(input.options.strategy);
  if (input.options.strict && input.tables.size() < count) {
    return PlanError{PlanErrorKind::kStrictConstraints,
                     absl::StrCat("strategy ", plan.strategy,
                                  " needs at least as many features as "
                                  "servers: there are ",
                                  input.tables.size(), " tables for ", count,
                                  " servers; fewer servers help, or leaving out strict")};
  }
  plan.servers.resize(input.topology.servers.size());
  std::vector<uint64_t> rows;
  for (const InputTable& table : input.tables) {
    plan.tables.push_back({.name = table.name});
    rows.push_back(table.rows);
  }
  if (input.options.strategy == PlannerStrategy::kFair) {
    FairDivision division = DivideRows(rows, count);
    plan.cuts = std::move(division.cuts);
    Place(input, servers.value(), DropEmpty(std::move(division.groups)), &plan);
    // By the number of groups: the remainder of the last one does not count.
    NameParts(
        input, servers.value(), count, count, [](size_t) { return 1; },
        [&](size_t) { return division.rows_per_group; }, &plan);
  } else {
    const auto members = WholeMembers(Ordered(input.options, rows, count), rows);
    const auto rows_of = [&](size_t g) {
      return members[g].empty() ? 0 : members[g].back().offset + rows[members[g].back().feature];
    };
    Place(input, servers.value(), members, &plan);
    NameParts(input, servers.value(), members.size(),
              std::accumulate(rows.begin(), rows.end(), uint64_t{0}), rows_of, rows_of, &plan);
  }
  return plan;
}

}  // namespace hotbed
