#include "planner/model/plan.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "planner/model/plan_names.h"

namespace hotbed {
namespace {

bool SameColumns(const ShardRange& a, const ShardRange& b) {
  return a.column_first == b.column_first && a.column_limit == b.column_limit;
}

// Whether `next` continues where `last` ends, so that one line can show both.
bool Continues(const PlannedShard& last, const PlannedShard& next) {
  return next.shard.table == last.shard.table && next.shard.index == last.shard.index + 1 &&
         next.range.first == last.range.limit && SameColumns(last.range, next.range) &&
         next.assignments == last.assignments;
}

}  // namespace

bool operator==(const PlannedShard& a, const PlannedShard& b) {
  return a.shard == b.shard && a.range.first == b.range.first && a.range.limit == b.range.limit &&
         SameColumns(a.range, b.range) && a.bytes == b.bytes && a.weight_bytes == b.weight_bytes &&
         a.assignments == b.assignments;
}

std::string Plan::ToString() const {
  std::string out;
  for (size_t i = 0; i < shards.size();) {
    size_t last = i;
    uint64_t bytes = shards[i].bytes;
    while (last + 1 < shards.size() && Continues(shards[last], shards[last + 1])) {
      bytes += shards[++last].bytes;
    }
    const PlannedShard& first = shards[i];
    absl::StrAppend(&out, "table ", first.shard.table, " shards ", first.shard.index, "..",
                    shards[last].shard.index, ": rows [", first.range.first, ", ",
                    shards[last].range.limit, ") columns [", first.range.column_first, ", ",
                    first.range.column_limit, "), ", bytes, " bytes on");
    for (const Assignment& a : first.assignments) {
      absl::StrAppend(&out, " ", a.server, " ", PlanWord(a.role));
    }
    absl::StrAppend(&out, "\n");
    i = last + 1;
  }
  return out;
}

}  // namespace hotbed
