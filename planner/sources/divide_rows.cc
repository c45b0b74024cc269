#include "planner/sources/divide_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hotbed {

FairDivision DivideRows(const std::vector<uint64_t>& rows, uint32_t groups) {
  const uint64_t all = std::accumulate(rows.begin(), rows.end(), uint64_t{0});
  FairDivision division;
  division.rows_per_group = std::max<uint64_t>(1, all / groups);
  division.groups.resize(groups);
  uint32_t group = 0;
  uint64_t filled = 0;  // rows of the current group
  const auto add = [&](uint32_t feature, uint64_t first, uint64_t limit) {
    division.groups[group].push_back({feature, first, limit, filled});
    filled += limit - first;
  };
  for (uint32_t feature = 0; feature < rows.size(); ++feature) {
    uint64_t first = 0;
    while (group + 1 < groups && rows[feature] - first > division.rows_per_group - filled) {
      const uint64_t cut = first + (division.rows_per_group - filled);
      if (division.cuts.empty() || division.cuts.back().feature != feature) {
        division.cuts.push_back({feature, {}});
      }
      division.cuts.back().rows.push_back(cut);
      add(feature, first, cut);
      first = cut;
      ++group;
      filled = 0;
    }
    add(feature, first, rows[feature]);
  }
  return division;
}

std::vector<std::vector<GroupMember>> DropEmpty(std::vector<std::vector<GroupMember>> groups) {
  for (std::vector<GroupMember>& group : groups) {
    std::erase_if(group, [](const GroupMember& m) { return m.row_first == m.row_limit; });
  }
  return groups;
}

}  // namespace hotbed
