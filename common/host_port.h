// Checks HOST:PORT as people write it.
#ifndef HOTBED_COMMON_HOST_PORT_H_
#define HOTBED_COMMON_HOST_PORT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// InvalidArgument, naming text and range, unless `text` ends in a colon and a port from `port_min`
// to 65535. (gRPC takes a larger port modulo 2^16 and connects elsewhere.) With a `port_min` of 0,
// which means a port to listen on, the host may be empty. The host itself is not checked.
absl::Status CheckHostPort(absl::string_view text, int port_min);

}  // namespace hotbed

#endif  // HOTBED_COMMON_HOST_PORT_H_
