// A TCP connection to HOST:PORT (host_port.h). A name may stand for several addresses, of either
// family: they are tried in turn until one answers. Thread-safe.
#ifndef HOTBED_COMMON_DIAL_H_
#define HOTBED_COMMON_DIAL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hotbed {

// A connected, non-blocking socket; the caller closes it. Blocks for at most `timeout`, and as long
// as the system takes to look up a name.
//   InvalidArgument   not HOST:PORT
//   NotFound          the name is not known
//   Unavailable       every address refuses: nobody listens on the port
//   DeadlineExceeded  no connection for another reason: silence, no route
absl::StatusOr<int> Dial(const std::string& address, absl::Duration timeout);

}  // namespace hotbed

#endif  // HOTBED_COMMON_DIAL_H_
