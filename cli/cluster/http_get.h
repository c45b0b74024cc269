// One plaintext HTTP GET, for the admin ports of processes, with the token that the file of
// HOTBED_ADMIN_TOKEN_FILE holds, if there is one. Blocking; thread-safe.
#ifndef HOTBED_CLI_CLUSTER_HTTP_GET_H_
#define HOTBED_CLI_CLUSTER_HTTP_GET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hotbed {

inline constexpr char kAdminTokenName[] = "HOTBED_ADMIN_TOKEN_FILE";

struct HttpReply {
  int code = 0;
  std::string body;  // at most 64 MiB
};

// `address` is HOST:PORT (common/host_port.h), else InvalidArgument. Unavailable: nobody answers
// within `timeout`. Else why the token cannot be read.
absl::StatusOr<HttpReply> HttpGet(const std::string& address, const std::string& path,
                                  absl::Duration timeout);

// OK: /readyz of the process at `address` answers 200. Unavailable, with the reason, otherwise.
absl::Status GetReady(const std::string& address);

}  // namespace hotbed

#endif  // HOTBED_CLI_CLUSTER_HTTP_GET_H_
