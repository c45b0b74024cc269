#include "serving/http_lookups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "common/field_error.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "proto/served_models.h"
#include "serving/http/lookup_body.h"
#include "serving/http/lookup_reply.h"
#include "serving/http/table_list.h"
#include "serving/http/top_k_body.h"
#include "serving/lookup_answer.h"
#include "serving/rows/row_coder.h"
#include "serving/top_k_answer.h"

namespace hotbed {
namespace {

constexpr char kNameSlot[] = "{name}";
constexpr char kServedTables[] = "a served table";
constexpr int kThreads = 8;
constexpr int kSlowMax = 6;
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
  Counter forwarded{"hotbed_serving_http_forwarded_total",
                    "HTTP requests for which a serving server asked others, because it could not "
                    "answer all of their tables by copies of its own."};

 private:
  RequestCounters() {
    for (const int code : {200, 400, 401, 403, 404, 405, 408, 411, 413, 415, 429, 500, 503, 504}) {
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

// Not by this server, as it seems, but by another one.
bool OtherMayAnswer(const absl::Status& error) {
  return absl::IsNotFound(error) || absl::IsFailedPrecondition(error) || absl::IsUnavailable(error);
}

// A place among the requests that may occupy their thread for long, which are fewer than threads.
class Turn {
 public:
  explicit Turn(std::atomic<int>* count) : count_(count), taken_(count->fetch_add(1) < kSlowMax) {}
  ~Turn() { count_->fetch_sub(1); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  absl::Status taken() const {
    if (taken_) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        kSlowMax,
        " requests of top-k, of batch scoring or for copies of other servers are being "
        "answered at this port, the limit: ask another server, or again later"));
  }

 private:
  std::atomic<int>* const count_;
  const bool taken_;
};

Pooling PoolingOf(v1::ServedPooling pooling) {
  switch (pooling) {
    case v1::SERVED_SUM:
      return Pooling::kSum;
    case v1::SERVED_MEAN:
      return Pooling::kMean;
    case v1::SERVED_MAX:
      return Pooling::kMax;
    default:
      return Pooling::kNone;
  }
}

uint64_t AgeMs(absl::Duration age) {
  return static_cast<uint64_t>(absl::ToInt64Milliseconds(absl::Ceil(age, absl::Milliseconds(1))));
}

// As a server with these rows would have answered by gRPC.
v1::ServingLookupReply ReplyOf(const ServingRows& rows, RowType type) {
  v1::ServingLookupReply reply;
  v1::ServingTableReply& table = *reply.add_tables();
  table.set_dim(rows.dim);
  table.set_age_ms(AgeMs(rows.age));
  const RowCoder coder(RowFormatKind::kFp32, rows.dim);
  const uint64_t count = rows.dim == 0 ? 0 : rows.values.size() / rows.dim;
  const uint64_t row_bytes = RowWireBytes(type, rows.dim);
  reply.mutable_rows()->resize(count * row_bytes);
  std::vector<float> scratch(rows.dim);
  auto* out = reinterpret_cast<uint8_t*>(reply.mutable_rows()->data());
  for (uint64_t i = 0; i < count; ++i, out += row_bytes) {
    coder.Answer(reinterpret_cast<const uint8_t*>(rows.values.data() + i * rows.dim), type,
                 scratch.data(), out);
  }
  reply.mutable_exists()->assign(rows.exists.begin(), rows.exists.end());
  for (const ServingTier tier : rows.tiers) {
    reply.mutable_tiers()->push_back(static_cast<char>(tier));
  }
  return reply;
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
    case HttpRoute::kLookup:
      return Lookup(request, table);
    case HttpRoute::kLookups:
      return Lookups(request);
    case HttpRoute::kTopK:
      return TopK(request, table);
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
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat(taken_ns / kMillisecondNs,
                   " ms have passed since the request came, timeout_ms is ", timeout_ms));
  return WithField(late, "timeout_ms", absl::StrCat(timeout_ms),
                   absl::StrCat("more than ", taken_ns / kMillisecondNs, " for this request now"));
}

absl::Duration HttpLookups::Left(const HttpRequest& request, uint32_t timeout_ms) const {
  return absl::Milliseconds(timeout_ms) - absl::Nanoseconds(clock_.NowNs() - request.arrived_ns);
}

absl::Status HttpLookups::NotServedHere(absl::string_view table) const {
  const std::string name = absl::CEscape(table.substr(0, 80));
  const absl::Status error = absl::NotFoundError(
      absl::StrCat("table \"", name, "\" is not served by ", options_.server,
                   "; GET /v1/tables lists its tables, 'hotbed serve status' all servers"));
  return WithField(error, "table", name, kServedTables);
}

absl::Status HttpLookups::PartHere(const TableReplica& replica) {
  return absl::UnavailableError(absl::StrCat("part ", replica.part().part + 1, " of ",
                                             replica.part().parts, " of table ", replica.name(),
                                             " is served here alone"));
}

absl::Status HttpLookups::CheckBytes(uint64_t bytes, absl::string_view field,
                                     absl::string_view fewer) const {
  if (bytes <= options_.message_bytes_max) return absl::OkStatus();
  const std::string limit = absl::StrCat(options_.message_bytes_max);
  const absl::Status error = absl::OutOfRangeError(absl::StrCat(
      "the answer would have up to ", bytes, " bytes, the limit is ", limit, ": ask for ", fewer));
  return WithField(error, field, absl::StrCat("an answer of up to ", bytes, " bytes"),
                   absl::StrCat("an answer of at most ", limit, " bytes"));
}

absl::StatusOr<uint64_t> HttpLookups::NumberOf(const OrderedVersions& versions,
                                               const TableReplica& replica,
                                               uint32_t staleness_ms_max,
                                               const std::vector<uint32_t>& tables,
                                               std::string* version) const {
  if (*version == "latest") version->clear();
  if (version->empty()) return 0;
  if (staleness_ms_max != 0) {
    return FieldError("", "staleness_max_ms", absl::StrCat(staleness_ms_max),
                      "0 with a version, whose rows do not change");
  }
  const std::optional<std::string> model = ModelOfCurrent(*version);
  std::vector<const v1::ServedVersion*> found;
  std::vector<std::string> names;
  for (const v1::ServedVersion& one : versions.versions) {
    const bool asked =
        model.has_value() ? versions.IsCurrent(one.number()) : one.name() == *version;
    if (asked) found.push_back(&one);
    names.push_back(one.name());
  }
  HOTBED_RETURN_IF_ERROR(
      NarrowCurrent(model.value_or(""), replica.table(), replica.name(), tables, &found));
  if (!found.empty()) {
    *version = found[0]->name();
    return found[0]->number();
  }
  if (model.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no version of the table is current", model->empty() ? "" : " of that model",
                     ", as far as ", options_.server, " knows ('hotbed publish')"));
  }
  const std::string shown = absl::CEscape(absl::string_view(*version).substr(0, 80));
  const std::string has = names.empty() ? "none ('hotbed publish')" : absl::StrJoin(names, ", ");
  return WithField(absl::NotFoundError(absl::StrCat(options_.server, " is to have no version \"",
                                                    shown, "\"; it has: ", has)),
                   "version", shown, has);
}

struct HttpLookups::Held {
  explicit Held(AnswerBudget* of) : budget(of) {}
  ~Held() { Give(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  absl::Status Take(uint64_t more) {
    HOTBED_RETURN_IF_ERROR(budget->Take(more));
    bytes += more;
    return absl::OkStatus();
  }
  void Give() { budget->Give(std::exchange(bytes, 0)); }

  AnswerBudget* const budget;
  uint64_t bytes = 0;
};

absl::StatusOr<HttpResponse> HttpLookups::Lookup(const HttpRequest& request,
                                                 const std::string& table) {
  HOTBED_RETURN_IF_ERROR(MayCall(request, "Lookup", table));
  HOTBED_ASSIGN_OR_RETURN(
      LookupBody body,
      ParseLookupBody(request.body, options_.message_bytes_max / sizeof(uint64_t)));
  body.table = table;
  const LookupForm form = FormOf(request, body);
  Held held(budget_);
  HOTBED_ASSIGN_OR_RETURN(const std::vector<TableAnswer> answers,
                          AnswerAll(request, {body}, form, /*partial=*/false, &held));
  HOTBED_RETURN_IF_ERROR(answers[0].status);
  body.version = answers[0].version;
  HttpResponse response = LookupResponse(answers[0].reply, body, form, table, answers[0].server);
  HOTBED_RETURN_IF_ERROR(InTime(request, body.timeout_ms));
  return response;
}

absl::StatusOr<HttpResponse> HttpLookups::Lookups(const HttpRequest& request) {
  HOTBED_RETURN_IF_ERROR(MayCall(request, "Lookup", ""));
  HOTBED_ASSIGN_OR_RETURN(
      LookupsBody body,
      ParseLookupsBody(request.body, options_.message_bytes_max / sizeof(uint64_t)));
  const LookupForm form = body.options.base64 ? LookupForm::kBase64 : LookupForm::kArrays;
  std::vector<TableText> texts(body.tables.size());
  std::vector<LookupBody> bodies;
  std::vector<size_t> places;  // of the bodies, in the answer
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].table = body.tables[i].table;
    texts[i].error = MayCall(request, "Lookup", texts[i].table);
    if (!texts[i].error.ok() && !body.partial) return texts[i].error;
    if (!texts[i].error.ok()) continue;
    bodies.push_back(std::move(body.tables[i]));
    places.push_back(i);
  }
  Held held(budget_);
  std::vector<TableAnswer> answers;
  if (!bodies.empty()) {
    HOTBED_ASSIGN_OR_RETURN(answers, AnswerAll(request, bodies, form, body.partial, &held));
  }
  bool any = false;
  for (size_t i = 0; i < answers.size(); ++i) {
    TableText& one = texts[places[i]];
    one.error = answers[i].status;
    one.known = std::move(answers[i].known);
    one.base64 = body.options.base64;
    if (!one.error.ok() && !body.partial) return one.error;
    if (!one.error.ok() && one.known.empty()) continue;
    any = true;
    bodies[i].version = answers[i].version;
    one.text = LookupResponse(answers[i].reply, bodies[i], form, one.table, answers[i].server).body;
  }
  if (!any) return texts[0].error;
  // A partial answer is late where a table took all of the time; the other tables were in time.
  if (!body.partial) HOTBED_RETURN_IF_ERROR(InTime(request, body.options.timeout_ms));
  return LookupsResponse(texts);
}

bool HttpLookups::NeedsOthers(const std::vector<TableAnswer>& answers) {
  return absl::c_any_of(answers, [](const auto& one) { return OtherMayAnswer(one.status); });
}

absl::StatusOr<std::vector<HttpLookups::TableAnswer>> HttpLookups::AnswerAll(
    const HttpRequest& request, const std::vector<LookupBody>& bodies, LookupForm form,
    bool partial, Held* held) {
  std::optional<Turn> turn;
  if (bodies[0].batch) {
    turn.emplace(&slow_);
    HOTBED_RETURN_IF_ERROR(turn->taken());
  }
  HOTBED_ASSIGN_OR_RETURN(std::vector<TableAnswer> answers,
                          AnswerHere(request, bodies, form, held));
  if (!options_.others || !NeedsOthers(answers)) return answers;
  held->Give();
  if (!turn.has_value()) turn.emplace(&slow_);
  HOTBED_RETURN_IF_ERROR(turn->taken());
  return AskOthers(request, bodies, form, partial, held);
}

absl::StatusOr<std::vector<HttpLookups::TableAnswer>> HttpLookups::AnswerHere(
    const HttpRequest& request, const std::vector<LookupBody>& bodies, LookupForm form,
    Held* held) const {
  std::vector<TableAnswer> answers(bodies.size());
  std::vector<v1::ServingLookupRequest> asked(bodies.size());
  // Taken once, so that all tables of a model are answered of one version.
  const OrderedVersions versions = tables_.Versions();
  uint64_t response_bytes = 0, row_bytes = 0;
  std::vector<std::shared_ptr<const TableReplica>> replicas;
  std::vector<uint32_t> ids;
  for (const LookupBody& body : bodies) {
    replicas.push_back(tables_.Find(body.table));
    if (replicas.back() != nullptr && replicas.back()->part().parts == 1) {
      ids.push_back(replicas.back()->table());
    }
  }
  for (size_t i = 0; i < bodies.size(); ++i) {
    const LookupBody& body = bodies[i];
    const TableReplica* const replica = replicas[i].get();
    HOTBED_ASSIGN_OR_RETURN(asked[i],
                            RequestOf(body, replica == nullptr ? 0 : replica->table(), body.table));
    if (replica == nullptr) {
      answers[i].status = NotServedHere(body.table);
      continue;
    }
    if (replica->part().parts > 1) {
      answers[i].status = PartHere(*replica);
      continue;
    }
    answers[i].server = options_.server;
    answers[i].version = body.version;
    const absl::StatusOr<uint64_t> version =
        NumberOf(versions, *replica, body.staleness_ms_max, ids, &answers[i].version);
    // Where tables are missing here, others know more of them.
    if (absl::IsInvalidArgument(version.status()) && ids.size() == bodies.size()) {
      return version.status();
    }
    answers[i].status = version.status();
    if (!version.ok()) continue;
    asked[i].set_version(*version);
    response_bytes += ResponseBytes(body, replica->rows()->coder().dim(), form);
    row_bytes += AnswerBytes(tables_, asked[i]);
  }
  // Then all of them are asked for elsewhere.
  if (options_.others && NeedsOthers(answers)) return answers;
  // Said also to a request that is late: it will be too large the next time, too.
  HOTBED_RETURN_IF_ERROR(CheckBytes(response_bytes, "ids", "fewer ids"));
  HOTBED_RETURN_IF_ERROR(InTime(request, bodies[0].timeout_ms));
  HOTBED_RETURN_IF_ERROR(held->Take(response_bytes + row_bytes));
  HOTBED_RETURN_IF_ERROR(Run(request, bodies[0], request.body.size() + row_bytes, [&] {
    for (size_t i = 0; i < bodies.size(); ++i) {
      TableAnswer& one = answers[i];
      if (one.status.ok()) one.status = AnswerLookup(tables_, {}, asked[i], &one.reply);
      if (one.status.ok()) one.status = StatusOf(one.reply.tables(0));
    }
  }));
  return answers;
}

// This thread waits: the port has more of them than processors.
absl::Status HttpLookups::Run(const HttpRequest& request, const LookupBody& options, uint64_t bytes,
                              const std::function<void()>& task) const {
  if (!options_.run) {
    task();
    return absl::OkStatus();
  }
  absl::Notification done;
  int64_t retry_ns = 0;
  absl::Status taken = options_.run(
      {.bytes = bytes,
       .batch = options.batch,
       .left_ns = absl::ToInt64Nanoseconds(Left(request, options.timeout_ms))},
      [&task, &done] {
        task();
        done.Notify();
      },
      &retry_ns);
  if (taken.ok()) {
    done.WaitForNotification();
  } else if (retry_ns > 0) {
    taken.SetPayload(kErrorRetryMs, absl::Cord(absl::StrCat(retry_ns / kMillisecondNs)));
  }
  return taken;
}

absl::StatusOr<ServingClient*> HttpLookups::Others(const HttpRequest& request,
                                                   uint32_t timeout_ms) const {
  HOTBED_RETURN_IF_ERROR(InTime(request, timeout_ms));
  RequestCounters::Get().forwarded.Add(1);
  return options_.others(Left(request, timeout_ms));
}

absl::StatusOr<std::vector<HttpLookups::TableAnswer>> HttpLookups::AskOthers(
    const HttpRequest& request, const std::vector<LookupBody>& bodies, LookupForm form,
    bool partial, Held* held) const {
  const LookupBody& all = bodies[0];
  HOTBED_ASSIGN_OR_RETURN(ServingClient* const client, Others(request, all.timeout_ms));
  std::vector<ServingIds> ids;
  uint64_t response_bytes = 0, row_bytes = 0;
  for (const LookupBody& body : bodies) {
    ids.push_back({.table = body.table,
                   .ids = body.ids,
                   .pooling = PoolingOf(body.pooling),
                   .offsets = body.offsets,
                   .weights = body.weights});
    const uint64_t dim = client->Dim(body.table);
    response_bytes += ResponseBytes(body, static_cast<uint32_t>(dim), form);
    // As they come, as floats, and as they go.
    row_bytes += 3 * sizeof(float) * dim * std::max(body.ids.size(), body.offsets.size());
  }
  HOTBED_RETURN_IF_ERROR(CheckBytes(response_bytes, "ids", "fewer ids"));
  HOTBED_RETURN_IF_ERROR(held->Take(response_bytes + row_bytes));
  ServingLookupOptions options;
  options.timeout = Left(request, all.timeout_ms);
  options.staleness_max = absl::Milliseconds(all.staleness_ms_max);
  options.priority = all.batch ? ServingPriority::kBatch : ServingPriority::kInference;
  options.partial = partial;
  options.with_tiers = all.tiers;
  options.version = all.version;
  HOTBED_ASSIGN_OR_RETURN(const std::vector<ServingRows> rows, client->Lookup(ids, options));
  std::vector<TableAnswer> answers(bodies.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    answers[i].status = rows[i].status;
    answers[i].server = rows[i].server;
    answers[i].version = rows[i].version;
    answers[i].known = rows[i].known;
    if (rows[i].status.ok() || !rows[i].known.empty())
      answers[i].reply = ReplyOf(rows[i], bodies[i].type);
  }
  return answers;
}

absl::StatusOr<HttpResponse> HttpLookups::TopK(const HttpRequest& request,
                                               const std::string& table) {
  HOTBED_RETURN_IF_ERROR(MayCall(request, "TopK", table));
  HOTBED_ASSIGN_OR_RETURN(
      const TopKBody body,
      ParseTopKBody(request.body, options_.message_bytes_max / sizeof(uint64_t)));
  const std::shared_ptr<const TableReplica> replica = tables_.Find(table);
  absl::StatusOr<HttpResponse> here = NotServedHere(table);
  if (replica != nullptr) {
    here = replica->part().parts > 1 ? PartHere(*replica) : TopKHere(request, *replica, body);
  }
  if (!OtherMayAnswer(here.status()) || !options_.others) return here;
  return TopKOfOthers(request, table, body);
}

// By the threads that search for gRPC's calls. The one of this port waits for them.
absl::StatusOr<HttpResponse> HttpLookups::TopKHere(const HttpRequest& request,
                                                   const TableReplica& replica, TopKBody body) {
  const uint32_t dim = replica.rows()->coder().dim();
  HOTBED_ASSIGN_OR_RETURN(v1::ServingTopKRequest asked,
                          TopKRequestOf(body, replica.table(), dim, replica.name()));
  HOTBED_ASSIGN_OR_RETURN(const uint64_t version,
                          NumberOf(tables_.Versions(), replica, body.staleness_ms_max,
                                   {replica.table()}, &body.version));
  asked.set_version(version);
  HOTBED_RETURN_IF_ERROR(CheckTopK(tables_, asked));
  const uint64_t bytes = TopKResponseBytes(body, dim);
  HOTBED_RETURN_IF_ERROR(CheckBytes(bytes, "k", "fewer rows or vectors"));
  const Turn turn(&slow_);
  HOTBED_RETURN_IF_ERROR(turn.taken());
  Held held(budget_);
  HOTBED_RETURN_IF_ERROR(held.Take(bytes + TopKBytes(tables_, asked)));
  v1::ServingTopKReply reply;
  absl::Status answered;
  const auto search = [&] {
    answered = AnswerTopK(
        tables_, {}, asked, [&] { return InTime(request, body.timeout_ms); }, &reply);
  };
  if (options_.search) {
    HOTBED_RETURN_IF_ERROR(options_.search(search));
  } else {
    search();
  }
  HOTBED_RETURN_IF_ERROR(answered);
  HOTBED_RETURN_IF_ERROR(StatusOf(reply.table()));
  return TopKResponse(reply, replica.name(), options_.server, body.version);
}

absl::StatusOr<HttpResponse> HttpLookups::TopKOfOthers(const HttpRequest& request,
                                                       const std::string& table,
                                                       const TopKBody& body) {
  const Turn turn(&slow_);
  HOTBED_RETURN_IF_ERROR(turn.taken());
  HOTBED_ASSIGN_OR_RETURN(ServingClient* const client, Others(request, body.timeout_ms));
  const uint32_t dim = client->Dim(table);
  if (dim == 0) {
    const std::string name = absl::CEscape(absl::string_view(table).substr(0, 80));
    return WithField(absl::NotFoundError(absl::StrCat(
                         "table \"", name, "\" is not served; 'hotbed serve add' begins that")),
                     "table", name, kServedTables);
  }
  HOTBED_RETURN_IF_ERROR(TopKRequestOf(body, 0, dim, table).status());
  const uint64_t bytes = TopKResponseBytes(body, dim);
  HOTBED_RETURN_IF_ERROR(CheckBytes(bytes, "k", "fewer rows or vectors"));
  Held held(budget_);
  HOTBED_RETURN_IF_ERROR(held.Take(3 * bytes));
  ServingTopKOptions options;
  options.timeout = Left(request, body.timeout_ms);
  options.staleness_max = absl::Milliseconds(body.staleness_ms_max);
  options.version = body.version;
  options.metric = static_cast<RowMetric>(body.metric);
  if (body.only) options.only_ids = body.only_ids;
  options.first_id = body.first_id;
  options.last_id = body.last_id;
  HOTBED_ASSIGN_OR_RETURN(const ServingNearest nearest,
                          client->TopK(table, body.vectors, body.k, options));
  v1::ServingTopKReply reply;
  reply.mutable_table()->set_dim(dim);
  reply.mutable_table()->set_age_ms(AgeMs(nearest.age));
  for (const std::vector<ScoredRow>& rows : nearest.rows) {
    reply.add_counts(static_cast<uint32_t>(rows.size()));
    for (const ScoredRow& row : rows) {
      reply.mutable_ids()->append(reinterpret_cast<const char*>(&row.id), sizeof(row.id));
      reply.mutable_scores()->append(reinterpret_cast<const char*>(&row.score), sizeof(row.score));
    }
  }
  return TopKResponse(reply, table, nearest.server, nearest.version);
}

absl::StatusOr<HttpResponse> HttpLookups::Versions(const HttpRequest& request) const {
  HOTBED_RETURN_IF_ERROR(MayCall(request, "GetServing", ""));
  std::vector<ListedVersion> versions;
  const auto replicas = tables_.Present();
  const OrderedVersions ordered = tables_.Versions();
  for (const v1::ServedVersion& version : ordered.versions) {
    ListedVersion& one = versions.emplace_back();
    one.version = version;
    one.current = ordered.IsCurrent(version.number());
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
  for (const auto& replica : tables_.Present()) {
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
                                                         const TlsFiles& files,
                                                         uint64_t message_bytes_max,
                                                         uint64_t answer_bytes_max,
                                                         HttpLookups* lookups) {
  HttpPortOptions options;
  options.listen = listen;
  options.name = "HTTP port";
  options.flag = "http-listen";
  options.tls_certificate = files.certificate;
  options.tls_key = files.key;
  options.request_ns_max = kRequestNsMax;
  options.body_bytes_max = message_bytes_max;
  options.bodies_bytes_max = 2 * message_bytes_max;
  options.answers_bytes_max = answer_bytes_max;
  options.waiting_max = kWaitingMax;
  options.idle_ns_max = kIdleNsMax;
  options.threads = kThreads;
  options.nice = 0;
  options.refusal = [](int code, const absl::Status& why) { return ErrorResponse(code, why); };
  options.answered = [](int code) { RequestCounters::Get().Count(code); };
  return HttpPort::Start(std::move(options), nullptr, [lookups](const HttpRequest& request) {
    return lookups->Answer(request);
  });
}

}  // namespace hotbed
