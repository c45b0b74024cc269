#include "ports/http2_meter.h"

#include <algorithm>

namespace hotbed {
namespace {

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kResetStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 0x1;  // of DATA and HEADERS
constexpr uint8_t kPadded = 0x8;

}  // namespace

int64_t Http2Meter::unfinished_since_ns() const {
  int64_t since_ns = 0;
  for (const Unfinished& message : unfinished_) {
    if (since_ns == 0 || message.since_ns < since_ns) since_ns = message.since_ns;
  }
  return since_ns;
}

Http2Meter::Verdict Http2Meter::Take(absl::Span<const uint8_t> bytes, int64_t now_ns) {
  while (!bytes.empty()) {
    if (preface_ < kPrefaceBytes) {
      if (bytes.front() != static_cast<uint8_t>(kHttp2Hello[preface_])) return Verdict::kNotHttp2;
      ++preface_;
      bytes.remove_prefix(1);
      continue;
    }
    if (left_ > 0) {
      const size_t n = std::min<size_t>(left_, bytes.size());
      const Verdict verdict = type_ == kData ? TakeData(bytes.first(n), now_ns) : Verdict::kGoOn;
      if (verdict != Verdict::kGoOn) return verdict;
      left_ -= n;
      bytes.remove_prefix(n);
    } else {
      const size_t n = std::min(kFrameHeaderBytes - header_got_, bytes.size());
      std::copy_n(bytes.begin(), n, header_ + header_got_);
      header_got_ += n;
      bytes.remove_prefix(n);
      if (header_got_ < kFrameHeaderBytes) break;
      header_got_ = 0;
      const Verdict verdict = BeginFrame(now_ns);
      if (verdict != Verdict::kGoOn) return verdict;
    }
    if (left_ == 0 && type_ == kData && (flags_ & kEndStream) != 0) Forget(stream_);
  }
  return Verdict::kGoOn;
}

Http2Meter::Verdict Http2Meter::BeginFrame(int64_t now_ns) {
  left_ = header_[0] << 16 | header_[1] << 8 | header_[2];
  type_ = header_[3];
  flags_ = header_[4];
  stream_ = (header_[5] & 0x7fu) << 24 | header_[6] << 16 | header_[7] << 8 | header_[8];
  switch (type_) {
    case kData:
      padding_ = 0;
      padding_known_ = (flags_ & kPadded) == 0;
      // An empty frame moves nothing forward, unless it ends its stream.
      return left_ == 0 && (flags_ & kEndStream) == 0 ? TakeControlFrame(now_ns) : Verdict::kGoOn;
    case kHeaders:
      header_bytes_ = left_;
      if (header_bytes_ > limits_.header_bytes_max) return Verdict::kHeadersTooLarge;
      if ((flags_ & kEndStream) == 0) return Verdict::kGoOn;
      Forget(stream_);
      return TakeControlFrame(now_ns);  // the end of a request without a message
    case kContinuation:
      header_bytes_ += left_ + kFrameHeaderBytes;
      return header_bytes_ > limits_.header_bytes_max ? Verdict::kHeadersTooLarge : Verdict::kGoOn;
    case kResetStream:
      Forget(stream_);
      return TakeControlFrame(now_ns);
    case kPriority:
    case kSettings:
    case kPushPromise:
    case kPing:
      return TakeControlFrame(now_ns);
    default:
      return Verdict::kGoOn;
  }
}

Http2Meter::Verdict Http2Meter::TakeControlFrame(int64_t now_ns) {
  const double passed_s = static_cast<double>(now_ns - control_ns_) * 1e-9;
  control_ns_ = now_ns;
  control_left_ = std::min(limits_.control_frames_burst,
                           control_left_ + passed_s * limits_.control_frames_per_second);
  control_left_ -= 1;
  return control_left_ < 0 ? Verdict::kTooManyControlFrames : Verdict::kGoOn;
}

Http2Meter::Verdict Http2Meter::TakeData(absl::Span<const uint8_t> bytes, int64_t now_ns) {
  uint32_t left = left_;
  if (!padding_known_) {
    padding_ = bytes.front();
    padding_known_ = true;
    bytes.remove_prefix(1);
    left -= 1;
  }
  const size_t payload = std::min<size_t>(bytes.size(), left > padding_ ? left - padding_ : 0);
  bytes = bytes.first(payload);
  while (!bytes.empty()) {
    auto message = std::find_if(unfinished_.begin(), unfinished_.end(),
                                [this](const Unfinished& u) { return u.stream == stream_; });
    if (message == unfinished_.end()) {
      if (unfinished_.size() >= kUnfinishedMax) return Verdict::kTooManyMessages;
      unfinished_.push_back({stream_, 0, 0, 0, now_ns});
      message = unfinished_.end() - 1;
    }
    if (message->prefix < kPrefixBytes) {
      if (message->prefix > 0) message->length = message->length << 8 | bytes.front();
      ++message->prefix;
      ++unfinished_bytes_;
      bytes.remove_prefix(1);
      if (message->prefix == kPrefixBytes && message->length > limits_.message_bytes_max) {
        return Verdict::kMessageTooLarge;
      }
    } else {
      const size_t n = std::min<uint64_t>(message->length - message->received, bytes.size());
      message->received += n;
      unfinished_bytes_ += n;
      bytes.remove_prefix(n);
    }
    if (message->prefix == kPrefixBytes && message->received == message->length) Forget(stream_);
  }
  return Verdict::kGoOn;
}

void Http2Meter::Forget(uint32_t stream) {
  const auto message = std::find_if(unfinished_.begin(), unfinished_.end(),
                                    [stream](const Unfinished& u) { return u.stream == stream; });
  if (message == unfinished_.end()) return;
  unfinished_bytes_ -= message->prefix + message->received;
  *message = unfinished_.back();
  unfinished_.pop_back();
}

}  // namespace hotbed
