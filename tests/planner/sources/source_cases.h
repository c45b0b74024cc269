// Inputs and short views of plans, for the tests of the sources' strategies.
#ifndef HOTBED_TESTS_PLANNER_SOURCES_SOURCE_CASES_H_
#define HOTBED_TESTS_PLANNER_SOURCES_SOURCE_CASES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/compute_plan.h"
#include "planner/model/planner_input.h"
#include "tests/planner/plan_fault.h"

namespace hotbed {

using Shape = std::pair<uint64_t, uint32_t>;  // rows, columns

// Tables t0, t1, ... with SGD, one feature each, on servers s0, s1, ... with room for anything.
inline PlannerInput SourceInput(const std::vector<Shape>& shapes, uint32_t servers,
                                PlannerStrategy strategy,
                                std::optional<uint64_t> column_threshold = std::nullopt) {
  PlannerInput input;
  for (uint32_t i = 0; i < shapes.size(); ++i) {
    InputTable table;
    table.name = absl::StrCat("t", i);
    table.rows = shapes[i].first;
    table.dim = shapes[i].second;
    table.optimizer = PlannerOptimizer::kSgd;
    input.tables.push_back(table);
    input.features.push_back({.name = table.name, .table = i});
  }
  for (uint32_t i = 0; i < servers; ++i) {
    input.topology.servers.push_back(
        {.name = absl::StrCat("s", i), .host = absl::StrCat("s", i), .host_bytes = 1ull << 60});
  }
  input.options.strategy = strategy;
  input.options.column_slice_threshold = column_threshold;
  return input;
}

// The plan of `input`, which must be there and without a fault.
inline PlannerOutput Planned(const PlannerInput& input) {
  const PlanResult<PlannerOutput> plan = ComputePlan(input);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.error().message;
    return {};
  }
  EXPECT_EQ(PlanFault(input, plan.value()), "");
  return plan.value();
}

// For each server the width of each table there (of its primaries), by table.
inline std::vector<std::map<uint32_t, uint32_t>> Widths(const PlannerOutput& plan) {
  std::vector<std::map<uint32_t, uint32_t>> widths(plan.servers.size());
  for (uint32_t t = 0; t < plan.tables.size(); ++t) {
    for (const PlacedRange& range : plan.tables[t].ranges) {
      widths[range.server][t] += range.column_limit - range.column_first;
    }
  }
  return widths;
}

inline std::vector<uint64_t> Loads(const PlannerOutput& plan) {
  std::vector<uint64_t> loads;
  for (const PlacedServer& server : plan.servers) loads.push_back(server.elements);
  return loads;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_PLANNER_SOURCES_SOURCE_CASES_H_
