#include "server/net/stream_metrics.h"

#include "absl/strings/ascii.h"
#include "proto/status_text.h"

namespace hotbed {

StreamMetrics::StreamMetrics()
    : pull_messages("hotbed_server_pull_messages_total", "Pull messages received."),
      pull_rows("hotbed_server_pull_rows_total", "Rows answered to pulls and lookups."),
      pull_bytes("hotbed_server_pull_answer_bytes_total", "Bytes of rows answered."),
      push_messages("hotbed_server_push_messages_total", "Push messages received."),
      push_rows("hotbed_server_push_rows_total", "Gradient rows acknowledged."),
      push_bytes("hotbed_server_push_request_bytes_total", "Bytes of push messages received."),
      lookup_messages("hotbed_server_lookup_messages_total", "Lookups received."),
      transfer_messages("hotbed_replica_received_messages_total",
                        "Messages received from other servers."),
      transfer_bytes("hotbed_replica_received_bytes_total",
                     "Bytes received from other servers: log records and snapshot transfers."),
      streams_opened("hotbed_server_streams_opened_total", "Pull and push streams opened."),
      streams_failed("hotbed_server_streams_failed_total",
                     "Streams ended by this server for a protocol error."),
      streams_stalled(
          "hotbed_server_streams_stalled_total",
          "Streams and lookups ended because their client read nothing for --write-timeout-ms."),
      requests_parked("hotbed_server_requests_parked_total",
                      "Requests that waited for room in a budget of bytes in flight."),
      pull_seconds("hotbed_server_pull_seconds", "From a pull's arrival to its encoded answer."),
      push_seconds("hotbed_server_push_seconds", "From a push's arrival to its acknowledgement."),
      lookup_seconds("hotbed_server_lookup_seconds",
                     "From a lookup's arrival to its encoded answer.") {
  for (int code = 0; code < v1::Code_ARRAYSIZE; ++code) {
    refusals_.push_back(std::make_unique<Counter>(
        "hotbed_server_refusals_total", "Segments or whole messages refused, by code.",
        Labels{{"code", absl::AsciiStrToLower(CodeName(static_cast<v1::Code>(code)))}}));
  }
}

StreamMetrics& StreamMetrics::Get() {
  static StreamMetrics* const metrics = new StreamMetrics;
  return *metrics;
}

}  // namespace hotbed
