#include "serving/serving_process.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>  // NOLINT(build/c++11)
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/serving/connect_as.h"
#include "common/check.h"
#include "common/files/file_system.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "common/status_numbers.h"
#include "common/threads/await_for.h"
#include "common/threads/thread_pool.h"
#include "config/units.h"
#include "leader/serving_calls.h"
#include "nlohmann/json.hpp"
#include "ports/grpc_hand_over.h"
#include "proto/grpc_tuning.h"
#include "proto/retry_metadata.h"
#include "proto/serving.grpc.pb.h"
#include "proto/tool_calls.h"
#include "security/server_credentials.h"
#include "server/tiers/device/device_tier.h"
#include "serving/answer_budget.h"
#include "serving/http_lookups.h"
#include "serving/lookup_answer.h"
#include "serving/lookup_queue.h"
#include "serving/relay_calls.h"
#include "serving/rows/row_coder.h"
#include "serving/table_replicas.h"
#include "serving/top_k_answer.h"

namespace hotbed {
namespace {

constexpr absl::Duration kReportTimeout = absl::Seconds(2);
constexpr absl::Duration kReportAgain = absl::Milliseconds(200);
constexpr int64_t kOrdersOldNs = 10 * kSecondNs;  // without any, it is not ready
constexpr int64_t kHttpIdleNs = kSecondNs;        // of open connections, once it stops
constexpr int kStreamsPerConnectionMax = 1024;
constexpr int kSearchesMax = 64;
constexpr int kLookupThreadsMax = 32;
constexpr uint64_t kWaitingBytesMax = 16 << 20;  // of lookups that wait for a processor

using Json = nlohmann::ordered_json;

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// The word that metrics have for it.
std::string CutName(TableReplica::Cut cut) {
  switch (cut) {
    case TableReplica::Cut::kComing:
      return "coming";
    case TableReplica::Cut::kLeaving:
      return "leaving";
    case TableReplica::Cut::kPresent:
      break;
  }
  return "present";
}

// Requests by outcome, and how long they took.
struct CallCounters {
  static CallCounters& Get() {
    static auto* const counters = new CallCounters;
    return *counters;
  }
  Counter ok{"hotbed_serving_lookups_total", "Lookups of serving replicas.", {{"outcome", "ok"}}};
  Counter failed{
      "hotbed_serving_lookups_total", "Lookups of serving replicas.", {{"outcome", "error"}}};
  Counter refused{
      "hotbed_serving_lookups_total", "Lookups of serving replicas.", {{"outcome", "refused"}}};
  Counter hedged{"hotbed_serving_hedged_lookups_total",
                 "Lookups that are second calls: another server was asked first, and was late."};
  LatencyHistogram seconds{
      "hotbed_serving_lookup_seconds",
      "From a lookup's arrival at a serving server until its answer is there."};
  // Refused: too much waits. A caller that waits no more counts as an error.
  void Count(const absl::Status& status) {
    (status.ok() ? ok : absl::IsResourceExhausted(status) ? refused : failed).Add(1);
  }
};

// One call; owns itself until OnDone.
class CallReactor final : public grpc::ServerUnaryReactor {
 public:
  // Gives `bytes` back in the end, and lowers `calls`, which has counted it, unless it is null.
  CallReactor(AnswerBudget* budget, uint64_t bytes, std::atomic<int>* calls)
      : budget_(budget), bytes_(bytes), calls_(calls) {}
  void OnCancel() override { cancelled_.store(true); }  // by the caller, or at its deadline
  void OnDone() override {
    budget_->Give(bytes_);
    if (calls_ != nullptr) calls_->fetch_sub(1);
    delete this;
  }
  absl::Status GoOn() const {
    return cancelled_.load() ? absl::CancelledError("the caller waits no more") : absl::OkStatus();
  }

 private:
  AnswerBudget* const budget_;
  const uint64_t bytes_;
  std::atomic<int>* const calls_;
  std::atomic<bool> cancelled_{false};
};

class LookupMethods final : public v1::Serving::CallbackService {
 public:
  LookupMethods(const ServingOptions& options, const TableReplicas* tables, AnswerBudget* budget,
                const Clock* clock)
      : message_bytes_max_(options.message_bytes_max),
        tables_(*tables),
        budget_(budget),
        clock_(*clock),
        search_threads_("top-k", TopKThreads()),
        lookups_(LookupThreads(), kWaitingBytesMax, clock) {
    RegisterTopKMetrics();
  }

  LookupQueue* lookups() { return &lookups_; }
  // Before the first call. Empty: every caller may use every table.
  void SetTablesOf(TableAccessOf tables_of) { tables_of_ = std::move(tables_of); }

  grpc::ServerUnaryReactor* Lookup(grpc::CallbackServerContext* context,
                                   const v1::ServingLookupRequest* request,
                                   v1::ServingLookupReply* reply) override {
    const int64_t since_ns = clock_.NowNs();
    uint64_t taken = 0;
    if (request->hedged()) CallCounters::Get().hedged.Add(1);
    absl::Status status = Take(*request, &taken);
    auto* const reactor = new CallReactor(budget_, taken, nullptr);
    const auto end = [this, since_ns, reactor](const absl::Status& ended) {
      CallCounters::Get().Count(ended);
      CallCounters::Get().seconds.RecordNs(clock_.NowNs() - since_ns);
      reactor->Finish(ToGrpcStatus(ended));
    };
    int64_t retry_ns = 0;
    if (status.ok()) {
      const LookupQueue::Wanted wanted = {.bytes = request->ByteSizeLong() + taken,
                                          .batch = request->batch(),
                                          .quick = IsQuick(tables_, *request),
                                          .left_ns = LeftNs(*context)};
      const auto answer = [this, context, request, reply, reactor, end] {
        const absl::Status waits = reactor->GoOn();
        end(waits.ok() ? Answer(*context, *request, reply) : waits);
      };
      status = lookups_.Run(wanted, answer, &retry_ns);
      if (status.ok()) return reactor;
    }
    if (retry_ns > 0) {
      context->AddTrailingMetadata(kRetryMetadata, absl::StrCat(retry_ns / kMillisecondNs));
    }
    end(status);
    return reactor;
  }

  // Searches have threads of their own, so that lookups do not wait for them.
  grpc::ServerUnaryReactor* TopK(grpc::CallbackServerContext* context,
                                 const v1::ServingTopKRequest* request,
                                 v1::ServingTopKReply* reply) override {
    uint64_t taken = 0;
    absl::Status may = BeginSearch();
    if (may.ok()) may = TakeForTopK(*request, &taken);
    auto* const reactor = new CallReactor(budget_, taken, &searches_);
    if (!may.ok()) {
      reactor->Finish(ToGrpcStatus(may));
      return reactor;
    }
    search_threads_.Submit([this, context, request, reply, reactor] {
      reactor->Finish(ToGrpcStatus(Search(*context, *request, *reactor, reply)));
    });
    return reactor;
  }

  // Runs `search` as TopK does, and waits for its end.
  absl::Status RunSearch(const std::function<void()>& search) {
    const absl::Cleanup ends = [this] { searches_.fetch_sub(1); };
    HOTBED_RETURN_IF_ERROR(BeginSearch());
    absl::Notification done;
    search_threads_.Submit([&search, &done] {
      search();
      done.Notify();
    });
    done.WaitForNotification();
    return absl::OkStatus();
  }

 private:
  // Counts it in any case.
  absl::Status BeginSearch() {
    if (searches_.fetch_add(1) < kSearchesMax) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        kSearchesMax,
        " top-k calls wait at this server, the limit: ask another one, or again later"));
  }
  static int LookupThreads() {
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kLookupThreadsMax);
  }
  static int TopKThreads() {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 4));
  }
  static std::function<absl::Status(absl::string_view)> MayRead(const TableAccess* access) {
    if (access == nullptr) return nullptr;
    return [access](absl::string_view table) { return access->Check(table); };
  }

  absl::Status Search(const grpc::ServerContextBase& context, const v1::ServingTopKRequest& request,
                      const CallReactor& reactor, v1::ServingTopKReply* reply) const {
    const std::unique_ptr<TableAccess> access = tables_of_ ? tables_of_(context, "TopK") : nullptr;
    return AnswerTopK(
        tables_, MayRead(access.get()), request, [&reactor] { return reactor.GoOn(); }, reply);
  }

  absl::Status TakeForTopK(const v1::ServingTopKRequest& request, uint64_t* taken) {
    HOTBED_RETURN_IF_ERROR(CheckTopK(tables_, request));
    const uint64_t bytes = TopKBytes(tables_, request);
    HOTBED_RETURN_IF_ERROR(budget_->Take(bytes));
    *taken = bytes;
    return absl::OkStatus();
  }

  static int64_t LeftNs(const grpc::ServerContextBase& context) {
    const auto left = context.deadline() - std::chrono::system_clock::now();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  }

  // What a caller only claims is not counted as in flight.
  absl::Status Take(const v1::ServingLookupRequest& request, uint64_t* taken) {
    HOTBED_RETURN_IF_ERROR(CheckLookup(request));
    const uint64_t bytes = AnswerBytes(tables_, request);
    if (bytes > message_bytes_max_) {
      return absl::InvalidArgumentError(absl::StrCat("the answer would have ", bytes,
                                                     " bytes, the limit is ", message_bytes_max_,
                                                     ": ask for fewer ids"));
    }
    HOTBED_RETURN_IF_ERROR(budget_->Take(bytes));
    *taken = bytes;
    return absl::OkStatus();
  }

  absl::Status Answer(const grpc::ServerContextBase& context,
                      const v1::ServingLookupRequest& request,
                      v1::ServingLookupReply* reply) const {
    const std::unique_ptr<TableAccess> access =
        tables_of_ ? tables_of_(context, "Lookup") : nullptr;
    return AnswerLookup(tables_, MayRead(access.get()), request, reply);
  }

  const uint64_t message_bytes_max_;
  const TableReplicas& tables_;
  AnswerBudget* const budget_;
  const Clock& clock_;
  TableAccessOf tables_of_;
  std::atomic<int> searches_{0};  // that wait or run
  // Last: their tasks use the others.
  ThreadPool search_threads_;
  LookupQueue lookups_;
};

class Serving final : public ServingProcess {
 public:
  Serving(const ServingOptions& options, const Clock* clock)
      : options_(options),
        clock_(*clock),
        tables_({options.coordinators, options.security.identity(), options.name, options.disk, "",
                 options.run, options.device},
                options.rows_bytes_max, clock),
        budget_(options.answer_bytes_max),
        methods_(options, &tables_, &budget_, clock),
        relays_(&tables_, clock),
        calls_(options.coordinators, options.security.identity()),
        gauges_([this](std::vector<MetricSample>* samples) { Collect(samples); }) {}
  ~Serving() override { Stop(); }

  absl::Status Open() {
    HOTBED_LOG(Info) << "row kernels: " << BestRowLoops().name;
    HOTBED_RETURN_IF_ERROR(LockDisk());
    PortOptions port = options_.port;
    port.limits.encrypted = options_.security.files.any();
    port.limits.http2.message_bytes_max = 2 * options_.message_bytes_max;
    port.access_version = options_.security.access_version();
    HOTBED_ASSIGN_OR_RETURN(port_, Port::Open(port, &clock_));
    HOTBED_RETURN_IF_ERROR(OpenHttp());
    AdminOptions admin;
    admin.listen = options_.admin_listen;
    admin.healthy = [this](std::string* why_not) { return port_->Answers(why_not); };
    admin.ready = [this] { return Conditions(); };
    admin.status = [this] { return Page(); };
    admin.may_read = options_.security.admin_access();
    HOTBED_ASSIGN_OR_RETURN(admin_, AdminServer::Start(std::move(admin)));
    const std::shared_ptr<CallAccess> access = CallAccess::Of(options_.security, port.name);
    methods_.SetTablesOf(TableAccessBy(access));
    grpc::ServerBuilder builder;
    TuneDataPlaneServer(&builder, static_cast<int>(options_.message_bytes_max));
    GuardServer({.quota_bytes = options_.grpc_bytes_max, .streams_max = kStreamsPerConnectionMax},
                &builder);
    std::function<void(int)> hand_over =
        HandOverTo(&builder, ServerCredentialsOf(options_.security, access));
    AllowKeepalives(&builder);
    builder.RegisterService(&methods_);
    builder.RegisterService(&relays_);
    server_ = builder.BuildAndStart();
    HOTBED_CHECK(server_ != nullptr) << "gRPC does not start";
    port_->Serve(std::move(hand_over));
    link_ = std::thread([this] { Link(); });
    return absl::OkStatus();
  }

  std::string address() const override { return port_->address(); }
  std::string admin_address() const override { return admin_->address(); }
  std::string http_address() const override { return http_address_; }

  absl::Status WaitRegistered() override {
    absl::MutexLock lock(&mu_);
    const auto settled = [this]()
                             ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stops_ || ordered_ns_ != 0; };
    mu_.Await(absl::Condition(&settled));
    return ordered_ns_ != 0 ? absl::OkStatus() : absl::CancelledError("stopped");
  }

  void Stop() override {
    {
      absl::MutexLock lock(&mu_);
      if (std::exchange(stops_, true)) return;
    }
    if (link_.joinable()) {
      link_.join();
      (void)calls_.Report(MakeReport(/*stopping=*/true), kReportTimeout);
    }
    if (http_ != nullptr && !http_->Drain(kHttpIdleNs, options_.http_drain_ns_max)) {
      HOTBED_LOG(Warning) << "HTTP requests were not answered within "
                          << options_.http_drain_ns_max / kMillisecondNs
                          << " ms, a quarter of --drain-ms-max, and are cut";
    }
    http_.reset();
    if (port_ != nullptr) port_->Stop();
    relays_.Stop();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
      server_->Wait();
    }
    tables_.Stop();
    admin_.reset();
  }

 private:
  // Two processes would delete each other's rows.
  absl::Status LockDisk() {
    if (options_.disk.empty()) return absl::OkStatus();
    std::error_code error;
    std::filesystem::create_directories(options_.disk, error);
    if (error) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the folder ", options_.disk, " of --data-dir cannot be made: ", error.message(),
          "; choose another --data-dir"));
    }
    auto lock = FileSystem::Real()->Lock(absl::StrCat(options_.disk, "/LOCK"));
    if (absl::IsAlreadyExists(lock.status())) {
      return absl::AlreadyExistsError(
          absl::StrCat("another serving server has this --data-dir and --name=", options_.name,
                       ": give each its own --name; ", lock.status().message()));
    }
    HOTBED_RETURN_IF_ERROR(lock.status());
    lock_ = *std::move(lock);
    return absl::OkStatus();
  }

  absl::Status OpenHttp() {
    if (options_.http_listen.empty()) return absl::OkStatus();
    HttpLookupOptions http = {.server = options_.name,
                              .message_bytes_max = options_.message_bytes_max};
    if (const std::shared_ptr<CallAccess> access = CallAccess::Of(options_.security, "http")) {
      http.access = [access](absl::string_view token, absl::string_view method,
                             absl::string_view table) {
        return access->CheckToken(token, method, table);
      };
    }
    http.run = [this](const LookupQueue::Wanted& wanted, LookupQueue::Task task,
                      int64_t* retry_ns) {
      return methods_.lookups()->Run(wanted, std::move(task), retry_ns);
    };
    http.search = [this](const std::function<void()>& search) {
      return methods_.RunSearch(search);
    };
    http.others = [this](absl::Duration timeout) { return Others(timeout); };
    http_lookups_ = std::make_unique<HttpLookups>(std::move(http), &tables_, &budget_, &clock_);
    HOTBED_ASSIGN_OR_RETURN(
        http_, OpenLookupPort(
                   options_.http_listen, options_.http_tls ? options_.security.files : TlsFiles(),
                   options_.message_bytes_max, options_.answer_bytes_max, http_lookups_.get()));
    http_address_ = http_->address();
    return absl::OkStatus();
  }

  // Connects when they are asked first.
  absl::StatusOr<ServingClient*> Others(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(others_mu_) {
    absl::MutexLock lock(&others_mu_);
    if (others_ == nullptr) {
      HOTBED_ASSIGN_OR_RETURN(
          others_, ConnectServingAs(options_.coordinators, options_.security.identity(),
                                    {.connect_timeout = std::min(timeout, kReportTimeout),
                                     .may_go_back = true}));
    }
    return others_.get();
  }

  v1::ServingReport MakeReport(bool stopping) const {
    v1::ServingReport report;
    report.set_name(options_.name);
    report.set_run(options_.run);
    report.set_address(options_.advertise.empty() ? address() : options_.advertise);
    report.set_admin_address(options_.advertise_admin.empty() ? admin_address()
                                                              : options_.advertise_admin);
    report.set_http_address(HttpAddressFor(report.address()));
    const absl::StatusOr<HostPort> place = SplitHostPort(report.address(), 0);
    report.set_failure_domain(!options_.failure_domain.empty() ? options_.failure_domain
                              : place.ok()                     ? place->host
                                                               : "");
    report.set_bytes_max(options_.rows_bytes_max);
    report.set_message_bytes_max(options_.message_bytes_max);
    report.set_stopping(stopping);
    report.set_has_disk(!options_.disk.empty());
    report.set_lookups_total(CallCounters::Get().ok.Value());
    report.set_lookups_refused_total(CallCounters::Get().refused.Value());
    if (records_.tables_size() > 0 || records_.versions_size() > 0) {
      report.set_records_cluster(records_.cluster_id());
      report.set_records_revision(records_.revision());
      if (records_wanted_) *report.mutable_records() = records_;
    }
    for (const auto& replica : tables_.All()) *report.add_replicas() = replica->Report();
    return report;
  }

  // Unavailable: the coordinator does not know this server's cluster, and its orders are none.
  absl::Status Remember(v1::ServingOrders* orders) {
    records_wanted_ = orders->records_wanted();
    if (records_wanted_) {
      return absl::UnavailableError(absl::StrCat(
          "the coordinator does not know cluster ", records_.cluster_id(),
          ", whose tables stay here as they are: if its metadata were lost, 'hotbed metadata "
          "rebuild --from-servers' brings them back; to serve another cluster, restart this "
          "server"));
    }
    if (orders->has_records()) records_ = std::move(*orders->mutable_records());
    return absl::OkStatus();
  }

  // As others reach it: where it listens on all addresses, at the host of the data port.
  std::string HttpAddressFor(const std::string& data_address) const {
    const absl::StatusOr<HostPort> http = SplitHostPort(http_address_, 0);
    const absl::StatusOr<HostPort> data = SplitHostPort(data_address, 0);
    if (!http.ok() || !data.ok() || !IsWildcardHost(http->host)) return http_address_;
    return JoinHostPort(data->host, http->port);
  }

  // Reports, and obeys. While the coordinator is away the tables stay as they are.
  void Link() {
    for (;;) {
      absl::StatusOr<v1::ServingOrders> orders =
          calls_.Report(MakeReport(/*stopping=*/false), kReportTimeout);
      if (orders.ok()) {
        if (absl::Status ours = Remember(&*orders); !ours.ok()) orders = std::move(ours);
      }
      absl::Duration pause = kReportAgain;
      if (orders.ok()) {
        tables_.Obey(*orders, records_.cluster_id());
        pause = absl::Milliseconds(std::clamp<uint32_t>(orders->report_interval_ms(), 50, 5000));
      }
      absl::MutexLock lock(&mu_);
      if (orders.ok()) ordered_ns_ = clock_.NowNs();
      NoteError(orders.status());
      if (AwaitFor(&mu_, absl::Condition(&stops_), pause)) return;
    }
  }

  void NoteError(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::string error = status.ok() ? "" : std::string(status.message());
    if (!error.empty() && error_.empty()) HOTBED_LOG(Warning) << "reports fail: " << error;
    error_ = error;
  }

  std::vector<ReadyCondition> Conditions() const {
    ReadyCondition coordinator = {.name = "coordinator", .found = "gives orders"};
    bool stops = false;
    {
      absl::MutexLock lock(&mu_);
      stops = stops_;
      coordinator.holds =
          !stops_ && ordered_ns_ != 0 && clock_.NowNs() - ordered_ns_ < kOrdersOldNs;
      if (!coordinator.holds) {
        coordinator.found =
            stops_ ? "this server stops" : absl::StrCat("has given no orders lately: ", error_);
      }
    }
    ReadyCondition port = {.name = "data port", .found = "answers"};
    port.holds = port_->Answers(&port.found);
    ReadyCondition tables = {.name = "tables", .found = "all are loaded"};
    for (const auto& replica : tables_.Present()) {
      if (replica->ready()) continue;
      tables.holds = false;
      tables.found = absl::StrCat(replica->name(), " is not loaded: ", replica->Report().trouble());
    }
    ReadyCondition version = CurrentVersion();
    if (coordinator.holds && tables.holds && version.holds) was_loaded_.store(true);
    if (was_loaded_.load()) {
      // Load balancers would find no server at all when the coordinator is away, nor, for the other
      // tables, when a table that is served later loads on all servers at once.
      if (!coordinator.holds && !stops) {
        coordinator.holds = true;
        absl::StrAppend(&coordinator.found, "; lookups are answered as before");
      }
      for (ReadyCondition* const condition : {&tables, &version}) {
        if (!condition->holds) absl::StrAppend(&condition->found, "; others are asked for it");
        condition->holds = true;
      }
    }
    return {coordinator, port, tables, version};
  }

  // A server that took its place before would leave readers of the current version without one.
  ReadyCondition CurrentVersion() const {
    ReadyCondition version = {.name = "current version", .holds = true, .found = "is held"};
    const OrderedVersions versions = tables_.Versions();
    for (const auto& replica : tables_.Present()) {
      const v1::ReplicaReport report = replica->Report();
      for (const v1::VersionReport& one : report.versions()) {
        if (one.held() || !versions.IsCurrent(one.number())) continue;
        version.holds = false;
        version.found = absl::StrCat(replica->name(), ": ", replica->WhyNoVersion(one.number()));
      }
    }
    return version;
  }

  static std::string StateOf(const v1::VersionReport& version) {
    if (version.held()) return "held";
    if (!version.trouble().empty()) return absl::StrCat("not held: ", version.trouble());
    return absl::StrCat("taken up, ", version.rows_read(), " of ", version.rows_in_all(), " rows");
  }

  std::string DeviceText() const {
    if (options_.device == nullptr) return "none";
    const DeviceTier& tier = *options_.device->tier();
    StatusNumbers numbers;
    tier.AddNumbers(&numbers);
    const std::string text = absl::StrCat(tier.name(), ", ", FormatBytes(numbers["device_bytes"]),
                                          " of ", FormatBytes(numbers["device_bytes_limit"]));
    return tier.failed() ? absl::StrCat(text, ", failed: ", tier.error().message()) : text;
  }

  StatusPage Page() const {
    StatusPage page;
    page.title = absl::StrCat("hotbed-server ", options_.name);
    page.subtitle = absl::StrCat("serving replicas, data port ", address(),
                                 http_address_.empty() ? "" : ", HTTP port ", http_address_);
    page.facts = {{"memory of rows", absl::StrCat(FormatBytes(tables_.memory().used()), " of ",
                                                  FormatBytes(options_.rows_bytes_max))},
                  {"row kernels", BestRowLoops().name},
                  {"device", DeviceText()}};
    StatusTable table = {.title = "Tables",
                         .columns = {"table", "format", "part", "state", "rows", "in memory",
                                     "on device", "bytes", "on disk", "age", "follows", "trouble"}};
    Json json = {{"name", options_.name},
                 {"role", "serving"},
                 {"data_address", address()},
                 {"admin_address", admin_address()},
                 {"http_address", http_address_},
                 {"rows_bytes", tables_.memory().used()},
                 {"rows_bytes_max", options_.rows_bytes_max},
                 {"kernels", BestRowLoops().name},
                 {"device", DeviceText()},
                 {"tables", Json::array()}};
    StatusTable versions = {.title = "Versions",
                            .columns = {"table", "number", "rows that differ", "bytes", "state"}};
    for (const auto& replica : tables_.All()) {
      const v1::ReplicaReport report = replica->Report();
      Json held = Json::array();
      for (const v1::VersionReport& version : report.versions()) {
        versions.rows.push_back({replica->name(), absl::StrCat(version.number()),
                                 absl::StrCat(version.rows()), FormatBytes(version.bytes()),
                                 StateOf(version)});
        held.push_back({{"number", version.number()},
                        {"held", version.held()},
                        {"rows", version.rows()},
                        {"bytes", version.bytes()},
                        {"trouble", version.trouble()}});
      }
      table.rows.push_back(
          {replica->name(), v1::ServedFormat_Name(report.format()),
           absl::StrCat(report.part() + 1, " of ", report.parts()),
           report.ready() ? "ready" : "loading", absl::StrCat(report.rows()),
           absl::StrCat(report.memory_rows()), absl::StrCat(report.device_rows()),
           FormatBytes(report.bytes()), report.on_disk() ? FormatBytes(report.disk_bytes()) : "-",
           report.ready() ? absl::StrCat(report.age_ms(), " ms") : "-",
           report.feeder().empty() ? "primaries" : report.feeder(), report.trouble()});
      json["tables"].push_back({{"table", replica->name()},
                                {"ready", report.ready()},
                                {"part", report.part()},
                                {"parts", report.parts()},
                                {"rows", report.rows()},
                                {"memory_rows", report.memory_rows()},
                                {"device_rows", report.device_rows()},
                                {"bytes", report.bytes()},
                                {"disk_bytes", report.disk_bytes()},
                                {"age_ms", report.ready() ? Json(report.age_ms()) : Json()},
                                {"feeder", report.feeder()},
                                {"trouble", report.trouble()},
                                {"versions", std::move(held)}});
    }
    page.tables.push_back(std::move(table));
    page.tables.push_back(std::move(versions));
    page.json = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    return page;
  }

  void Collect(std::vector<MetricSample>* samples) const {
    AddSample("hotbed_serving_memory_bytes", "Memory of the rows of serving replicas.", {},
              static_cast<double>(tables_.memory().used()), samples);
    AddSample("hotbed_serving_memory_limit_bytes", "The most that it may be.", {},
              static_cast<double>(tables_.memory().bytes_max()), samples);
    AddSample("hotbed_serving_in_flight_bytes", "Answers to lookups in flight.", {},
              static_cast<double>(budget_.in_flight()), samples);
    AddSample("hotbed_serving_kernels_info",
              "Always 1; the label says for which instructions of this processor the loops over "
              "served rows are.",
              {{"instructions", BestRowLoops().name}}, 1, samples);
    if (options_.device != nullptr) {
      StatusNumbers numbers;
      options_.device->tier()->AddNumbers(&numbers);
      numbers.AddSamplesTo(samples, {{"device", options_.device->tier()->name()}});
    }
    for (const auto& replica : tables_.All()) {
      const v1::ReplicaReport report = replica->Report();
      const Labels labels = {{"table", replica->name()}, {"cut", CutName(replica->cut())}};
      AddSample("hotbed_serving_ready", "1 once the replica has had all rows, and answers.", labels,
                report.ready() ? 1 : 0, samples);
      AddSample("hotbed_serving_rows", "Rows of the replica.", labels,
                static_cast<double>(report.rows()), samples);
      AddSample("hotbed_serving_rows_bytes", "Memory of the replica's rows and their index.",
                labels, static_cast<double>(report.bytes()), samples);
      AddSample("hotbed_serving_copy_lookup_rows_total",
                "Rows that lookups asked this copy of the table for.", labels,
                static_cast<double>(report.lookup_rows_total()), samples);
      if (options_.device != nullptr) {
        AddSample("hotbed_serving_device_rows",
                  "Rows of the replica that are in device memory, too.", labels,
                  static_cast<double>(report.device_rows()), samples);
        AddSample("hotbed_serving_device_hits_total",
                  "Rows that lookups found in device memory, those of bags included.", labels,
                  static_cast<double>(replica->DeviceHits()), samples);
      }
      if (report.on_disk()) {
        AddSample("hotbed_serving_memory_rows", "Rows of the replica that are in memory.", labels,
                  static_cast<double>(report.memory_rows()), samples);
        AddSample("hotbed_serving_disk_bytes", "Files of the replica's rows on disk.", labels,
                  static_cast<double>(report.disk_bytes()), samples);
      }
      double held = 0, version_bytes = 0;
      for (const v1::VersionReport& version : report.versions()) {
        held += version.held() ? 1 : 0;
        version_bytes += static_cast<double>(version.bytes());
      }
      AddSample("hotbed_serving_versions_ordered", "Versions that the replica is to hold.", labels,
                report.versions_size(), samples);
      AddSample("hotbed_serving_versions_held", "Versions that the replica holds whole.", labels,
                held, samples);
      AddSample("hotbed_serving_versions_bytes",
                "Memory of the rows in which versions differ from the rows that follow.", labels,
                version_bytes, samples);
      if (!report.ready()) continue;
      AddSample("hotbed_serving_age_seconds",
                "All pushes that were acknowledged longer ago are in the replica.", labels,
                static_cast<double>(report.age_ms()) / 1000, samples);
    }
  }

  const ServingOptions options_;
  const Clock& clock_;
  std::unique_ptr<WritableFile> lock_;  // of the disk
  TableReplicas tables_;
  AnswerBudget budget_;
  LookupMethods methods_;
  RelayCalls relays_;
  ServingCalls calls_;
  std::unique_ptr<Port> port_;
  std::unique_ptr<AdminServer> admin_;
  absl::Mutex others_mu_;
  std::unique_ptr<ServingClient> others_ ABSL_GUARDED_BY(others_mu_);
  std::unique_ptr<HttpLookups> http_lookups_;
  std::unique_ptr<HttpPort> http_;  // null without http_listen
  std::string http_address_;        // set before other threads begin
  std::unique_ptr<grpc::Server> server_;
  mutable absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  // All that was ordered at first has been loaded.
  mutable std::atomic<bool> was_loaded_{false};
  int64_t ordered_ns_ ABSL_GUARDED_BY(mu_) = 0;  // 0: the coordinator has not answered yet
  std::string error_ ABSL_GUARDED_BY(mu_);       // of the last report
  // Used by the thread `link_`, and by Stop once it has ended.
  v1::ServingRecords records_;   // as the coordinator told them last
  bool records_wanted_ = false;  // by it
  std::thread link_;
  MetricSource gauges_;  // last: it reads the others
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServingProcess>> ServingProcess::Start(const ServingOptions& options,
                                                                      const Clock* clock) {
  auto serving = std::make_unique<Serving>(options, clock);
  HOTBED_RETURN_IF_ERROR(serving->Open());
  return serving;
}

}  // namespace hotbed
