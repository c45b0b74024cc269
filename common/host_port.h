// HOST:PORT as people write it: the host is a name, an IPv4 address, or an IPv6 address in
// brackets.
#ifndef HOTBED_COMMON_HOST_PORT_H_
#define HOTBED_COMMON_HOST_PORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hotbed {

// InvalidArgument, naming text and range, unless `text` ends in a colon and a port from `port_min`
// to 65535. (gRPC takes a larger port modulo 2^16 and connects elsewhere.) With a `port_min` of 0,
// which means a port to listen on, the host may be empty. The host itself is not checked, except
// that an IPv6 address needs brackets.
absl::Status CheckHostPort(absl::string_view text, int port_min);

// The same for one or several of them with commas between, as in "a:7400,b:7400"; 16 at most, each
// once.
absl::Status CheckHostPorts(absl::string_view text, int port_min);

struct HostPort {
  std::string host;  // without brackets
  std::string port;
};
// The parts of what CheckHostPort takes.
absl::StatusOr<HostPort> SplitHostPort(absl::string_view text, int port_min);
// Puts an IPv6 address into brackets.
std::string JoinHostPort(absl::string_view host, absl::string_view port);

// Whether a host (without brackets) stands for every address of a machine: "", 0.0.0.0 or ::. Such
// a host can be listened on and not be connected to.
bool IsWildcardHost(const std::string& host);
// Whether only processes on the same machine reach the host: localhost, 127.x.x.x or ::1.
bool IsLoopbackHost(const std::string& host);

}  // namespace hotbed

#endif  // HOTBED_COMMON_HOST_PORT_H_
