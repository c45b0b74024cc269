// How a segment is refused and finished.
#ifndef HOTBED_SERVER_SHARD_REQUEST_SEGMENT_RESULT_H_
#define HOTBED_SERVER_SHARD_REQUEST_SEGMENT_RESULT_H_

#include <atomic>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "server/shard/request/pull_latency.h"
#include "server/shard/request/requests.h"

namespace hotbed {

constexpr uint32_t kRetryBusyMs = 20;
// A cut, a merge or a move is over in some milliseconds, and clients wait longer from try to try by
// themselves (client/net/retry.h).
constexpr uint32_t kRetryInactiveMs = 4;
constexpr uint32_t kRetryReadOnlyMs = 250;

// Why a request is refused. The default: it is not.
struct Refusal {
  SegmentCode code = SegmentCode::kOk;
  std::string detail;  // names the thing, the value and the limit

  bool ok() const { return code == SegmentCode::kOk; }
};

// The thread that finishes the last segment of a work ends the work.
template <typename Work>
void FinishSegments(Work* work, int32_t segments) {
  if (work->pending.fetch_sub(segments, std::memory_order_acq_rel) != segments) return;
  if constexpr (std::is_base_of_v<PullWork, Work>) {
    if (work->latency != nullptr) work->latency->Add(work->latency->NowNs() - work->begun_ns);
  }
  work->Done();
}

template <typename Work>
void FinishSegment(Work* work) {
  FinishSegments(work, 1);
}

template <typename Segment>
void RefuseSegment(Segment* segment, SegmentCode code, std::string detail) {
  segment->result.code = code;
  segment->result.detail = std::move(detail);
  segment->result.retry_after_ms = code == SegmentCode::kResourceExhausted ? kRetryBusyMs
                                   : code == SegmentCode::kUnavailable     ? kRetryInactiveMs
                                   : code == SegmentCode::kReadOnly        ? kRetryReadOnlyMs
                                                                           : 0;
}

template <typename Segment>
void RefuseSegment(Segment* segment, Refusal refusal) {
  RefuseSegment(segment, refusal.code, std::move(refusal.detail));
}

inline SegmentCode CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return SegmentCode::kOk;
    case absl::StatusCode::kDataLoss:
      return SegmentCode::kCorrupt;
    case absl::StatusCode::kResourceExhausted:
      return SegmentCode::kResourceExhausted;
    default:
      return SegmentCode::kUnavailable;
  }
}

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REQUEST_SEGMENT_RESULT_H_
