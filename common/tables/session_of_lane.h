// The names under which a shard keeps the sessions of its lanes (ShardLane::tag): a session of a
// client has one sequence in each lane. The coordinator counts sessions up from 1, so the upper
// bits are free.
#ifndef HOTBED_COMMON_TABLES_SESSION_OF_LANE_H_
#define HOTBED_COMMON_TABLES_SESSION_OF_LANE_H_

#include <cstdint>

#include "common/ids.h"

namespace hotbed {

inline constexpr int kLaneShift = 40;
inline constexpr SessionId kSessionMax = (SessionId{1} << kLaneShift) - 1;
inline constexpr uint32_t kLaneTagMax = (1u << (64 - kLaneShift)) - 1;
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
