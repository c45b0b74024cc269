#include "planner/sources/plan_by_row_space.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
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
  } else {
    Place(input, servers.value(), WholeMembers(Ordered(input.options, rows, count), rows), &plan);
  }
  return plan;
}

}  // namespace hotbed
