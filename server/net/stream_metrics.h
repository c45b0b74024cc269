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

  Counter pull_messages{"hotbed_server_pull_messages_total", "Pull messages received."};
  Counter pull_rows{"hotbed_server_pull_rows_total", "Rows answered to pulls and lookups."};
  Counter pull_bytes{"hotbed_server_pull_answer_bytes_total", "Bytes of rows answered."};
  Counter push_messages{"hotbed_server_push_messages_total", "Push messages received."};
  Counter push_rows{"hotbed_server_push_rows_total", "Gradient rows acknowledged."};
  Counter push_bytes{"hotbed_server_push_request_bytes_total", "Bytes of push messages received."};
  Counter lookup_messages{"hotbed_server_lookup_messages_total", "Lookups received."};
  Counter transfer_messages{"hotbed_replica_received_messages_total",
                            "Messages received from other servers."};
  Counter transfer_bytes{"hotbed_replica_received_bytes_total",
                         "Bytes received from other servers: log records and snapshot transfers."};
  Counter streams_opened{"hotbed_server_streams_opened_total", "Pull and push streams opened."};
  Counter streams_failed{"hotbed_server_streams_failed_total",
                         "Streams ended by this server for a protocol error."};
  Counter streams_stalled{
      "hotbed_server_streams_stalled_total",
      "Streams and lookups ended because their client read nothing for --write-timeout-ms."};
  Counter requests_parked{"hotbed_server_requests_parked_total",
                          "Requests that waited for room in a budget of bytes in flight."};
  Counter traceparents_ignored{"hotbed_server_traceparents_ignored_total",
                               "Trace contexts of messages that are not valid or beyond 16."};
  LatencyHistogram pull_seconds{"hotbed_server_pull_seconds",
                                "From a pull's arrival to its encoded answer."};
  LatencyHistogram push_seconds{"hotbed_server_push_seconds",
                                "From a push's arrival to its acknowledgement."};
  LatencyHistogram lookup_seconds{"hotbed_server_lookup_seconds",
                                  "From a lookup's arrival to its encoded answer."};

  std::vector<std::unique_ptr<Counter>> slow_requests;  // by RequestKind (slow_requests.h)

  // Counts refused segments by code; a message refused as a whole counts once.
  void CountRefusal(SegmentCode code) { refusals_[static_cast<size_t>(code)]->Add(1); }

 private:
  std::vector<std::unique_ptr<Counter>> refusals_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_NET_STREAM_METRICS_H_
