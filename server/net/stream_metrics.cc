#include "server/net/stream_metrics.h"

#include "absl/strings/ascii.h"
#include "proto/status_text.h"

namespace hotbed {

StreamMetrics::StreamMetrics() {
  for (const char* kind : {"pull", "push", "lookup"}) {
    slow_requests.push_back(std::make_unique<Counter>(
        "hotbed_server_slow_requests_total", "Requests that took longer than --slow-request-ms.",
        Labels{{"kind", kind}}));
  }
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
