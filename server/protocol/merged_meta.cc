#include "server/protocol/merged_meta.h"

#include <algorithm>

#include "common/tables/session_of_lane.h"

namespace hotbed {

LogEnd BaseHere(const ShardRecord& record, const LogEnd& lower, const LogEnd& upper) {
  if (lower == record.merge.end && upper == record.merge.end_with) return record.merge.base;
  return {0, std::max(lower.lsn, upper.lsn) + 1};
}

ShardMeta MergeMetas(absl::Span<const ShardLane> lanes, uint64_t boundary, const LogEnd& base,
                     const ShardMeta& lower, const ShardMeta& upper) {
  ShardMeta merged;
  merged.applied_lsn = base.lsn;
  merged.applied_epoch = base.epoch;
  merged.forgotten = std::max(lower.forgotten, upper.forgotten);
  merged.history.Reset(base.lsn, base.epoch);
  merged.marks = lower.marks + upper.marks;
  merged.marks_gone = std::max(lower.marks_gone, upper.marks_gone);
  // Sessions of lanes that the parts have no more, because they were cut off, are left out.
  const auto take = [&](const ShardMeta& part, bool is_lower) {
    part.sessions.ForEach([&](SessionId id, const Session& session) {
      for (const ShardLane& lane : lanes) {
        if ((lane.first < boundary) != is_lower || lane.tag_before != LaneTagOf(id)) continue;
        merged.sessions.Set(SessionOfLane(ClientSessionOf(id), lane.tag), session);
      }
    });
  };
  take(lower, true);
  take(upper, false);
  merged.touch_filter = lower.touch_filter + upper.touch_filter;
  return merged;
}

}  // namespace hotbed
