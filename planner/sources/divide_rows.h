// Fair division of CachedEmbedding's LoadBalanceManager (do_fair=True): the rows of all features,
// one after the other, are cut into equal contiguous ranges. Pure; safe from any thread.
#ifndef HOTBED_PLANNER_SOURCES_DIVIDE_ROWS_H_
#define HOTBED_PLANNER_SOURCES_DIVIDE_ROWS_H_

#include <cstdint>
#include <vector>

#include "planner/model/planner_output.h"

namespace hotbed {

// Rows [row_first, row_limit) of a feature; they begin at `offset` within the group.
struct GroupMember {
  uint32_t feature = 0;
  uint64_t row_first = 0;
  uint64_t row_limit = 0;
  uint64_t offset = 0;
  friend bool operator==(const GroupMember&, const GroupMember&) = default;
};

struct FairDivision {
  uint64_t rows_per_group = 0;    // floor(all / groups); the last group takes the remainder too
  std::vector<FeatureCuts> cuts;  // by feature; at most groups - 1 in all
  std::vector<std::vector<GroupMember>> groups;
};

// A feature is cut, perhaps several times, if it has more rows than its group has room for. So a
// feature that begins exactly where a group ends is cut at 0, and is then a member of that group
// with no rows. Such members are kept, as the source lists them; DropEmpty removes them without
// changing the ranges. Offsets in the last group are right even where the source's are not: it
// takes a cut feature that ends in the remainder for a whole one.
//
// Needs 1 <= groups and all rows together below 2^63. With fewer rows than groups, which the source
// refuses, each group has one row and the last groups have none.
FairDivision DivideRows(const std::vector<uint64_t>& rows, uint32_t groups);

// The groups without members that have no rows.
std::vector<std::vector<GroupMember>> DropEmpty(std::vector<std::vector<GroupMember>> groups);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_SOURCES_DIVIDE_ROWS_H_
