#ifndef HOTBED_SERVER_PROTOCOL_SEGMENT_CODE_H_
#define HOTBED_SERVER_PROTOCOL_SEGMENT_CODE_H_

#include <cstdint>

namespace hotbed {

// How a request for one shard ended. The values are those of hotbed.v1.Code in proto/data.proto; a
// static_assert in server/streams/wire_reply.cc holds them together.
enum class SegmentCode : uint8_t {
  kOk = 0,
  kWrongEpoch = 1,
  kUnknownShard = 2,
  kInvalidArgument = 3,
  kOutOfRange = 4,
  kNanGradient = 5,
  kUnknownSession = 6,
  kFenced = 7,
  kGap = 8,
  kResourceExhausted = 9,
  kReadOnly = 10,
  kUnavailable = 11,
  kCorrupt = 12,
  kDeadlineExceeded = 13,
  kInternal = 14,
  kStepOver = 15,
  kPermissionDenied = 16,
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_PROTOCOL_SEGMENT_CODE_H_
