// Counters of the streams (common/metrics.h); one set per process.
#ifndef HOTBED_SERVER_NET_STREAM_METRICS_H_
#define HOTBED_SERVER_NET_STREAM_METRICS_H_

#include <memory>
#include <vector>

#include "common/metrics.h"
#include "server/protocol/segment_code.h"

namespace hotbed {

struct StreamMetrics {
  StreamMetrics();
  static StreamMetrics& Get();  // never deleted

  Counter pull_messages;
  Counter pull_rows;
  Counter pull_bytes;  // of answers
  Counter push_messages;
  Counter push_rows;
  Counter push_bytes;  // of requests
  Counter lookup_messages;
  Counter transfer_messages;  // from other servers
  Counter transfer_bytes;
  Counter streams_opened;
  Counter streams_failed;   // ended by a protocol error
  Counter streams_stalled;  // cancelled: the peer did not read
  Counter requests_parked;  // waited for room in a byte budget
  LatencyHistogram pull_seconds;
  LatencyHistogram push_seconds;
  LatencyHistogram lookup_seconds;

  // Counts refused segments by code; a message refused as a whole counts once.
  void CountRefusal(SegmentCode code) { refusals_[static_cast<size_t>(code)]->Add(1); }

 private:
  std::vector<std::unique_ptr<Counter>> refusals_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_STREAM_METRICS_H_
