#include "admin/admin_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "admin/metric_export.h"
#include "admin/status_render.h"
#include "common/await_for.h"
#include "common/log.h"

namespace hotbed {
namespace {

constexpr char kThreads[] = "3";              // a slow reader occupies one
constexpr char kRequestTimeoutMs[] = "5000";  // for a silent connection
constexpr char kQueuedConnections[] = "32";

struct Response {
  int code = 200;
  const char* reason = "OK";
  const char* type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string location = {};
};

struct HostPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostPort> ParseListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  HostPort out;
  if (colon == std::string::npos || !absl::SimpleAtoi(listen.substr(colon + 1), &out.port) ||
      out.port < 0 || out.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("admin-listen: '", listen,
                     "' is not host:port with a port of 0 to 65535 (as 127.0.0.1:7401)"));
  }
  out.host = listen.substr(0, colon);
  if (out.host.empty() || out.host == "localhost") out.host = "127.0.0.1";
  return out;
}

int LogMessage(const mg_connection*, const char* message) {
  HOTBED_LOG_EVERY_S(Warning, 5) << "admin port: " << message;
  return 1;  // handled
}

// Connects to loopback and closes. Where the server is bound to another address, the connection is
// refused and nothing happens.
void Touch(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  close(fd);
}

class CivetAdminServer : public AdminServer {
 public:
  explicit CivetAdminServer(AdminOptions options) : options_(std::move(options)) {}
  ~CivetAdminServer() override {
    if (context_ == nullptr) return;
    // civetweb's listening thread checks its stop flag every two seconds, or when a connection
    // arrives.
    absl::Mutex mu;
    bool stopped = false;  // guarded by mu
    const auto has_stopped = [&] {
      absl::MutexLock lock(&mu);
      return AwaitFor(&mu, absl::Condition(&stopped), absl::Milliseconds(10));
    };
    std::thread waker([&] {
      do {
        Touch(port_);
      } while (!has_stopped());
    });
    mg_stop(context_);  // waits for requests in progress
    {
      absl::MutexLock lock(&mu);
      stopped = true;
    }
    waker.join();
  }

  absl::Status Listen();
  std::string address() const override { return address_; }

 private:
  static int OnRequest(mg_connection* connection, void* self);
  Response Answer(const mg_connection* connection, const mg_request_info& info) const;
  Response Probe(const std::function<bool(std::string*)>& check, const char* fine) const;

  const AdminOptions options_;
  std::string address_;
  int port_ = 0;
  mg_callbacks callbacks_{};
  mg_context* context_ = nullptr;
};

absl::Status CivetAdminServer::Listen() {
  absl::StatusOr<HostPort> where = ParseListen(options_.listen);
  if (!where.ok()) return where.status();
  static absl::once_flag
      library;  // civetweb's count of starts is not safe against a first start from two threads
  absl::call_once(library, [] { mg_init_library(0); });
  const std::string listen = absl::StrCat(where->host, ":", where->port);
  const char* settings[] = {"listening_ports",
                            listen.c_str(),
                            "num_threads",
                            kThreads,
                            "request_timeout_ms",
                            kRequestTimeoutMs,
                            "connection_queue",
                            kQueuedConnections,
                            "enable_directory_listing",
                            "no",
                            nullptr};
  callbacks_.log_message = &LogMessage;
  char text[256] = "";
  unsigned code = 0;
  mg_init_data init{&callbacks_, this, settings};
  mg_error_data error{&code, text, sizeof(text)};
  context_ = mg_start2(&init, &error);
  if (context_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("admin port: cannot listen on ", listen, " (", text,
                     "); is another process using it? Choose another with --admin-listen"));
  }
  mg_server_port ports[1] = {};
  if (mg_get_server_ports(context_, 1, ports) != 1) {
    return absl::InternalError(
        absl::StrCat("admin port: bound to ", listen, " but no port is known"));
  }
  port_ = ports[0].port;
  address_ = absl::StrCat(where->host, ":", ports[0].port);
  mg_set_request_handler(context_, "/", &CivetAdminServer::OnRequest, this);
  return absl::OkStatus();
}

Response CivetAdminServer::Probe(const std::function<bool(std::string*)>& check,
                                 const char* fine) const {
  std::string why_not;
  if (!check || check(&why_not)) return {.body = absl::StrCat(fine, "\n")};
  if (why_not.empty()) why_not = absl::StrCat("not ", fine);
  return {.code = 503, .reason = "Service Unavailable", .body = absl::StrCat(why_not, "\n")};
}

Response CivetAdminServer::Answer(const mg_connection* connection,
                                  const mg_request_info& info) const {
  const absl::string_view method = info.request_method;
  if (method != "GET" && method != "HEAD") {
    return {.code = 405,
            .reason = "Method Not Allowed",
            .body = absl::StrCat(method, " is not allowed here: GET and HEAD are\n")};
  }
  const absl::string_view path = info.local_uri;
  if (path == "/")
    return {.code = 302, .reason = "Found", .body = "/statusz\n", .location = "/statusz"};
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8",
            .body = MetricsAsPrometheusText(CollectAllMetrics())};
  }
  if (path == "/healthz") return Probe(options_.healthy, "healthy");
  if (path == "/readyz") return Probe(options_.ready, "ready");
  if (path == "/api/metrics") {
    return {.type = "application/json", .body = MetricsAsJson(CollectAllMetrics())};
  }
  if (path == "/api/status" || path == "/statusz") {
    const StatusPage page = options_.status ? options_.status() : StatusPage();
    if (path == "/api/status") return {.type = "application/json", .body = StatusAsJson(page)};
    if (PrefersText(mg_get_header(connection, "Accept"), mg_get_header(connection, "User-Agent"))) {
      return {.body = StatusAsText(page, CollectAllMetrics())};
    }
    return {.type = "text/html; charset=utf-8", .body = StatusAsHtml(page, CollectAllMetrics())};
  }
  return {
      .code = 404,
      .reason = "Not Found",
      .body =
          "no such page; there are /statusz /healthz /readyz /metrics /api/status /api/metrics\n"};
}

int CivetAdminServer::OnRequest(mg_connection* connection, void* self) {
  const mg_request_info* info = mg_get_request_info(connection);
  const Response r = static_cast<CivetAdminServer*>(self)->Answer(connection, *info);
  std::string head = absl::StrCat("HTTP/1.1 ", r.code, " ", r.reason, "\r\nContent-Type: ", r.type,
                                  "\r\nContent-Length: ", r.body.size(),
                                  "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
                                  "\r\nConnection: close\r\n");
  if (!r.location.empty()) absl::StrAppend(&head, "Location: ", r.location, "\r\n");
  head += "\r\n";
  mg_write(connection, head.data(), head.size());
  if (std::strcmp(info->request_method, "HEAD") != 0) {
    mg_write(connection, r.body.data(), r.body.size());
  }
  return r.code;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(AdminOptions options) {
  auto server = std::make_unique<CivetAdminServer>(std::move(options));
  absl::Status status = server->Listen();
  if (!status.ok()) return status;
  return std::unique_ptr<AdminServer>(std::move(server));
}

}  // namespace hotbed
