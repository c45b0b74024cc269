#include "planner/model/plan_differences.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/numeric/int128.h"
#include "absl/strings/string_view.h"

namespace hotbed {
namespace {

// The part that both ranges share; empty if they do not meet.
PlacedRange Meet(const PlacedRange& a, const PlacedRange& b) {
  PlacedRange both;
  both.row_first = std::max(a.row_first, b.row_first);
  both.row_limit = std::min(a.row_limit, b.row_limit);
  both.column_first = std::max(a.column_first, b.column_first);
  both.column_limit = std::min(a.column_limit, b.column_limit);
  return both;
}

// Bytes of `part`, which lies in `whole`.
uint64_t Share(const PlacedRange& whole, const PlacedRange& part) {
  const auto area = [](const PlacedRange& range) {
    return absl::uint128(range.row_limit - range.row_first) *
           (range.column_limit - range.column_first);
  };
  if (area(part) == area(whole)) return whole.bytes;
  // By rows and columns one after the other: the product of all three may not fit 128 bits.
  const absl::uint128 rows = absl::uint128(whole.bytes) * (part.row_limit - part.row_first) /
                             (whole.row_limit - whole.row_first);
  return absl::Uint128Low64(rows * (part.column_limit - part.column_first) /
                            (whole.column_limit - whole.column_first));
}

}  // namespace

std::vector<PlannedMove> PlanDifferences(const PlannerOutput& before, const PlannerOutput& after,
                                         const std::string& reason) {
  absl::flat_hash_map<absl::string_view, const PlacedTable*> old_tables;
  for (const PlacedTable& table : before.tables) old_tables.emplace(table.name, &table);
  absl::flat_hash_set<absl::string_view> servers;
  for (const PlacedServer& server : after.servers) servers.insert(server.name);
  std::vector<PlannedMove> moves;
  for (const PlacedTable& table : after.tables) {
    const auto old = old_tables.find(table.name);
    if (old == old_tables.end()) continue;
    for (const PlacedRange& to : table.ranges) {
      if (to.role != Role::kPrimary) continue;
      for (const PlacedRange& from : old->second->ranges) {
        const std::string& from_name = before.servers[from.server].name;
        const std::string& to_name = after.servers[to.server].name;
        if (from.role != Role::kPrimary || from_name == to_name) continue;
        const PlacedRange both = Meet(from, to);
        if (both.row_first >= both.row_limit || both.column_first >= both.column_limit) continue;
        moves.push_back({table.name, both.row_first, both.row_limit, both.column_first,
                         both.column_limit, servers.contains(from_name) ? from_name : "", to_name,
                         Share(to, both), reason});
      }
    }
  }
  return moves;
}

}  // namespace hotbed
