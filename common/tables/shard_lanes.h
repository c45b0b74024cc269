// The records of shards that are merged or cut, as far as their lanes go. Pure.
#ifndef HOTBED_COMMON_TABLES_SHARD_LANES_H_
#define HOTBED_COMMON_TABLES_SHARD_LANES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/tables/shard_record.h"

namespace hotbed {

// Above the numbers of the shard, of its lanes, and of the shards that were merged into it. No
// number is used again: late messages may still name it.
uint32_t NumbersBelow(const ShardRecord& record);

// The record of the shard that two neighbours become, which has the number of the lower one. Their
// logs end at `end` and `end_with`. Its epoch is two above both, so that no primary has led the
// epoch of the base, which all members have in common.
ShardRecord MergedRecord(const ShardRecord& lower, const ShardRecord& upper, const LogEnd& end,
                         const LogEnd& end_with);

// The lanes of the two parts into which a shard is cut at `at`: none where the part has one of its
// own number. A lane that is cut goes on in the lower part; its upper half gets the index `upper`.
std::pair<std::vector<ShardLane>, std::vector<ShardLane>> DivideLanes(const ShardRecord& whole,
                                                                      uint64_t at, uint32_t upper);

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_SHARD_LANES_H_
