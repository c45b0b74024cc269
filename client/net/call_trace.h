// The trace of a call of the client (hotbed/trace.h). Thread-safe.
#ifndef HOTBED_CLIENT_NET_CALL_TRACE_H_
#define HOTBED_CLIENT_NET_CALL_TRACE_H_

#include <string>

#include "absl/status/status.h"
#include "hotbed/trace.h"

namespace hotbed {

// Sets `traceparent` to that of the calling thread's scope, and leaves it alone without a scope.
inline absl::Status TakeTrace(std::string* traceparent) {
  const TraceScope* const scope = TraceScope::OfThread();
  if (scope == nullptr) return absl::OkStatus();
  if (scope->status().ok()) *traceparent = scope->traceparent();
  return scope->status();
}

// `status`, with the trace in the text of an error.
absl::Status InTrace(absl::Status status, const std::string& traceparent);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_CALL_TRACE_H_
