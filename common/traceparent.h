// The W3C trace context of a call, as programs pass it on in the header `traceparent`: the fields
// VERSION-TRACE-PARENT-FLAGS, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.
// Pure.
#ifndef HOTBED_COMMON_TRACEPARENT_H_
#define HOTBED_COMMON_TRACEPARENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// Later versions than 00 may add fields behind the flags.
inline constexpr size_t kTraceparentBytesMax = 128;

// InvalidArgument shows the value and says what is wrong. Strict: lower-case hex, no id of zeros.
absl::Status CheckTraceparent(absl::string_view traceparent);

// The 32 digits that all calls of a trace share. `traceparent` was checked.
inline absl::string_view TraceIdOf(absl::string_view traceparent) {
  return traceparent.substr(3, 32);
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_TRACEPARENT_H_
