#include "common/dial.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/host_port.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The socket, or -1 with the reason in `*error`.
int ConnectTo(const addrinfo& place, absl::Duration timeout, int* error) {
  const int fd = socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    *error = errno;
    return -1;
  }
  *error = connect(fd, place.ai_addr, place.ai_addrlen) == 0 ? 0 : errno;
  if (*error == EINPROGRESS) {
    pollfd wanted = {fd, POLLOUT, 0};
    const auto ms = static_cast<int>(absl::ToInt64Milliseconds(timeout)) + 1;
    socklen_t size = sizeof(*error);
    if (poll(&wanted, 1, std::max(1, ms)) <= 0) {
      *error = ETIMEDOUT;
    } else {
      getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &size);
    }
  }
  if (*error == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<int> Dial(const std::string& address, absl::Duration timeout) {
  HOTBED_ASSIGN_OR_RETURN(const HostPort place, SplitHostPort(address, 1));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &list);
  if (code != 0) {
    return absl::NotFoundError(
        absl::StrCat(address, ": the host is not known here: ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list, freeaddrinfo);
  int64_t left = 0;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) ++left;
  const int64_t deadline_ns = Clock::Real()->NowNs() + absl::ToInt64Nanoseconds(timeout);
  bool refused = true;
  int error = 0;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    // A silent address leaves the others their share of the time.
    const int64_t left_ns = deadline_ns - Clock::Real()->NowNs();
    const int fd = ConnectTo(*one, absl::Nanoseconds(left_ns / left--), &error);
    if (fd >= 0) return fd;
    refused = refused && error == ECONNREFUSED;
  }
  const std::string text = absl::StrCat(address, ": cannot connect: ", std::strerror(error));
  return refused ? absl::UnavailableError(text) : absl::DeadlineExceededError(text);
}

}  // namespace hotbed
