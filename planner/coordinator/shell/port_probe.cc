#include "planner/coordinator/shell/port_probe.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ports/http2_meter.h"

namespace hotbed {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kTimeoutNs = 200 * kMs;
// A connection that breaks at once may belong to a process that is just ending: the probe is
// repeated after this time.
constexpr int64_t kAgainNs = 20 * kMs;

// A socket that connects to host:port, or -1 with errno.
int Connect(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos) {
    errno = EINVAL;
    return -1;
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) {
    errno = EHOSTUNREACH;
    return -1;
  }
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    close(fd);
    errno = error;
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

// False: nothing of `events` happened until the deadline.
bool Await(int socket, short events, int64_t left_ns) {  // NOLINT(runtime/int): poll's
  pollfd fd = {socket, events, 0};
  return poll(&fd, 1, static_cast<int>(std::max<int64_t>(0, left_ns / kMs + 1))) > 0;
}

// nullopt: the connection was made and broke.
std::optional<ProbeAnswer> AskOver(int socket, const Clock* clock, int64_t deadline_ns) {
  if (!Await(socket, POLLOUT, deadline_ns - clock->NowNs())) return ProbeAnswer::kSilent;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return error == ECONNREFUSED ? ProbeAnswer::kRefused : ProbeAnswer::kSilent;
  (void)!send(socket, kHttp2Hello, kHttp2HelloBytes, MSG_NOSIGNAL);
  if (!Await(socket, POLLIN, deadline_ns - clock->NowNs())) return ProbeAnswer::kSilent;
  char byte = 0;
  if (recv(socket, &byte, 1, 0) > 0) return ProbeAnswer::kAnswers;
  return std::nullopt;
}

}  // namespace

ProbeAnswer PortProbe::Probe(const std::string& address) const {
  const int64_t deadline_ns = clock_->NowNs() + kTimeoutNs;
  while (clock_->NowNs() < deadline_ns && !stopping_) {
    const int socket = Connect(address);
    if (socket < 0) return errno == ECONNREFUSED ? ProbeAnswer::kRefused : ProbeAnswer::kSilent;
    const std::optional<ProbeAnswer> answer = AskOver(socket, clock_, deadline_ns);
    close(socket);
    if (answer.has_value()) return *answer;
    clock_->SleepNs(kAgainNs);
  }
  return ProbeAnswer::kSilent;
}

void PortProbe::Ask(ProbeRequest request) {
  pool_.Submit([this, request = std::move(request)] {
    if (stopping_) return;
    const ProbeAnswer answer = Probe(request.address);
    if (!stopping_) on_answer_(request, answer);
  });
}

}  // namespace hotbed
