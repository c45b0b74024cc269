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
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/field_error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr int64_t kLingerNs = 1'000'000'000;  // for the peer to close after its answer
constexpr int kCheckMs = 200;                 // how often connections that are late are looked for
constexpr int64_t kNoDescriptorNs = 20'000'000;
constexpr size_t kReadBytes = 16 << 10;
// One connection may read, and the listener accept, so often before the others have their turn.
constexpr int kReadsPerTurn = 16;
constexpr int kAcceptsPerTurn = 32;

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

absl::Status BodyTooLarge(uint64_t bytes, uint64_t limit) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat("the body has ", bytes, " bytes, the limit is ", limit));
  return WithField(error, "body", absl::StrCat(bytes, " bytes"),
                   absl::StrCat("at most ", limit, " bytes"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpPort>> HttpPort::Start(HttpPortOptions options, Probe probe,
                                                          Page page) {
  std::unique_ptr<HttpPort> port(
      new HttpPort(std::move(options), std::move(probe), std::move(page)));
  if (const HttpPortOptions& of = port->options_; !of.tls_certificate.empty()) {
    HOTBED_ASSIGN_OR_RETURN(port->tls_, HttpTls::Open(of.tls_certificate, of.tls_key));
  }
  HOTBED_RETURN_IF_ERROR(port->Listen(port->options_.listen));
  port->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  port->reserve_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (port->wake_ < 0 || port->reserve_ < 0) {
    return absl::UnavailableError(absl::StrCat(port->options_.name, ": ", std::strerror(errno)));
  }
  port->serving_ = std::thread([p = port.get()] { p->Serve(); });
  for (int i = 0; i < port->options_.threads; ++i) {
    port->making_.emplace_back([p = port.get()] { p->MakePages(); });
  }
  return port;
}

HttpPort::~HttpPort() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (wake_ >= 0) Wake();
  if (serving_.joinable()) serving_.join();
  for (std::thread& thread : making_) thread.join();
  for (const int fd : {listener_, wake_, reserve_}) {
    if (fd >= 0) close(fd);
  }
}

bool HttpPort::Drain(int64_t idle_ns, int64_t limit_ns) {
  {
    absl::MutexLock lock(&mu_);
    drain_idle_ns_ = idle_ns;
  }
  Wake();
  absl::MutexLock lock(&mu_);
  return AwaitFor(&mu_, absl::Condition(&drained_), absl::Nanoseconds(limit_ns));
}

absl::Status HttpPort::Listen(const std::string& listen) {
  const absl::StatusOr<HostPort> place = SplitHostPort(listen, 0);
  if (!place.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(options_.flag, ": ", place.status().message()));
  }
  std::string host = place->host;
  if (host.empty() || host == "localhost") host = "127.0.0.1";
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), place->port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(options_.flag, ": '", listen,
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
        absl::StrCat(options_.name, ": cannot listen on ", listen, " (", std::strerror(errno),
                     "); is another process using it? Choose another with --", options_.flag));
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
  std::vector<bool> more;  // has bytes of which poll does not tell
  while (true) {
    if (reserve_ < 0) reserve_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
    polled = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    numbers.clear();
    more.clear();
    for (const auto& [number, connection] : connections_) {
      using State = Connection::State;
      const bool writes = connection.state == State::kWriting;
      const bool reads = connection.state == State::kReading || connection.state == State::kClosing;
      const HttpBytes& bytes = *connection.bytes;
      polled.push_back({bytes.fd(),
                        writes  ? bytes.EventsToWrite()
                        : reads ? bytes.EventsToRead()
                                : int16_t{0},
                        0});
      numbers.push_back(number);
      more.push_back(reads && bytes.HasMore());
    }
    const bool any_more = std::find(more.begin(), more.end(), true) != more.end();
    poll(polled.data(), polled.size(), any_more ? 0 : connections_.empty() ? -1 : kCheckMs);
    if (!TakePages()) return;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto it = connections_.find(numbers[i]);
      if (it == connections_.end() || (polled[i + 2].revents == 0 && !more[i])) continue;
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
    if (polled[1].revents != 0) AcceptSome();
    EndLate(Clock::Real()->NowNs());
    if (drains_ && connections_.empty()) NoteDrained();
  }
}

void HttpPort::BeginDrain(int64_t idle_ns) {
  AcceptSome();  // those that were taken by the system already
  close(std::exchange(listener_, -1));
  drains_ = true;
  const int64_t until_ns = Clock::Real()->NowNs() + idle_ns;
  for (auto& [number, connection] : connections_) {
    if (connection.state != Connection::State::kReading || !connection.in.empty()) continue;
    connection.until_ns = std::min(connection.until_ns, until_ns);
  }
}

void HttpPort::NoteDrained() {
  absl::MutexLock lock(&mu_);
  drained_ = true;
}

void HttpPort::AcceptSome() {
  for (int accepted = 0; accepted < kAcceptsPerTurn; ++accepted) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    const int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      HOTBED_LOG_EVERY_S(Warning, 10) << options_.name << ": no file descriptor is left";
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
    auto bytes = tls_ != nullptr ? tls_->Accept(fd) : std::make_unique<HttpBytes>(fd, nullptr);
    if (bytes == nullptr) continue;
    if (connections_.size() >= kConnectionsMax) MakeRoom();
    Connection& connection = connections_[++arrived_];
    connection.bytes = std::move(bytes);
    connection.peer = NumericHost(address, size);
    connection.until_ns = Clock::Real()->NowNs() + options_.request_ns_max;
    // Its request is often here already. Under TLS hands are shaken first, each in its own turn.
    if (tls_ == nullptr) OnReadable(arrived_, &connection);
  }
}

// The oldest connection of the peer that has most, of one without a request if there is such.
void HttpPort::MakeRoom() {
  std::map<std::string, size_t> counts;
  for (const auto& [number, connection] : connections_) ++counts[connection.peer];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const bool idle : {true, false}) {
    for (const auto& [number, connection] : connections_) {
      if (connection.peer == most->first && (connection.idle || !idle)) return Drop(number);
    }
  }
}

void HttpPort::Drop(Number number) { connections_.erase(number); }

void HttpPort::OnReadable(Number number, Connection* connection) {
  char buffer[kReadBytes];
  for (int reads = 0; reads < kReadsPerTurn; ++reads) {
    const ssize_t got = connection->bytes->Receive(buffer, sizeof(buffer));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) return Drop(number);
    if (connection->state == Connection::State::kClosing) continue;
    if (std::exchange(connection->idle, false)) {
      connection->until_ns = Clock::Real()->NowNs() + options_.request_ns_max;
    }
    connection->in.append(buffer, static_cast<size_t>(got));
    const size_t wanted =
        connection->head.has_value()
            ? connection->head_bytes + connection->head->content_length.value_or(0)
            : kHeadBytesMax + 1;
    if (connection->in.size() >= wanted) break;
  }
  if (connection->state == Connection::State::kReading) TakeRequest(number, connection);
}

bool HttpPort::TakeHead(Number number, Connection* connection) {
  const size_t end = connection->in.find("\r\n\r\n");
  if (end == std::string::npos && connection->in.size() <= kHeadBytesMax) return false;
  const auto refuse = [&](int code, const auto&... text) {
    Refuse(number, connection, code, absl::InvalidArgumentError(absl::StrCat(text...)));
    return false;
  };
  if (end > kHeadBytesMax) {
    return refuse(400, "no HTTP request: its head is above ", kHeadBytesMax, " bytes");
  }
  absl::StatusOr<HttpHead> parsed = ParseHttpHead(absl::string_view(connection->in).substr(0, end));
  if (!parsed.ok()) {
    Refuse(number, connection, 400, parsed.status());
    return false;
  }
  connection->head = *std::move(parsed);
  connection->head_bytes = end + 4;
  const HttpHead& head = *connection->head;
  connection->head_only = head.request.method == "HEAD";
  if (const std::string& method = head.request.method;
      method != "GET" && method != "HEAD" && (method != "POST" || options_.body_bytes_max == 0)) {
    return refuse(405, method.substr(0, 20), " is not allowed here: ",
                  options_.body_bytes_max == 0 ? "GET and HEAD are" : "GET, HEAD and POST are");
  }
  if (options_.body_bytes_max == 0) {
    connection->head->content_length = 0;
    return true;
  }
  if (head.chunked) return refuse(411, "the body has no Content-Length: chunks are not taken");
  if (!head.content_length.has_value() && head.request.method == "POST") {
    return refuse(411, "the body has no Content-Length");
  }
  if (!head.encoding.empty() && !absl::EqualsIgnoreCase(head.encoding, "identity")) {
    return refuse(415, "Content-Encoding is ", absl::CEscape(head.encoding.substr(0, 40)),
                  "; allowed: none, as bodies are not decompressed");
  }
  const uint64_t length = head.content_length.value_or(0);
  if (length > options_.body_bytes_max) {
    Refuse(number, connection, 413, BodyTooLarge(length, options_.body_bytes_max));
    return false;
  }
  if (head.expects_continue && connection->in.size() < connection->head_bytes + length) {
    constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    if (connection->bytes->Send(kContinue.data(), kContinue.size()) !=
        static_cast<ssize_t>(kContinue.size())) {
      Drop(number);  // it does not even take so little
      return false;
    }
  }
  return true;
}

void HttpPort::TakeRequest(Number number, Connection* connection) {
  if (!connection->head.has_value() && !TakeHead(number, connection)) return;
  const uint64_t body_bytes = connection->head->content_length.value_or(0);
  const size_t bytes = connection->head_bytes + body_bytes;
  if (options_.body_bytes_max > 0 && BodyBytes() > options_.bodies_bytes_max) {
    return Refuse(number, connection, 503,
                  absl::UnavailableError(absl::StrCat("requests that are being read have ",
                                                      options_.bodies_bytes_max,
                                                      " bytes in all: try again")));
  }
  if (connection->in.size() < bytes) return;
  HttpRequest request = std::move(connection->head->request);
  request.body = connection->in.substr(connection->head_bytes, body_bytes);
  request.arrived_ns = Clock::Real()->NowNs();
  connection->keeps_open = connection->head->keeps_open && options_.idle_ns_max > 0;
  connection->head.reset();
  connection->in.erase(0, bytes);
  OnRequest(number, connection, std::move(request));
}

void HttpPort::OnRequest(Number number, Connection* connection, HttpRequest request) {
  if (probe_) {
    if (const auto answer = probe_(request); answer.has_value()) {
      Answer(connection, *answer);
      return Write(number, connection);
    }
  }
  {
    absl::MutexLock lock(&mu_);
    if (asked_.size() < options_.waiting_max && AnswerBytes() < options_.answers_bytes_max) {
      asked_bytes_ += request.body.size();
      asked_.emplace_back(number, std::move(request));
      connection->state = Connection::State::kWaiting;
      connection->until_ns = INT64_MAX;
      return;
    }
  }
  Refuse(number, connection, 503,
         absl::UnavailableError("too many requests are being answered or read: try again"));
}

void HttpPort::Answer(Connection* connection, const HttpResponse& response) {
  if (options_.answered) options_.answered(response.code);
  // A further request that is here already is answered, too.
  if (drains_ && connection->in.empty()) connection->keeps_open = false;
  connection->out = HttpAnswer(response, connection->head_only, !connection->keeps_open);
  connection->state = Connection::State::kWriting;
  connection->until_ns = Clock::Real()->NowNs() + kAnswerNsMax;
}

void HttpPort::Refuse(Number number, Connection* connection, int code, const absl::Status& why) {
  connection->keeps_open = false;
  connection->in = std::string();
  HttpResponse response =
      options_.refusal ? options_.refusal(code, why)
                       : HttpResponse{.code = code, .body = absl::StrCat(why.message(), "\n")};
  if (code == 405) {
    response.headers.emplace_back("Allow",
                                  options_.body_bytes_max == 0 ? "GET, HEAD" : "GET, HEAD, POST");
  }
  Answer(connection, response);
  Write(number, connection);
}

void HttpPort::Write(Number number, Connection* connection) {
  while (connection->sent < connection->out.size()) {
    const ssize_t n = connection->bytes->Send(connection->out.data() + connection->sent,
                                              connection->out.size() - connection->sent);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Drop(number);
    connection->sent += static_cast<size_t>(n);
  }
  connection->out = std::string();
  if (connection->keeps_open) return AwaitRequest(number, connection);
  // Closed at once with bytes of the peer unread, the connection would be reset, and the answer
  // with it.
  connection->bytes->EndWriting();
  connection->state = Connection::State::kClosing;
  connection->until_ns = Clock::Real()->NowNs() + kLingerNs;
}

void HttpPort::AwaitRequest(Number number, Connection* connection) {
  connection->state = Connection::State::kReading;
  connection->sent = 0;
  connection->idle = connection->in.empty();
  connection->until_ns =
      Clock::Real()->NowNs() + (connection->idle ? options_.idle_ns_max : options_.request_ns_max);
  if (!connection->idle) TakeRequest(number, connection);
}

bool HttpPort::TakePages() {
  // Before `stop_` is looked at: its wake-up must not be read away.
  uint64_t count = 0;
  (void)!read(wake_, &count, sizeof(count));
  std::vector<std::pair<Number, HttpResponse>> made;
  int64_t drain_idle_ns = -1;
  {
    absl::MutexLock lock(&mu_);
    if (stop_) return false;
    made.swap(made_);
    drain_idle_ns = drain_idle_ns_;
  }
  if (drain_idle_ns >= 0 && !drains_) BeginDrain(drain_idle_ns);
  for (const auto& [number, response] : made) {
    const auto it = connections_.find(number);
    if (it == connections_.end()) continue;
    Answer(&it->second, response);
    Write(number, &it->second);
  }
  return true;
}

void HttpPort::EndLate(int64_t now_ns) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Number number = it->first;
    Connection* const connection = &(it++)->second;
    if (connection->until_ns > now_ns) continue;
    if (connection->state == Connection::State::kReading && !connection->in.empty() &&
        options_.refusal) {
      Refuse(number, connection, 408,
             absl::DeadlineExceededError(absl::StrCat("the request was not complete within ",
                                                      options_.request_ns_max / kMillisecondNs,
                                                      " ms")));
    } else {
      Drop(number);
    }
  }
}

uint64_t HttpPort::BodyBytes() {
  uint64_t bytes = 0;
  for (const auto& [number, connection] : connections_) bytes += connection.in.size();
  absl::MutexLock lock(&mu_);
  return bytes + asked_bytes_;
}

size_t HttpPort::AnswerBytes() const {
  size_t bytes = 0;
  for (const auto& [number, connection] : connections_) bytes += connection.out.size();
  return bytes;
}

// --- the threads of pages

void HttpPort::MakePages() {
  // On Linux the priority is that of the calling thread.
  if (options_.nice != 0) setpriority(PRIO_PROCESS, 0, options_.nice);
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
      asked_bytes_ -= asked.second.body.size();
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
