// The names under which a shard keeps the sessions of its lanes (ShardLane::tag): a session of a
// client has one sequence in each lane. The coordinator counts sessions so that the upper bits are
// free (ClusterState::FirstSession).
#ifndef HOTBED_COMMON_TABLES_SESSION_OF_LANE_H_
#define HOTBED_COMMON_TABLES_SESSION_OF_LANE_H_

#include <cstdint>

#include "common/ids.h"

namespace hotbed {

inline constexpr int kLaneShift = 43;
inline constexpr SessionId kSessionMax = (SessionId{1} << kLaneShift) - 1;
// Above the numbers of a table's shards, and the tags of their lanes: merges use them up.
inline constexpr uint32_t kShardNumbersMax = 1u << 20;
static_assert(kShardNumbersMax <= 1u << (64 - kLaneShift));
inline constexpr size_t kLanesMax = 64;  // of a shard

constexpr SessionId SessionOfLane(SessionId session, uint32_t tag) {
  return session | SessionId{tag} << kLaneShift;
}
constexpr SessionId ClientSessionOf(SessionId session) { return session & kSessionMax; }
constexpr uint32_t LaneTagOf(SessionId session) {
  return static_cast<uint32_t>(session >> kLaneShift);
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_SESSION_OF_LANE_H_
