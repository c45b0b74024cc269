#include "planner/coordinator/shell/port_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"

namespace hotbed {
namespace {

constexpr int64_t kMs = 1'000'000;
// RFC 9113: the client's preface, and its SETTINGS frame, which may be empty.
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

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

}  // namespace

PortProbe::PortProbe(PortProbeOptions options, const Clock* clock, OnAnswer on_answer)
    : options_(options), clock_(clock), on_answer_(std::move(on_answer)) {
  HOTBED_CHECK(pipe2(wake_, O_CLOEXEC | O_NONBLOCK) == 0);
  thread_ = std::thread([this] { Run(); });
}

PortProbe::~PortProbe() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  (void)!write(wake_[1], "", 1);
  thread_.join();
  close(wake_[0]);
  close(wake_[1]);
}

void PortProbe::Ask(ProbeRequest request) {
  {
    absl::MutexLock lock(&mu_);
    asked_.push_back(std::move(request));
  }
  (void)!write(wake_[1], "", 1);  // a full pipe wakes the thread too
}

void PortProbe::Run() {
  std::vector<Attempt> attempts;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (stopping_) break;
      while (!asked_.empty() && attempts.size() < kProbesAtOnce) {
        Attempt attempt;
        attempt.request = std::move(asked_.front());
        asked_.pop_front();
        attempt.begin_ns = clock_->NowNs();
        attempt.deadline_ns = attempt.begin_ns + options_.timeout_ms * kMs;
        attempts.push_back(std::move(attempt));
      }
    }
    Poll(&attempts);
  }
  for (Attempt& attempt : attempts) Close(&attempt);
}

void PortProbe::Begin(Attempt* attempt) {
  attempt->connected = false;
  attempt->socket = Connect(attempt->request.address);
}

void PortProbe::Poll(std::vector<Attempt>* attempts) {
  const int64_t now_ns = clock_->NowNs();
  int64_t next_ns = now_ns + 1000 * kMs;
  std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}};
  for (Attempt& attempt : *attempts) {
    int failed = 0;
    if (attempt.socket < 0 && attempt.begin_ns <= now_ns) {
      Begin(&attempt);
      failed = attempt.socket < 0 ? errno : 0;
    }
    if (failed == ECONNREFUSED) attempt.deadline_ns = 0;  // reported below
    if (failed != 0 && failed != ECONNREFUSED) attempt.begin_ns = attempt.deadline_ns;
    const short wanted = attempt.connected ? POLLIN : POLLOUT;  // NOLINT(runtime/int): poll's
    fds.push_back({attempt.socket, wanted, 0});
    next_ns = std::min(next_ns, attempt.socket < 0 ? std::min(attempt.begin_ns, attempt.deadline_ns)
                                                   : attempt.deadline_ns);
  }
  const int64_t wait_ms = std::max<int64_t>(0, (next_ns - now_ns) / kMs + 1);
  poll(fds.data(), fds.size(), attempts->empty() ? -1 : static_cast<int>(wait_ms));
  char drained[64];
  while (read(wake_[0], drained, sizeof(drained)) > 0) {
  }
  std::vector<Attempt> left;
  for (size_t i = 0; i < attempts->size(); ++i) {
    Attempt& attempt = (*attempts)[i];
    ProbeAnswer answer = ProbeAnswer::kSilent;
    bool over = attempt.socket >= 0 && Look(fds[i + 1].revents, &attempt, &answer);
    if (attempt.deadline_ns == 0) {
      over = true;
      answer = ProbeAnswer::kRefused;
    }
    if (!over && clock_->NowNs() < attempt.deadline_ns) {
      left.push_back(std::move(attempt));
      continue;
    }
    Close(&attempt);
    on_answer_(attempt.request, over ? answer : ProbeAnswer::kSilent);
  }
  *attempts = std::move(left);
}

bool PortProbe::Look(int events, Attempt* attempt, ProbeAnswer* answer) {
  if (events == 0) return false;
  if (!attempt->connected) {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(attempt->socket, SOL_SOCKET, SO_ERROR, &error, &size);
    *answer = error == ECONNREFUSED ? ProbeAnswer::kRefused : ProbeAnswer::kSilent;
    if (error != 0) return true;
    attempt->connected = true;
    (void)!send(attempt->socket, kPreface, sizeof(kPreface) - 1, MSG_NOSIGNAL);
    return false;
  }
  char byte = 0;
  const ssize_t n = recv(attempt->socket, &byte, 1, 0);
  if (n > 0) {
    *answer = ProbeAnswer::kAnswers;
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  Close(attempt);
  attempt->begin_ns = clock_->NowNs() + options_.again_ms * kMs;
  return false;
}

void PortProbe::Close(Attempt* attempt) {
  if (attempt->socket >= 0) close(attempt->socket);
  attempt->socket = -1;
}

}  // namespace hotbed
