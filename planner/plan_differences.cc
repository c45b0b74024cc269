#include "planner/plan_differences.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "planner/finish_plan.h"

namespace hotbed {
namespace {

// Where both ranges lie; empty ranges where they do not meet.
PlacedRange Meet(const PlacedRange& a, const PlacedRange& b) {
  PlacedRange both;
  both.row_first = std::max(a.row_first, b.row_first);
  both.row_limit = std::min(a.row_limit, b.row_limit);
  both.column_first = std::max(a.column_first, b.column_first);
  both.column_limit = std::min(a.column_limit, b.column_limit);
  return both;
}

}  // namespace

std::vector<PlannedMove> PlanDifferences(const std::vector<InputTable>& tables,
                                         const PlannerOutput& before, const PlannerOutput& after,
                                         const std::string& reason) {
  absl::flat_hash_map<absl::string_view, const PlacedTable*> old_tables;
  for (const PlacedTable& table : before.tables) old_tables.emplace(table.name, &table);
  absl::flat_hash_map<absl::string_view, const InputTable*> specs;
  for (const InputTable& table : tables) specs.emplace(table.name, &table);
  absl::flat_hash_set<absl::string_view> servers;
  for (const PlacedServer& server : after.servers) servers.insert(server.name);
  std::vector<PlannedMove> moves;
  for (const PlacedTable& table : after.tables) {
    const auto old = old_tables.find(table.name);
    const auto spec = specs.find(table.name);
    if (old == old_tables.end() || spec == specs.end()) continue;
    for (const PlacedRange& to : table.ranges) {
      if (to.role != Role::kPrimary) continue;
      for (const PlacedRange& from : old->second->ranges) {
        const std::string& from_name = before.servers[from.server].name;
        const std::string& to_name = after.servers[to.server].name;
        if (from.role != Role::kPrimary || from_name == to_name) continue;
        PlacedRange both = Meet(from, to);
        if (both.row_first >= both.row_limit || both.column_first >= both.column_limit) continue;
        MeasureRange(*spec->second, &both);
        moves.push_back({table.name, both.row_first, both.row_limit, both.column_first,
                         both.column_limit, servers.contains(from_name) ? from_name : "", to_name,
                         both.bytes, reason});
      }
    }
  }
  return moves;
}

}  // namespace hotbed
