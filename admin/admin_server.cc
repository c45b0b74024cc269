#include "admin/admin_server.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "admin/http_port.h"
#include "admin/metric_export.h"
#include "admin/status_render.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

HttpResponse Unfit(std::string body) { return {.code = 503, .body = std::move(body)}; }

HttpResponse Health(const AdminOptions& options) {
  std::string why_not;
  if (!options.healthy || options.healthy(&why_not)) return {.body = "healthy\n"};
  return Unfit(absl::StrCat(why_not.empty() ? "not healthy" : why_not, "\n"));
}

// A line for each condition that does not hold, else for all.
HttpResponse Readiness(const AdminOptions& options) {
  std::string held, broken;
  for (const ReadyCondition& condition :
       options.ready ? options.ready() : std::vector<ReadyCondition>()) {
    absl::StrAppend(condition.holds ? &held : &broken, condition.name, ": ", condition.found, "\n");
  }
  if (!broken.empty()) return Unfit(std::move(broken));
  return {.body = absl::StrCat("ready\n", held)};
}

std::optional<HttpResponse> AnswerProbe(const AdminOptions& options, const HttpRequest& request) {
  if (request.path == "/healthz") return Health(options);
  if (request.path == "/readyz") return Readiness(options);
  return std::nullopt;
}

// Scripts, styles and data of the same port alone; no frame may show the page.
constexpr char kOwnPagesOnly[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

HttpResponse NoSuchPage(const AdminOptions& options) {
  std::string all =
      "no such page; there are /statusz /healthz /readyz /metrics /api/status /api/metrics";
  for (const AdminPage& page : options.pages) absl::StrAppend(&all, " ", page.path);
  return {.code = 404, .body = absl::StrCat(all, "\n")};
}

// "Bearer TOKEN", or "Basic" with the token as the password, as browsers send it. Empty: none.
std::string TokenOf(const HttpRequest& request) {
  const std::string field = request.authorization.value_or("");
  absl::string_view text = field;
  if (absl::ConsumePrefix(&text, "Bearer ")) return std::string(text);
  std::string pair;
  if (!absl::ConsumePrefix(&text, "Basic ") || !absl::Base64Unescape(text, &pair)) return "";
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? "" : pair.substr(colon + 1);
}

HttpResponse TokenMissing() {
  return {
      .code = 401,
      .body =
          "this page needs a token of the file of --admin-tokens, as 'Authorization: "
          "Bearer TOKEN' or as a password; /healthz and /readyz need none\n",
      .headers = {{"WWW-Authenticate", "Basic realm=\"hotbed: a token as the password\", Bearer"}}};
}

HttpResponse MakePage(const AdminOptions& options, const HttpRequest& request) {
  if (options.may_read && !options.may_read(TokenOf(request))) return TokenMissing();
  const absl::string_view path = request.path;
  if (path == "/") {
    const std::string first = options.pages.empty() ? "/statusz" : options.pages[0].path;
    return {.code = 302, .body = first + "\n", .headers = {{"Location", first}}};
  }
  for (const AdminPage& page : options.pages) {
    if (path != page.path) continue;
    return {.type = page.type,
            .body = page.body(),
            .headers = {{"Content-Security-Policy", kOwnPagesOnly}}};
  }
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8",
            .body = MetricsAsPrometheusText(CollectAllMetrics())};
  }
  if (path == "/api/metrics") {
    return {.type = "application/json", .body = MetricsAsJson(CollectAllMetrics())};
  }
  if (path == "/api/status" || path == "/statusz") {
    const StatusPage page = options.status ? options.status() : StatusPage();
    if (path == "/api/status") return {.type = "application/json", .body = StatusAsJson(page)};
    const auto text = [](const std::optional<std::string>& header) {
      return header.has_value() ? header->c_str() : nullptr;
    };
    if (PrefersText(text(request.accept), text(request.user_agent))) {
      return {.body = StatusAsText(page, CollectAllMetrics())};
    }
    return {.type = "text/html; charset=utf-8", .body = StatusAsHtml(page, CollectAllMetrics())};
  }
  return NoSuchPage(options);
}

class HttpAdminServer : public AdminServer {
 public:
  explicit HttpAdminServer(std::unique_ptr<HttpPort> port) : port_(std::move(port)) {}
  std::string address() const override { return port_->address(); }

 private:
  const std::unique_ptr<HttpPort> port_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(AdminOptions options) {
  const auto shared = std::make_shared<const AdminOptions>(std::move(options));
  HOTBED_ASSIGN_OR_RETURN(
      std::unique_ptr<HttpPort> port,
      HttpPort::Start(
          {.listen = shared->listen},
          [shared](const HttpRequest& request) { return AnswerProbe(*shared, request); },
          [shared](const HttpRequest& request) { return MakePage(*shared, request); }));
  return std::make_unique<HttpAdminServer>(std::move(port));
}

}  // namespace hotbed
