#include "serving/http_lookups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/field_error.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "serving/http/lookup_body.h"
#include "serving/http/lookup_reply.h"
#include "serving/http/table_list.h"
#include "serving/http/top_k_body.h"
#include "serving/lookup_answer.h"
#include "serving/top_k_answer.h"

namespace hotbed {
namespace {

constexpr char kNameSlot[] = "{name}";
constexpr int kThreads = 2;
constexpr size_t kWaitingMax = 64;
constexpr int64_t kRequestNsMax = 10 * kSecondNs;
constexpr int64_t kIdleNsMax = 75 * kSecondNs;

// By code of HTTP.
class RequestCounters {
 public:
  static RequestCounters& Get() {
    static auto* const counters = new RequestCounters;
    return *counters;
  }
  void Count(int code) {
    const auto found = by_code_.find(code);
    (found == by_code_.end() ? by_code_.at(500) : found->second)->Add(1);
  }
  LatencyHistogram seconds{
      "hotbed_serving_http_seconds",
      "From the end of an HTTP request to a serving server until its answer is made."};

 private:
  RequestCounters() {
    for (const int code : {200, 400, 401, 403, 404, 405, 408, 411, 413, 429, 500, 503, 504}) {
      by_code_[code] = std::make_unique<Counter>(
          "hotbed_serving_http_requests_total",
          "HTTP requests that a serving server has answered, by the code of the answer.",
          Labels{{"code", absl::StrCat(code)}});
    }
  }
  std::map<int, std::unique_ptr<Counter>> by_code_;
};

// Whether `path` is of the form of the route; sets the name where the route has one.
bool Matches(const HttpRoute& route, absl::string_view path, std::string* name) {
  const absl::string_view form = route.path;
  const size_t slot = form.find(kNameSlot);
  if (slot == absl::string_view::npos) return path == form;
  const absl::string_view end = form.substr(slot + sizeof(kNameSlot) - 1);
  if (!absl::ConsumePrefix(&path, form.substr(0, slot)) || !absl::ConsumeSuffix(&path, end)) {
    return false;
  }
  const std::optional<std::string> unescaped = UnescapePath(path);
  if (!unescaped.has_value() || unescaped->empty()) return false;
  *name = *unescaped;
  return true;
}

HttpResponse NoRoute(const HttpRequest& request, const HttpRoute* other_method) {
  const std::string path = absl::CEscape(absl::string_view(request.path).substr(0, 100));
  if (other_method != nullptr) {
    HttpResponse response = ErrorResponse(
        405, absl::InvalidArgumentError(absl::StrCat(path, " takes ", other_method->method)));
    response.headers.emplace_back("Allow", other_method->method);
    return response;
  }
  const std::string all =
      absl::StrJoin(HttpRoutes(), ", ", [](std::string* out, const HttpRoute& route) {
        absl::StrAppend(out, route.method, " ", route.path);
      });
  return ErrorResponse(404,
                       absl::NotFoundError(absl::StrCat("no page ", path, "; there are ", all)));
}

std::string TokenOf(const HttpRequest& request) {
  constexpr absl::string_view kScheme = "Bearer ";
  const std::string field = request.authorization.value_or("");
  return absl::StartsWithIgnoreCase(field, kScheme) ? field.substr(kScheme.size()) : "";
}

LookupForm FormOf(const HttpRequest& request, const LookupBody& body) {
  if (request.accept.has_value() &&
      absl::StrContains(*request.accept, "application/octet-stream")) {
    return LookupForm::kOctets;
  }
  return body.base64 ? LookupForm::kBase64 : LookupForm::kArrays;
}

absl::Status StatusOf(const v1::ServingTableReply& said) {
  using Outcome = v1::ServingTableReply;
  switch (said.outcome()) {
    case Outcome::OK:
      return absl::OkStatus();
    case Outcome::NOT_SERVED:
      return absl::NotFoundError(said.detail());
    case Outcome::TOO_OLD:
      return absl::FailedPreconditionError(said.detail());
    case Outcome::DENIED:
      return absl::PermissionDeniedError(said.detail());
    default:
      return absl::UnavailableError(said.detail());
  }
}

}  // namespace

HttpLookups::HttpLookups(HttpLookupOptions options, const TableReplicas* tables,
                         AnswerBudget* budget, const Clock* clock)
    : options_(std::move(options)),
      tables_(*tables),
      budget_(budget),
      clock_(*clock),
      document_(OpenApiDocument(HOTBED_VERSION)) {}

HttpResponse HttpLookups::Answer(const HttpRequest& request) {
  const absl::Cleanup timed = [&] {
    RequestCounters::Get().seconds.RecordNs(clock_.NowNs() - request.arrived_ns);
  };
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const HttpRoute* other_method = nullptr;
  for (const HttpRoute& route : HttpRoutes()) {
    std::string table;
    if (!Matches(route, request.path, &table)) continue;
    if (method != route.method) {
      other_method = &route;
      continue;
    }
    const absl::StatusOr<HttpResponse> response = Answer(request, route, table);
    if (response.ok()) return *response;
    return ErrorResponse(HttpCodeOf(response.status().code()), response.status());
  }
  return NoRoute(request, other_method);
}

absl::StatusOr<HttpResponse> HttpLookups::Answer(const HttpRequest& request, const HttpRoute& route,
                                                 const std::string& table) {
  switch (route.kind) {
    case HttpRoute::kDocument:
      return HttpResponse{.type = "application/json", .body = document_};
    case HttpRoute::kTables:
      return Tables(request);
    case HttpRoute::kVersions:
      return Versions(request);
    case HttpRoute::kLookup: {
      HOTBED_ASSIGN_OR_RETURN(const auto replica, Find(request, "Lookup", table));
      return Read(request, *replica);
    }
    case HttpRoute::kTopK: {
      HOTBED_ASSIGN_OR_RETURN(const auto replica, Find(request, "TopK", table));
      return TopK(request, *replica);
    }
  }
  return absl::InternalError("no such route");
}

absl::Status HttpLookups::MayCall(const HttpRequest& request, absl::string_view method,
                                  absl::string_view table) const {
  return options_.access ? options_.access(TokenOf(request), method, table) : absl::OkStatus();
}

absl::Status HttpLookups::InTime(const HttpRequest& request, uint32_t timeout_ms) const {
  const int64_t taken_ns = clock_.NowNs() - request.arrived_ns;
  if (taken_ns < timeout_ms * kMillisecondNs) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("the answer took ", taken_ns / kMillisecondNs,
                                                  " ms, timeout_ms is ", timeout_ms));
}

absl::StatusOr<std::shared_ptr<const TableReplica>> HttpLookups::Find(
    const HttpRequest& request, absl::string_view method, const std::string& table) const {
  HOTBED_RETURN_IF_ERROR(MayCall(request, method, table));
  std::shared_ptr<const TableReplica> replica = tables_.Find(table);
  if (replica != nullptr) return replica;
  return absl::NotFoundError(absl::StrCat(
      "table \"", absl::CEscape(absl::string_view(table).substr(0, 80)), "\" is not served by ",
      options_.server, "; GET /v1/tables lists its tables, 'hotbed serve status' all servers"));
}

absl::StatusOr<uint64_t> HttpLookups::NumberOf(std::string* version,
                                               uint32_t staleness_ms_max) const {
  if (*version == "latest") version->clear();
  if (version->empty()) return 0;
  if (staleness_ms_max != 0) {
    return FieldError("", "staleness_max_ms", absl::StrCat(staleness_ms_max),
                      "0 with a version, whose rows do not change");
  }
  const uint64_t current = tables_.current_version();
  if (*version == "current" && current == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no version is current, as far as ", options_.server, " knows ('hotbed publish')"));
  }
  std::vector<std::string> names;
  for (const v1::ServedVersion& one : tables_.Versions()) {
    if (*version == "current" ? one.number() == current : one.name() == *version) {
      *version = one.name();
      return one.number();
    }
    names.push_back(one.name());
  }
  return absl::NotFoundError(absl::StrCat(
      options_.server, " is to have no version \"",
      absl::CEscape(absl::string_view(*version).substr(0, 80)),
      "\"; it has: ", names.empty() ? "none ('hotbed publish')" : absl::StrJoin(names, ", ")));
}

absl::StatusOr<HttpResponse> HttpLookups::Read(const HttpRequest& request,
                                               const TableReplica& replica) const {
  HOTBED_ASSIGN_OR_RETURN(
      LookupBody body,
      ParseLookupBody(request.body, options_.message_bytes_max / sizeof(uint64_t)));
  HOTBED_ASSIGN_OR_RETURN(v1::ServingLookupRequest asked,
                          RequestOf(body, replica.table(), replica.name()));
  HOTBED_ASSIGN_OR_RETURN(const uint64_t version, NumberOf(&body.version, body.staleness_ms_max));
  asked.set_version(version);
  HOTBED_RETURN_IF_ERROR(InTime(request, body.timeout_ms));
  const LookupForm form = FormOf(request, body);
  const uint64_t bytes = ResponseBytes(body, replica.rows()->coder().dim(), form);
  if (bytes > options_.message_bytes_max) {
    return absl::OutOfRangeError(absl::StrCat("the answer would have up to ", bytes,
                                              " bytes, the limit is ", options_.message_bytes_max,
                                              ": ask for fewer ids"));
  }
  const uint64_t taken = bytes + AnswerBytes(tables_, asked);
  HOTBED_RETURN_IF_ERROR(budget_->Take(taken));
  const absl::Cleanup give = [&] { budget_->Give(taken); };
  v1::ServingLookupReply reply;
  HOTBED_RETURN_IF_ERROR(AnswerLookup(tables_, {}, asked, &reply));
  HOTBED_RETURN_IF_ERROR(StatusOf(reply.tables(0)));
  HttpResponse response = LookupResponse(reply, body, form, replica.name(), options_.server);
  HOTBED_RETURN_IF_ERROR(InTime(request, body.timeout_ms));
  return response;
}

// One at a time: the port has two threads, and lookups must find one.
absl::StatusOr<HttpResponse> HttpLookups::TopK(const HttpRequest& request,
                                               const TableReplica& replica) {
  HOTBED_ASSIGN_OR_RETURN(
      TopKBody body, ParseTopKBody(request.body, options_.message_bytes_max / sizeof(uint64_t)));
  const uint32_t dim = replica.rows()->coder().dim();
  HOTBED_ASSIGN_OR_RETURN(v1::ServingTopKRequest asked,
                          TopKRequestOf(body, replica.table(), dim, replica.name()));
  HOTBED_ASSIGN_OR_RETURN(const uint64_t version, NumberOf(&body.version, body.staleness_ms_max));
  asked.set_version(version);
  HOTBED_RETURN_IF_ERROR(CheckTopK(tables_, asked));
  const uint64_t bytes = TopKResponseBytes(body, dim);
  if (bytes > options_.message_bytes_max) {
    return absl::OutOfRangeError(absl::StrCat("the answer would have up to ", bytes,
                                              " bytes, the limit is ", options_.message_bytes_max,
                                              ": ask for fewer rows"));
  }
  if (searches_.exchange(true)) {
    return absl::ResourceExhaustedError(
        "another top-k call is being answered at this port: ask another server, or again later");
  }
  const absl::Cleanup ends = [this] { searches_.store(false); };
  const uint64_t taken = bytes + TopKBytes(tables_, asked);
  HOTBED_RETURN_IF_ERROR(budget_->Take(taken));
  const absl::Cleanup give = [&] { budget_->Give(taken); };
  v1::ServingTopKReply reply;
  HOTBED_RETURN_IF_ERROR(AnswerTopK(
      tables_, {}, asked, [&] { return InTime(request, body.timeout_ms); }, &reply));
  HOTBED_RETURN_IF_ERROR(StatusOf(reply.table()));
  return TopKResponse(reply, replica.name(), options_.server, body.version);
}

absl::StatusOr<HttpResponse> HttpLookups::Versions(const HttpRequest& request) const {
  HOTBED_RETURN_IF_ERROR(MayCall(request, "GetServing", ""));
  std::vector<ListedVersion> versions;
  const auto replicas = tables_.All();
  for (const v1::ServedVersion& version : tables_.Versions()) {
    ListedVersion& one = versions.emplace_back();
    one.version = version;
    one.current = version.number() == tables_.current_version();
    one.held = true;
    for (const auto& replica : replicas) {
      if (std::count(version.tables().begin(), version.tables().end(), replica->table()) == 0) {
        continue;
      }
      one.tables.push_back(replica->name());
      one.held = one.held && replica->Version(version.number()).has_value();
    }
    std::sort(one.tables.begin(), one.tables.end());
  }
  return VersionsResponse(options_.server, versions);
}

absl::StatusOr<HttpResponse> HttpLookups::Tables(const HttpRequest& request) const {
  HOTBED_RETURN_IF_ERROR(MayCall(request, "GetServing", ""));
  std::vector<ListedTable> tables;
  for (const auto& replica : tables_.All()) {
    tables.push_back({.name = replica->name(),
                      .dim = replica->rows()->coder().dim(),
                      .staleness_ms_max = replica->staleness_ms_max(),
                      .report = replica->Report()});
  }
  std::sort(tables.begin(), tables.end(),
            [](const ListedTable& a, const ListedTable& b) { return a.name < b.name; });
  return TablesResponse(options_.server, tables);
}

absl::StatusOr<std::unique_ptr<HttpPort>> OpenLookupPort(const std::string& listen,
                                                         uint64_t message_bytes_max,
                                                         uint64_t answer_bytes_max,
                                                         HttpLookups* lookups) {
  HttpPortOptions options;
  options.listen = listen;
  options.name = "HTTP port";
  options.flag = "http-listen";
  options.request_ns_max = kRequestNsMax;
  options.body_bytes_max = message_bytes_max;
  options.bodies_bytes_max = 2 * message_bytes_max;
  options.answers_bytes_max = answer_bytes_max;
  options.waiting_max = kWaitingMax;
  options.idle_ns_max = kIdleNsMax;
  options.threads = kThreads;
  options.nice = 0;
  options.refusal = [](int code, const std::string& text) {
    return ErrorResponse(code, absl::UnknownError(text));
  };
  options.answered = [](int code) { RequestCounters::Get().Count(code); };
  return HttpPort::Start(std::move(options), nullptr, [lookups](const HttpRequest& request) {
    return lookups->Answer(request);
  });
}

}  // namespace hotbed
