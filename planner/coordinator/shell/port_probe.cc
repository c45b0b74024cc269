#include "planner/coordinator/shell/port_probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/dial.h"
#include "ports/http2_meter.h"

namespace hotbed {
namespace {

constexpr int64_t kTimeoutNs = 200 * kMillisecondNs;
// A connection that breaks at once may belong to a process that is just ending: the probe is
// repeated after this time.
constexpr int64_t kAgainNs = 20 * kMillisecondNs;

// False: nothing of `events` happened until the deadline.
bool Await(int socket, short events, int64_t left_ns) {  // NOLINT(runtime/int): poll's
  pollfd fd = {socket, events, 0};
  return poll(&fd, 1, static_cast<int>(std::max<int64_t>(0, left_ns / kMillisecondNs + 1))) > 0;
}

// nullopt: the connection broke.
std::optional<ProbeAnswer> AskOver(int socket, const Clock* clock, int64_t deadline_ns) {
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
    const absl::StatusOr<int> socket =
        Dial(address, absl::Nanoseconds(deadline_ns - clock_->NowNs()));
    if (absl::IsUnavailable(socket.status())) return ProbeAnswer::kRefused;
    if (!socket.ok()) return ProbeAnswer::kSilent;
    const std::optional<ProbeAnswer> answer = AskOver(*socket, clock_, deadline_ns);
    close(*socket);
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
