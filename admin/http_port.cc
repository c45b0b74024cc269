#include "admin/http_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kLingerNs = 1'000'000'000;  // for the peer to close after its answer
constexpr int kCheckMs = 200;                 // how often connections that are late are looked for
constexpr int64_t kNoDescriptorNs = 20'000'000;
constexpr int kPagesNice = 10;

std::string NumericHost(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), nullptr, 0,
              NI_NUMERICHOST);
  return host;
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// nullopt: no HTTP.
std::optional<HttpRequest> Parse(absl::string_view head) {
  const std::vector<absl::string_view> lines = absl::StrSplit(head, '\n');
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(lines[0]), ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) return std::nullopt;
  HttpRequest request;
  request.method = std::string(words[0]);
  request.path = std::string(words[1].substr(0, words[1].find('?')));
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const std::string value(absl::StripAsciiWhitespace(field.second));
    if (absl::EqualsIgnoreCase(field.first, "accept")) request.accept = value;
    if (absl::EqualsIgnoreCase(field.first, "user-agent")) request.user_agent = value;
    if (absl::EqualsIgnoreCase(field.first, "authorization")) request.authorization = value;
  }
  return request;
}

HttpResponse Busy() {
  return {.code = 503,
          .reason = "Service Unavailable",
          .body = "too many pages are being made or read; try again, or ask for /healthz\n"};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpPort>> HttpPort::Start(const std::string& listen, Probe probe,
                                                          Page page) {
  std::unique_ptr<HttpPort> port(new HttpPort(std::move(probe), std::move(page)));
  HOTBED_RETURN_IF_ERROR(port->Listen(listen));
  port->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  port->reserve_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (port->wake_ < 0 || port->reserve_ < 0) {
    return absl::UnavailableError(absl::StrCat("admin port: ", std::strerror(errno)));
  }
  port->serving_ = std::thread([p = port.get()] { p->Serve(); });
  port->making_ = std::thread([p = port.get()] { p->MakePages(); });
  return port;
}

HttpPort::~HttpPort() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (wake_ >= 0) Wake();
  if (serving_.joinable()) serving_.join();
  if (making_.joinable()) making_.join();
  for (const auto& [number, connection] : connections_) close(connection.fd);
  for (const int fd : {listener_, wake_, reserve_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status HttpPort::Listen(const std::string& listen) {
  const absl::StatusOr<HostPort> place = SplitHostPort(listen, 0);
  if (!place.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("admin-listen: ", place.status().message()));
  }
  std::string host = place->host;
  if (host.empty() || host == "localhost") host = "127.0.0.1";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), place->port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("admin-listen: '", listen,
                                                   "': ", gai_strerror(error),
                                                   "; give an address of this machine"));
  }
  const absl::Cleanup free_found = [&] { freeaddrinfo(found); };
  listener_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (listener_ < 0 || bind(listener_, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0) {
    return absl::UnavailableError(
        absl::StrCat("admin port: cannot listen on ", listen, " (", std::strerror(errno),
                     "); is another process using it? Choose another with --admin-listen"));
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &size);
  address_ = JoinHostPort(host, absl::StrCat(PortOf(bound)));
  return absl::OkStatus();
}

// --- the thread of all connections

void HttpPort::Serve() {
  std::vector<pollfd> polled;
  std::vector<Number> numbers;
  while (true) {
    if (reserve_ < 0) reserve_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
    polled = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    numbers.clear();
    for (const auto& [number, connection] : connections_) {
      using State = Connection::State;
      const bool writes = connection.state == State::kWriting;
      const bool reads = connection.state == State::kReading || connection.state == State::kClosing;
      polled.push_back({connection.fd,
                        static_cast<int16_t>(writes  ? POLLOUT
                                             : reads ? POLLIN
                                                     : 0),
                        0});
      numbers.push_back(number);
    }
    poll(polled.data(), polled.size(), connections_.empty() ? -1 : kCheckMs);
    {
      absl::MutexLock lock(&mu_);
      if (stop_) return;
    }
    TakePages();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto it = connections_.find(numbers[i]);
      if (it == connections_.end() || polled[i + 2].revents == 0) continue;
      switch (it->second.state) {
        case Connection::State::kReading:
        case Connection::State::kClosing:
          OnReadable(numbers[i], &it->second);
          break;
        case Connection::State::kWriting:
          Write(numbers[i], &it->second);
          break;
        case Connection::State::kWaiting:  // it has gone
          Drop(numbers[i]);
          break;
      }
    }
    if (polled[1].revents != 0) AcceptAll();
    EndLate(Clock::Real()->NowNs());
  }
}

void HttpPort::AcceptAll() {
  while (true) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "admin port: no file descriptor is left";
      // The reserve lets one more in; without it, one that is here makes room.
      if (reserve_ >= 0) {
        close(std::exchange(reserve_, -1));
      } else if (!connections_.empty()) {
        MakeRoom();
      } else {
        Clock::Real()->SleepNs(kNoDescriptorNs);
        return;
      }
      continue;
    }
    if (fd < 0 && (errno == ECONNABORTED || errno == EINTR)) continue;
    if (fd < 0) return;
    if (connections_.size() >= kConnectionsMax) MakeRoom();
    Connection& connection = connections_[++arrived_];
    connection.fd = fd;
    connection.peer = NumericHost(address, size);
    connection.until_ns = Clock::Real()->NowNs() + kHeadNsMax;
    OnReadable(arrived_, &connection);  // its request is often here already
  }
}

// The oldest connection of the peer that has most.
void HttpPort::MakeRoom() {
  std::map<std::string, size_t> counts;
  for (const auto& [number, connection] : connections_) ++counts[connection.peer];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [number, connection] : connections_) {
    if (connection.peer == most->first) return Drop(number);
  }
}

void HttpPort::Drop(Number number) {
  const auto it = connections_.find(number);
  close(it->second.fd);
  connections_.erase(it);
}

void HttpPort::OnReadable(Number number, Connection* connection) {
  char buffer[4096];
  while (true) {
    const ssize_t got = recv(connection->fd, buffer, sizeof(buffer), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) return Drop(number);
    if (connection->state == Connection::State::kClosing) continue;
    connection->in.append(buffer, static_cast<size_t>(got));
    if (connection->in.size() > kHeadBytesMax) break;
  }
  if (connection->state == Connection::State::kClosing) return;
  const size_t end = connection->in.find("\r\n\r\n");
  if (end == std::string::npos && connection->in.size() <= kHeadBytesMax) return;
  const std::optional<HttpRequest> request =
      end == std::string::npos ? std::nullopt
                               : Parse(absl::string_view(connection->in).substr(0, end));
  connection->in.clear();
  if (request.has_value()) {
    OnRequest(number, connection, *request);
  } else {
    Answer(connection, {.code = 400, .reason = "Bad Request", .body = "no HTTP request\n"});
  }
  if (connection->state == Connection::State::kWriting) Write(number, connection);
}

void HttpPort::OnRequest(Number number, Connection* connection, const HttpRequest& request) {
  connection->head_only = request.method == "HEAD";
  if (request.method != "GET" && request.method != "HEAD") {
    return Answer(connection, {.code = 405,
                               .reason = "Method Not Allowed",
                               .body = absl::StrCat(request.method.substr(0, 20),
                                                    " is not allowed here: GET and HEAD are\n")});
  }
  if (const auto answer = probe_(request); answer.has_value()) return Answer(connection, *answer);
  {
    absl::MutexLock lock(&mu_);
    if (asked_.size() < kPagesWaitingMax && AnswerBytes() < kAnswerBytesMax) {
      asked_.emplace_back(number, request);
      connection->state = Connection::State::kWaiting;
      connection->until_ns = INT64_MAX;
      return;
    }
  }
  Answer(connection, Busy());
}

void HttpPort::Answer(Connection* connection, const HttpResponse& response) {
  connection->out = absl::StrCat(
      "HTTP/1.1 ", response.code, " ", response.reason, "\r\nContent-Type: ", response.type,
      "\r\nContent-Length: ", response.body.size(),
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n",
      response.location.empty() ? "" : absl::StrCat("Location: ", response.location, "\r\n"),
      response.content_policy == nullptr
          ? ""
          : absl::StrCat("Content-Security-Policy: ", response.content_policy, "\r\n"),
      response.challenge == nullptr
          ? ""
          : absl::StrCat("WWW-Authenticate: ", response.challenge, "\r\n"),
      "\r\n", connection->head_only ? "" : response.body);
  connection->state = Connection::State::kWriting;
  connection->until_ns = Clock::Real()->NowNs() + kAnswerNsMax;
}

void HttpPort::Write(Number number, Connection* connection) {
  while (connection->sent < connection->out.size()) {
    const ssize_t n = send(connection->fd, connection->out.data() + connection->sent,
                           connection->out.size() - connection->sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Drop(number);
    connection->sent += static_cast<size_t>(n);
  }
  // Closed at once with bytes of the peer unread, the connection would be reset, and the answer
  // with it.
  connection->out = std::string();
  shutdown(connection->fd, SHUT_WR);
  connection->state = Connection::State::kClosing;
  connection->until_ns = Clock::Real()->NowNs() + kLingerNs;
}

void HttpPort::TakePages() {
  uint64_t count = 0;
  (void)!read(wake_, &count, sizeof(count));
  std::vector<std::pair<Number, HttpResponse>> made;
  {
    absl::MutexLock lock(&mu_);
    made.swap(made_);
  }
  for (const auto& [number, response] : made) {
    const auto it = connections_.find(number);
    if (it == connections_.end()) continue;
    Answer(&it->second, response);
    Write(number, &it->second);
  }
}

void HttpPort::EndLate(int64_t now_ns) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Number number = it->first;
    const bool late = (it++)->second.until_ns <= now_ns;
    if (late) Drop(number);
  }
}

size_t HttpPort::AnswerBytes() const {
  size_t bytes = 0;
  for (const auto& [number, connection] : connections_) bytes += connection.out.size();
  return bytes;
}

// --- the thread of pages

void HttpPort::MakePages() {
  // On Linux the priority is that of the calling thread. Pages give way to whatever serves.
  setpriority(PRIO_PROCESS, 0, kPagesNice);
  while (true) {
    std::pair<Number, HttpRequest> asked;
    {
      absl::MutexLock lock(&mu_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stop_ || !asked_.empty();
      };
      mu_.Await(absl::Condition(&ready));
      if (stop_) return;
      asked = std::move(asked_.front());
      asked_.pop_front();
    }
    HttpResponse response = page_(asked.second);
    absl::MutexLock lock(&mu_);
    made_.emplace_back(asked.first, std::move(response));
    Wake();
  }
}

void HttpPort::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof(one));
}

}  // namespace hotbed
