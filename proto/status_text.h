// A segment's code on the wire as absl::StatusCode and as a word for people. Pure functions.
#ifndef HOTBED_PROTO_STATUS_TEXT_H_
#define HOTBED_PROTO_STATUS_TEXT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/data.pb.h"

namespace hotbed {

// Unknown values, from a newer server say, are kUnknown and "UNKNOWN_CODE".
absl::StatusCode StatusCodeOf(v1::Code code);
absl::string_view CodeName(v1::Code code);

// Whether a client may send the same segment again without a person's help: after a map refresh
// (WRONG_EPOCH, UNKNOWN_SHARD) or after retry_after_ms.
bool IsRetriable(v1::Code code);

// OK for OK, else the code with `detail`, led by the code's name.
absl::Status ToStatus(v1::Code code, absl::string_view detail);

}  // namespace hotbed

#endif  // HOTBED_PROTO_STATUS_TEXT_H_
