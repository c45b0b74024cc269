#include "planner/model/fused_groups.h"

#include <utility>

#include "planner/model/plan_names.h"

namespace hotbed {

void FusedGroups::Add(uint32_t server, const InputTable& table, uint32_t width, uint64_t rows,
                      bool alone) {
  const char* const combiner = PlanWord(table.combiner);
  std::vector<FusedGroup>& groups = groups_[server];
  for (size_t i = 0; i < groups.size() && !alone; ++i) {
    if (ends_[server][i] == 0 || groups[i].dim != width || groups[i].combiner != combiner) continue;
    groups[i].tables.push_back(table.name);
    groups[i].row_offsets.push_back(ends_[server][i]);
    ends_[server][i] += rows;
    return;
  }
  groups.push_back({width, combiner, {table.name}, {0}});
  ends_[server].push_back(alone ? 0 : rows);
}

void FusedGroups::MoveTo(PlannerOutput* plan) {
  for (size_t i = 0; i < groups_.size(); ++i) plan->servers[i].groups = std::move(groups_[i]);
}

}  // namespace hotbed
