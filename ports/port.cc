#include "ports/port.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kTickMs = 1000;
constexpr int kAcceptsAtOnce = 64;
constexpr int64_t kProbeEveryMs = 2000;
constexpr int kProbeMsMax = 2000;
constexpr int64_t kSilentMsMax = 10'000;
constexpr int64_t kDescriptorsOfFiles = 768;
constexpr int64_t kConnectionsMaxDefault = 8192;
// A TLS record that is no handshake: TLS answers it with an alert, or by closing.
constexpr char kNoTlsHello[] = "\x16\x03\x01\x00\x04\xff\x00\x00\x00";

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetPort(int port, sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

// A listening socket, or -1 with errno. `dual`: an IPv6 socket takes IPv4 connections too.
int ListenOn(const addrinfo& place, bool dual) {
  const int listening =
      socket(place.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (listening < 0) return -1;
  const int on = 1;
  const int six_only = dual ? 0 : 1;
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (place.ai_family == AF_INET6) {
    setsockopt(listening, IPPROTO_IPV6, IPV6_V6ONLY, &six_only, sizeof(six_only));
  }
  if (bind(listening, place.ai_addr, place.ai_addrlen) == 0 && listen(listening, SOMAXCONN) == 0) {
    return listening;
  }
  const int error = errno;
  close(listening);
  errno = error;
  return -1;
}

// Whether an IPv6 socket listens on every address, those of IPv4 too.
bool TakesBothFamilies(int listening, const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6) return false;
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  int six_only = 1;
  socklen_t size = sizeof(six_only);
  return IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) &&
         getsockopt(listening, IPPROTO_IPV6, IPV6_V6ONLY, &six_only, &size) == 0 && six_only == 0;
}

// Waits for `events`; false after kProbeMsMax, or when `wake` is readable.
bool Await(int descriptor, short events, int wake) {  // NOLINT(runtime/int): poll's
  pollfd wanted[] = {{descriptor, events, 0}, {wake, POLLIN, 0}};
  return poll(wanted, 2, kProbeMsMax) > 0 && wanted[1].revents == 0;
}

}  // namespace

uint64_t RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (before < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) != 0) return before;
  return limit.rlim_cur;
}

ConnectionLimits ConnectionLimitsOf(int64_t connections_max, int64_t per_peer_max,
                                    uint64_t descriptors_max) {
  const auto descriptors = static_cast<int64_t>(descriptors_max);
  const int64_t room = std::max<int64_t>({1, descriptors / 4, descriptors - kDescriptorsOfFiles});
  ConnectionLimits limits;
  limits.connections_max = static_cast<uint32_t>(
      std::min(room, connections_max > 0 ? connections_max : kConnectionsMaxDefault));
  limits.connections_per_peer_max = per_peer_max > 0
                                        ? static_cast<uint32_t>(per_peer_max)
                                        : std::max<uint32_t>(1, limits.connections_max / 2);
  return limits;
}

absl::StatusOr<std::unique_ptr<Port>> Port::Open(const PortOptions& options, const Clock* clock) {
  auto port = std::unique_ptr<Port>(new Port(options, clock));
  HOTBED_RETURN_IF_ERROR(port->Listen());
  return port;
}

Port::Port(const PortOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      connections_(std::make_shared<ConnectionTable>(options.name, options.limits, clock)),
      gauges_([this](std::vector<MetricSample>* samples) {
        const auto add = [&](const char* name, const char* help, double value) {
          AddSample(name, help, {{"port", options_.name}}, value, samples);
        };
        add("hotbed_port_connections", "Connections open.", connections_->size());
        add("hotbed_port_unfinished_bytes", "Bytes received of messages that are not complete.",
            connections_->unfinished_bytes());
      }) {}

Port::~Port() { Stop(); }

absl::Status Port::Listen() {
  const size_t colon = options_.listen.rfind(':');
  std::string host = options_.listen.substr(0, colon);
  if (host.size() > 1 && host.front() == '[') host = host.substr(1, host.size() - 2);
  // As gRPC does: the wildcard of either family means both.
  const bool any = host.empty() || host == "0.0.0.0" || host == "::";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const char* const service = options_.listen.c_str() + colon + 1;
  int code = colon == std::string::npos
                 ? EAI_NONAME
                 : getaddrinfo(any ? "::" : host.c_str(), service, &hints, &found);
  int error = 0;
  int bound = 0;
  for (int attempt = 0; attempt < 2 && code == 0 && listening_.empty(); ++attempt) {
    if (attempt == 1) {
      if (!any || error == EADDRINUSE) break;
      freeaddrinfo(std::exchange(found, nullptr));  // a machine without IPv6
      code = getaddrinfo("0.0.0.0", service, &hints, &found);
    }
    for (const addrinfo* place = found; place != nullptr; place = place->ai_next) {
      if (bound != 0) SetPort(bound, place->ai_addr);
      const int listening = ListenOn(*place, any);
      if (listening < 0) {
        error = errno;
        continue;
      }
      listening_.push_back(listening);
      sockaddr_storage name = {};
      socklen_t size = sizeof(name);
      getsockname(listening, reinterpret_cast<sockaddr*>(&name), &size);
      bound = PortOf(name);
    }
  }
  if (found != nullptr) freeaddrinfo(found);
  if (code != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on '", options_.listen, "' (",
                                                   options_.name, " port): ", gai_strerror(code),
                                                   "; give HOST:PORT"));
  }
  if (listening_.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", options_.listen, " (", options_.name, " port): ", std::strerror(error),
        error == EADDRINUSE ? "; stop the other process or choose another port with --listen"
                            : "; choose an address of this machine with --listen"));
  }
  address_ = absl::StrCat(options_.listen.substr(0, colon), ":", bound);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  HOTBED_CHECK(wake_ >= 0) << "no descriptor for the " << options_.name << " port";
  return absl::OkStatus();
}

void Port::Serve(std::function<void(int descriptor)> hand_over) {
  hand_over_ = std::move(hand_over);
  answered_ns_.store(clock_->NowNs());
  accept_ = std::thread([this] { Accept(); });
  if (options_.probes) probe_ = std::thread([this] { Probe(); });
}

void Port::Stop() {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(stops_, true)) return;
  }
  if (wake_ >= 0) (void)!eventfd_write(wake_, 1);
  if (accept_.joinable()) accept_.join();
  if (probe_.joinable()) probe_.join();
  for (const int listening : listening_) close(listening);
  if (wake_ >= 0) close(wake_);
  if (spare_ >= 0) close(spare_);
}

void Port::Accept() {
  std::vector<pollfd> wanted = {{wake_, POLLIN, 0}};
  for (const int listening : listening_) wanted.push_back({listening, POLLIN, 0});
  int64_t ticked_ns = clock_->NowNs();
  uint64_t access_version = 0;
  for (;;) {
    poll(wanted.data(), wanted.size(), kTickMs);
    if (wanted[0].revents != 0) return;
    for (size_t i = 1; i < wanted.size(); ++i) {
      if (wanted[i].revents != 0) AcceptFrom(wanted[i].fd);
    }
    const int64_t now_ns = clock_->NowNs();
    if (now_ns - ticked_ns < kTickMs * kNsPerMs) continue;
    ticked_ns = now_ns;
    connections_->Tick();
    if (!options_.access_version) continue;
    const uint64_t version = options_.access_version();
    if (std::exchange(access_version, version) < version)
      connections_->EndAll(EndReason::kAccessChanged);
  }
}

void Port::AcceptFrom(int listening) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    const int descriptor =
        accept4(listening, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) Shed(listening);
      return;
    }
    const bool own = PortOf(peer) == probe_port_.load();
    if (!connections_->Add(descriptor, reinterpret_cast<const sockaddr*>(&peer), own)) {
      close(descriptor);
      continue;
    }
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    hand_over_(descriptor);
  }
}

void Port::Shed(int listening) {
  const int error = errno;
  HOTBED_LOG_EVERY_S(Error, 10) << "the " << options_.name
                                << " port cannot accept: " << std::strerror(error)
                                << "; raise the limit of open files";
  connections_->CountRefused(EndReason::kDescriptors);
  if (error == EMFILE && spare_ >= 0) {
    close(std::exchange(spare_, -1));
    const int refused = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (refused >= 0) close(refused);
    spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return;
  }
  if (spare_ < 0) spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  clock_->SleepNs(10 * kNsPerMs);  // the socket stays readable
}

void Port::Probe() {
  const auto stops = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stops_; };
  for (;;) {
    const std::string silence = ProbeOnce();
    if (silence.empty()) answered_ns_.store(clock_->NowNs());
    absl::MutexLock lock(&mu_);
    silence_ = silence;
    if (AwaitFor(&mu_, absl::Condition(&stops), absl::Milliseconds(kProbeEveryMs))) return;
  }
}

std::string Port::ProbeOnce() {
  sockaddr_storage to = {};
  socklen_t size = sizeof(to);
  getsockname(listening_.front(), reinterpret_cast<sockaddr*>(&to), &size);
  if (TakesBothFamilies(listening_.front(), to)) {  // IPv6 may be switched off
    sockaddr_in four = {};
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(PortOf(to)));
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to = {};
    size = sizeof(four);
    std::memcpy(&to, &four, sizeof(four));
  }
  sockaddr_storage from = {};
  from.ss_family = to.ss_family;
  if (to.ss_family == AF_INET6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(to);
    if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr)) six.sin6_addr = in6addr_loopback;
    reinterpret_cast<sockaddr_in6&>(from).sin6_addr = six.sin6_addr;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(to);
    if (four.sin_addr.s_addr == htonl(INADDR_ANY)) four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    reinterpret_cast<sockaddr_in&>(from).sin_addr = four.sin_addr;
  }
  const int probe = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (probe < 0) return std::strerror(errno);
  const bool encrypted = options_.limits.encrypted;
  const char* const hello = encrypted ? kNoTlsHello : kHttp2Hello;
  const size_t hello_bytes = encrypted ? sizeof(kNoTlsHello) - 1 : kHttp2HelloBytes;
  // Bound first, so that Accept() knows the connection when it comes.
  socklen_t from_size = size;
  std::string silence;
  if (bind(probe, reinterpret_cast<sockaddr*>(&from), size) != 0 ||
      getsockname(probe, reinterpret_cast<sockaddr*>(&from), &from_size) != 0) {
    silence = std::strerror(errno);
  } else {
    probe_port_.store(PortOf(from));
    char byte = 0;
    if (connect(probe, reinterpret_cast<sockaddr*>(&to), size) != 0 && errno != EINPROGRESS) {
      silence = std::strerror(errno);
    } else if (!Await(probe, POLLOUT, wake_) || send(probe, hello, hello_bytes, MSG_NOSIGNAL) < 0) {
      silence = "no connection within 2 s";
    } else if (!Await(probe, POLLIN, wake_) || (recv(probe, &byte, 1, 0) <= 0 && !encrypted)) {
      silence = "connected, and no answer within 2 s";
    }
  }
  close(probe);
  return silence;
}

bool Port::Answers(std::string* why_not) const {
  const int64_t silent_ms = (clock_->NowNs() - answered_ns_.load()) / kNsPerMs;
  if (silent_ms <= kSilentMsMax) return true;
  absl::MutexLock lock(&mu_);
  *why_not = absl::StrCat("the ", options_.name, " port ", address_,
                          " has not answered its own probe for ", silent_ms / 1000, " s",
                          silence_.empty() ? "" : ": ", silence_);
  return false;
}

}  // namespace hotbed
