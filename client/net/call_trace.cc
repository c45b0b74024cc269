#include "client/net/call_trace.h"

#include "absl/strings/str_cat.h"
#include "common/traceparent.h"

namespace hotbed {
namespace {

thread_local const TraceScope* innermost = nullptr;

}  // namespace

TraceScope::TraceScope(absl::string_view traceparent)
    : outer_(innermost),
      traceparent_(traceparent),
      status_(traceparent.empty() ? absl::OkStatus() : CheckTraceparent(traceparent)) {
  innermost = this;
}

TraceScope::~TraceScope() { innermost = outer_; }

const TraceScope* TraceScope::OfThread() { return innermost; }

absl::Status InTrace(absl::Status status, const std::string& traceparent) {
  if (status.ok() || traceparent.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), " (trace ", TraceIdOf(traceparent), ")"));
}

}  // namespace hotbed
