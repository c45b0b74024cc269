// The invariants of any plan, for tests of every strategy.
#ifndef HOTBED_TESTS_PLANNER_PLAN_FAULT_H_
#define HOTBED_TESTS_PLANNER_PLAN_FAULT_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/model/placement.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"
#include "planner/model/tiling.h"

namespace hotbed {

// The first thing that is wrong with `plan`, or "": tables and servers in the input's order, every
// element owned by exactly one primary, ranges in order, no two members of a range on one server,
// the servers' sums right, no capacity exceeded, outputs in the features' order.
inline std::string PlanFault(const PlannerInput& input, const PlannerOutput& plan) {
  if (plan.tables.size() != input.tables.size()) return "not as many tables as the input";
  if (plan.servers.size() != input.topology.servers.size()) return "not as many servers";
  std::vector<uint64_t> elements(plan.servers.size());
  for (size_t t = 0; t < plan.tables.size(); ++t) {
    const PlacedTable& table = plan.tables[t];
    const InputTable& spec = input.tables[t];
    if (table.name != spec.name) return absl::StrCat("table ", t, " is ", table.name);
    if (auto fault = TilingFault(table.ranges, spec.hashed ? kHashBuckets : spec.rows, spec.dim)) {
      return absl::StrCat(table.name, ": ", *fault);
    }
    for (size_t i = 0; i < table.ranges.size(); ++i) {
      const PlacedRange& range = table.ranges[i];
      if (range.server >= plan.servers.size()) return absl::StrCat(table.name, ": no such server");
      elements[range.server] += range.elements;
      if (i == 0) continue;
      const PlacedRange& last = table.ranges[i - 1];
      if (std::tie(last.server, last.row_first, last.column_first, last.role) >=
          std::tie(range.server, range.row_first, range.column_first, range.role)) {
        return absl::StrCat(table.name, ": shard ", i, " is out of order");
      }
      if (last.server == range.server && last.row_limit > range.row_first &&
          last.column_limit > range.column_first) {
        return absl::StrCat(table.name, ": shard ", i, " meets another on its server");
      }
    }
  }
  for (size_t s = 0; s < plan.servers.size(); ++s) {
    const PlacedServer& server = plan.servers[s];
    const InputServer& spec = input.topology.servers[s];
    if (server.name != spec.name) return absl::StrCat("server ", s, " is ", server.name);
    if (server.elements != elements[s])
      return absl::StrCat(server.name, ": elements do not add up");
    if (server.bytes.device > spec.device_bytes || server.bytes.host > spec.host_bytes ||
        server.bytes.spill > spec.spill_bytes) {
      return absl::StrCat(server.name, ": beyond its capacity");
    }
  }
  uint64_t position = 0;
  if (plan.outputs.size() != input.features.size()) return "not as many outputs as features";
  for (size_t f = 0; f < input.features.size(); ++f) {
    const FeatureOutput& output = plan.outputs[f];
    const InputTable& table = input.tables[input.features[f].table];
    if (output.feature != input.features[f].name || output.table != table.name ||
        output.width != table.dim || output.position != position) {
      return absl::StrCat("output ", f, " is not that of feature ", input.features[f].name);
    }
    position += table.dim;
  }
  return "";
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLANNER_PLAN_FAULT_H_
