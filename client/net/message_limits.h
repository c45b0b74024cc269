// How large the client makes its messages to a data server. Constants and a pure function.
#ifndef HOTBED_CLIENT_NET_MESSAGE_LIMITS_H_
#define HOTBED_CLIENT_NET_MESSAGE_LIMITS_H_

#include <algorithm>
#include <cstdint>

namespace hotbed {

// Bytes of a segment in addition to its rows and ids, in either direction.
inline constexpr uint64_t kSegmentHeaderBytes = 72;
// Bytes of a message in addition to its segments: the hello, the tags, and the server's allowance
// for its own header.
inline constexpr uint64_t kMessageFrameBytes = 512;
// Every server accepts messages of this size; a smaller limit is raised to it.
inline constexpr uint64_t kMessageBytesFloor = 16 << 10;
// A quarter of the server's limit (DataPlaneLimits::segments_max), which no hello carries.
inline constexpr uint32_t kSegmentsPerMessageMax = 4096;

// How many bytes the segments of a message, or of its answer, may have. `own` is the client's
// limit; `of_map` and `of_hellos` are the smallest limit of any server, as the cluster map and the
// servers' hellos tell it (0: unknown). All servers share one limit, because a part that was cut
// for one server may have to go to another.
inline uint64_t SegmentBytesMax(uint64_t own, uint64_t of_map, uint64_t of_hellos) {
  uint64_t bytes_max = own;
  for (const uint64_t theirs : {of_map, of_hellos}) {
    if (theirs != 0) bytes_max = std::min(bytes_max, theirs);
  }
  return std::max(bytes_max, kMessageBytesFloor) - kMessageFrameBytes;
}

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_MESSAGE_LIMITS_H_
