// Converts a segment's wire code to absl::StatusCode and to a word for people. Pure functions.
#ifndef HOTBED_PROTO_STATUS_TEXT_H_
#define HOTBED_PROTO_STATUS_TEXT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/data.pb.h"

namespace hotbed {

// Unknown values, for example of a newer server, give kUnknown and "UNKNOWN_CODE".
absl::StatusCode StatusCodeOf(v1::Code code);
absl::string_view CodeName(v1::Code code);

// OK for OK, else the code with `detail`, prefixed by the name of the code.
absl::Status ToStatus(v1::Code code, absl::string_view detail);

}  // namespace hotbed

#endif  // HOTBED_PROTO_STATUS_TEXT_H_
