// The W3C trace context that the calls of a thread belong to.
//
//   hotbed::TraceScope scope(request.header("traceparent"));
//   client->Pull(...);
//
// Every pull, push and lookup that the thread begins in the scope carries it to the servers, also
// those of hotbed::Embeddings. A server that takes long over such a call names the trace in its log
// (docs/operations.md, "Slow requests"), and so does the error text of a call that fails.
#ifndef HOTBED_TRACE_H_
#define HOTBED_TRACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// Ends on the thread on which it began, after the scopes that began inside it.
class TraceScope {
 public:
  // Calls in a scope whose `traceparent` cannot be one fail with status(). Empty: the calls belong
  // to no trace.
  explicit TraceScope(absl::string_view traceparent);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  const absl::Status& status() const { return status_; }
  const std::string& traceparent() const { return traceparent_; }

  // The innermost of the calling thread; null: none.
  static const TraceScope* OfThread();

 private:
  const TraceScope* const outer_;
  const std::string traceparent_;
  const absl::Status status_;
};

}  // namespace hotbed

#endif  // HOTBED_TRACE_H_
