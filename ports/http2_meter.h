// Follows what a client sends on one HTTP/2 connection, frame by frame, so that limits hold before
// gRPC has assembled a message: gRPC 1.51 reads a message whole, whatever its length says, and asks
// for the limit afterwards. It reads frame headers and the five bytes in front of each message, and
// skips the rest, so its cost is per frame and not per byte.
//
// Pure and thread-compatible: bytes and the time go in, a verdict comes out.
#ifndef HOTBED_PORTS_HTTP2_METER_H_
#define HOTBED_PORTS_HTTP2_METER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace hotbed {

// The first bytes of a client (RFC 9113): the preface, and a SETTINGS frame, which may be empty.
inline constexpr char kHttp2Hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
inline constexpr size_t kHttp2HelloBytes = sizeof(kHttp2Hello) - 1;

struct Http2Limits {
  uint64_t message_bytes_max = 16ull << 20;  // one message
  uint64_t header_bytes_max = 64 << 10;      // one request's header frames together
  // Frames that cost their sender little and us much: resets of streams, requests without a
  // message, pings, settings.
  double control_frames_per_second = 500;  // on average
  double control_frames_burst = 1000;      // at once
};

class Http2Meter {
 public:
  enum class Verdict {
    kGoOn,
    kNotHttp2,
    kMessageTooLarge,
    kHeadersTooLarge,
    kTooManyControlFrames,
    kTooManyMessages,
  };

  explicit Http2Meter(const Http2Limits& limits)
      : limits_(limits), control_left_(limits.control_frames_burst) {}

  // The next bytes of the connection, received at `now_ns`. After anything but kGoOn the connection
  // is to be closed.
  Verdict Take(absl::Span<const uint8_t> bytes, int64_t now_ns);

  bool greeted() const { return preface_ == kPrefaceBytes; }
  // Bytes received of messages that are not complete.
  uint64_t unfinished_bytes() const { return unfinished_bytes_; }
  // When the oldest of these messages began; 0: there is none.
  int64_t unfinished_since_ns() const;

 private:
  static constexpr size_t kPrefaceBytes = 24;
  static constexpr size_t kFrameHeaderBytes = 9;
  static constexpr size_t kPrefixBytes = 5;       // of a gRPC message: a flag, and its length
  static constexpr size_t kUnfinishedMax = 1024;  // messages

  // A stream in the middle of a message.
  struct Unfinished {
    uint32_t stream = 0;
    uint32_t prefix = 0;    // bytes of the message's prefix received
    uint64_t length = 0;    // as announced; complete with the prefix
    uint64_t received = 0;  // behind the prefix
    int64_t since_ns = 0;
  };

  Verdict BeginFrame(int64_t now_ns);
  Verdict TakeData(absl::Span<const uint8_t> bytes, int64_t now_ns);
  Verdict TakeControlFrame(int64_t now_ns);
  void Forget(uint32_t stream);

  const Http2Limits limits_;
  size_t preface_ = 0;  // bytes of it received
  uint8_t header_[kFrameHeaderBytes];
  size_t header_got_ = 0;
  // The frame that is being received.
  uint8_t type_ = 0;
  uint8_t flags_ = 0;
  uint32_t stream_ = 0;
  uint32_t left_ = 0;          // bytes of its payload to come, padding included
  uint32_t padding_ = 0;       // at its end
  bool padding_known_ = true;  // false: the next byte says how much
  uint64_t header_bytes_ = 0;  // of the request whose header frames are being received
  double control_left_ = 0;
  int64_t control_ns_ = 0;  // when control_left_ was right
  uint64_t unfinished_bytes_ = 0;
  std::vector<Unfinished> unfinished_;  // few, in no order
};

}  // namespace hotbed

#endif  // HOTBED_PORTS_HTTP2_METER_H_
