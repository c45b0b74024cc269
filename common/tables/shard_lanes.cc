#include "common/tables/shard_lanes.h"

#include <algorithm>

namespace hotbed {

uint32_t NumbersBelow(const ShardRecord& record) {
  uint32_t limit = record.shard.index + 1;
  for (const ShardLane& lane : record.lanes)
    limit = std::max({limit, lane.index + 1, lane.tag + 1});
  return limit;
}

ShardRecord MergedRecord(const ShardRecord& lower, const ShardRecord& upper, const LogEnd& end,
                         const LogEnd& end_with) {
  ShardRecord merged = lower;
  merged.lanes.clear();
  // The tags keep the numbers of both parts from being used again (NumbersBelow).
  uint32_t tag = std::max(NumbersBelow(lower), NumbersBelow(upper));
  for (const ShardRecord* part : {&lower, &upper}) {
    for (ShardLane lane : part->Lanes()) {
      lane.tag_before = lane.tag;
      lane.tag = tag++;
      merged.lanes.push_back(lane);
    }
  }
  merged.range.limit = upper.range.limit;
  merged.epoch = std::max(lower.epoch, upper.epoch) + 2;
  merged.active = lower.members.size() == 1;
  merged.base = lower.members;
  merged.learners.clear();
  merged.readers.clear();
  merged.merge = {upper.shard, end, end_with,
                  LogEnd{merged.epoch - 1, std::max(end.lsn, end_with.lsn) + 1}};
  return merged;
}

std::pair<std::vector<ShardLane>, std::vector<ShardLane>> DivideLanes(const ShardRecord& whole,
                                                                      uint64_t at, uint32_t upper) {
  std::pair<std::vector<ShardLane>, std::vector<ShardLane>> divided;
  for (const ShardLane& lane : whole.lanes) {
    if (lane.first < at) {
      divided.first.push_back(lane);
      divided.first.back().limit = std::min(lane.limit, at);
    }
    if (lane.limit > at) {
      divided.second.push_back(lane);
      divided.second.back().first = std::max(lane.first, at);
      if (lane.first < at) divided.second.back().index = upper;
    }
  }
  return divided;
}

}  // namespace hotbed
