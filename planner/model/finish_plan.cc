#include "planner/model/finish_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/model/context_hash.h"
#include "planner/model/fused_groups.h"
#include "planner/model/plan_names.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

bool HasBytes(const PlannerOutput& plan) {
  return std::any_of(plan.servers.begin(), plan.servers.end(),
                     [](const PlacedServer& server) { return !(server.bytes == TierBytes()); });
}

// The sources' strategies list the fused groups themselves, in their own order; perhaps none.
bool FusesByItself(PlannerStrategy strategy) {
  switch (strategy) {
    case PlannerStrategy::kBasic:
    case PlannerStrategy::kMemoryBalanced:
    case PlannerStrategy::kMemoryOptimized:
    case PlannerStrategy::kFair:
    case PlannerStrategy::kWholeFeature:
      return true;
    default:
      return false;
  }
}

void FinishRanges(const InputTable& table, PlacedTable* placed) {
  std::sort(placed->ranges.begin(), placed->ranges.end(),
            [](const PlacedRange& a, const PlacedRange& b) {
              return std::tie(a.server, a.row_first, a.column_first, a.role) <
                     std::tie(b.server, b.row_first, b.column_first, b.role);
            });
  for (PlacedRange& range : placed->ranges) {
    if (range.elements == 0) MeasureRange(table, &range);
  }
}

void SumServers(PlannerOutput* plan) {
  const bool has_bytes = HasBytes(*plan);
  for (PlacedServer& server : plan->servers) server.elements = 0;
  for (const PlacedTable& table : plan->tables) {
    for (const PlacedRange& range : table.ranges) {
      plan->servers[range.server].elements += range.elements;
      if (!has_bytes) plan->servers[range.server].bytes.host += range.bytes;
    }
  }
}

}  // namespace

uint64_t ElementsOf(const InputTable& table, const PlacedRange& range) {
  return RangeBytesOf(table, range.row_first, range.row_limit,
                      range.column_limit - range.column_first);
}

void MeasureRange(const InputTable& table, PlacedRange* range) {
  const uint32_t columns = range->column_limit - range->column_first;
  range->elements = ElementsOf(table, *range);
  range->weight_bytes =
      RangeBytesOf(table, range->row_first, range->row_limit, RowWeightBytes(table, columns));
  range->bytes = RangeBytesOf(table, range->row_first, range->row_limit, RowBytes(table, columns));
}

namespace {

// The rows of a table on one server by its columns there: each set of columns counts as one table.
void FuseGroups(const PlannerInput& input, PlannerOutput* plan) {
  FusedGroups groups(plan->servers.size());
  for (size_t t = 0; t < plan->tables.size(); ++t) {
    const std::vector<PlacedRange>& ranges = plan->tables[t].ranges;
    for (size_t i = 0; i < ranges.size();) {
      const uint32_t server = ranges[i].server;
      std::map<std::pair<uint32_t, uint32_t>, uint64_t> units;
      for (; i < ranges.size() && ranges[i].server == server; ++i) {
        if (ranges[i].role != Role::kPrimary) continue;
        units[{ranges[i].column_first, ranges[i].column_limit}] +=
            ranges[i].row_limit - ranges[i].row_first;
      }
      for (const auto& [columns, count] : units) {
        groups.Add(server, input.tables[t], columns.second - columns.first,
                   RangeBytesOf(input.tables[t], 0, count, 1));
      }
    }
  }
  groups.MoveTo(plan);
}

}  // namespace

void FinishPlan(const PlannerInput& input, PlannerOutput* plan) {
  if (plan->strategy.empty()) plan->strategy = PlanWord(input.options.strategy);
  plan->servers.resize(std::max(plan->servers.size(), input.topology.servers.size()));
  for (size_t i = 0; i < input.topology.servers.size(); ++i) {
    if (plan->servers[i].name.empty()) plan->servers[i].name = input.topology.servers[i].name;
  }
  for (size_t i = 0; i < plan->tables.size(); ++i) {
    FinishRanges(input.tables[i], &plan->tables[i]);
  }
  SumServers(plan);
  if (!FusesByItself(input.options.strategy)) FuseGroups(input, plan);
  plan->outputs.clear();
  uint64_t position = 0;
  for (const InputFeature& feature : input.features) {
    const InputTable& table = input.tables[feature.table];
    plan->outputs.push_back({feature.name, table.name, table.dim, position});
    position += table.dim;
  }
  plan->context_hash = ContextHash(input);
}

}  // namespace hotbed
