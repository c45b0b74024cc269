#include "planner/coordinator/shell/service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"
#include "leader/leader_stub.h"
#include "planner/coordinator/shell/seen_address.h"
#include "proto/control.grpc.pb.h"
#include "proto/convert.h"
#include "proto/serving.grpc.pb.h"

namespace hotbed {
namespace {

// Requests of one method by outcome.
struct MethodCounters {
  explicit MethodCounters(const std::string& method)
      : ok("hotbed_coordinator_requests_total", "Requests answered.",
           {{"method", method}, {"outcome", "ok"}}),
        failed("hotbed_coordinator_requests_total", "Requests answered.",
               {{"method", method}, {"outcome", "error"}}) {}
  void Count(bool success) { (success ? ok : failed).Add(1); }
  Counter ok;
  Counter failed;
};

void LogAltered(const v1::AlterTableReply& reply) {
  if (!reply.altered() || reply.spec().changes().empty()) return;
  const absl::StatusOr<TableChange> change = FromProto(*reply.spec().changes().rbegin());
  if (!change.ok()) return;
  HOTBED_LOG(Info) << "table " << reply.spec().name() << " (id " << reply.spec().id()
                   << ") altered: from step " << change->at_step << " on " << ChangeText(*change);
}

}  // namespace

// The tables that a request names; its caller must be allowed to use them.
template <typename Request>
std::vector<std::string> TablesNamed(const Request& request) {
  if constexpr (std::is_same_v<Request, v1::CreateTableRequest>) {
    return {request.spec().name()};
  } else if constexpr (std::is_same_v<Request, v1::CreateTablesRequest>) {
    std::vector<std::string> names;
    for (const v1::NewTable& table : request.tables()) names.push_back(table.spec().name());
    return names;
  } else if constexpr (std::is_same_v<Request, v1::ServeTablesRequest>) {
    return {request.tables().begin(), request.tables().end()};
  } else if constexpr (std::is_same_v<Request, v1::AlterTableRequest> ||
                       std::is_same_v<Request, v1::DropTableRequest>) {
    return {request.name()};
  } else {
    return {};
  }
}

// Whether the request reads a checkpoint, which may be one of any table.
template <typename Request>
bool ReadsCheckpoint(const Request& request) {
  if constexpr (std::is_same_v<Request, v1::CreateTableRequest>) {
    return request.spec().has_restored_from();
  } else if constexpr (std::is_same_v<Request, v1::CreateTablesRequest>) {
    return std::any_of(request.tables().begin(), request.tables().end(),
                       [](const v1::NewTable& t) { return t.spec().has_restored_from(); });
  } else {
    return false;
  }
}

class CoordinatorService::Methods : public v1::Coordinator::CallbackService,
                                    public v1::ServingCoordinator::CallbackService {
 public:
  Methods(Coordinator* coordinator, WatchHub* watches, AttendHub* attends)
      : coordinator_(coordinator), watches_(watches), attends_(attends) {}

// A unary method, which generated code declares as a virtual function of its own: `answer` makes
// the call's reactor of context, request, reply and counters.
#define HOTBED_UNARY(Method, RequestMessage, ReplyMessage, answer)                             \
  grpc::ServerUnaryReactor* Method(grpc::CallbackServerContext* context,                       \
                                   const v1::RequestMessage* request, v1::ReplyMessage* reply) \
      override {                                                                               \
    static MethodCounters counters(#Method);                                                   \
    return answer;                                                                             \
  }
// A method whose request becomes an operation of the core.
#define HOTBED_OPERATION(Method)                       \
  HOTBED_UNARY(Method, Method##Request, Method##Reply, \
               Submit(context, #Method, *request, reply, &counters))

  HOTBED_OPERATION(CreateTable)
  HOTBED_OPERATION(CreateTables)
  HOTBED_OPERATION(DropTable)
  HOTBED_OPERATION(OpenSession)
  HOTBED_OPERATION(Train)
  HOTBED_OPERATION(HoldStep)
  HOTBED_OPERATION(MoveShards)
  HOTBED_OPERATION(DrainServer)
  HOTBED_OPERATION(ControlMoves)
  HOTBED_OPERATION(ChooseReplica)
  HOTBED_OPERATION(CutShard)
  HOTBED_OPERATION(ScheduleCheckpoints)
  HOTBED_OPERATION(CommitCut)
  HOTBED_OPERATION(RebuildMetadata)
  HOTBED_OPERATION(ActivateShards)
  HOTBED_OPERATION(ServeTables)
  HOTBED_OPERATION(PublishVersion)
  HOTBED_OPERATION(ChooseVersion)
  HOTBED_UNARY(ReportServing, ServingReport, ServingOrders,
               Report(context, *request, reply, &counters))
  HOTBED_UNARY(GetServing, GetServingRequest, ServingMap,
               Answer(context, coordinator_->ServingTables(), reply, &counters))
  HOTBED_UNARY(RegisterServer, RegisterServerRequest, RegisterServerReply,
               Register(context, *request, reply, &counters))
  HOTBED_UNARY(AlterTable, AlterTableRequest, AlterTableReply,
               Submit(context, "AlterTable", *request, reply, &counters, LogAltered))
  HOTBED_UNARY(GetClusterMap, GetClusterMapRequest, ClusterMap,
               Answer(context, coordinator_->Map(request->plan_revision_known(), request->rates()),
                      reply, &counters))
  HOTBED_UNARY(ListTrainers, ListTrainersRequest, ListTrainersReply,
               Answer(context, {coordinator_->Trainers()}, reply, &counters))
  HOTBED_UNARY(ListMoves, ListMovesRequest, ListMovesReply,
               Answer(context, coordinator_->Moves(*request), reply, &counters))
  HOTBED_UNARY(ListEvents, ListEventsRequest, ListEventsReply,
               Answer(context, coordinator_->Events(*request), reply, &counters))
  HOTBED_UNARY(BackupMetadata, BackupMetadataRequest, BackupMetadataReply,
               Answer(context, coordinator_->Backup(), reply, &counters))
#undef HOTBED_OPERATION
#undef HOTBED_UNARY

  grpc::ServerWriteReactor<v1::ClusterMap>* WatchClusterMap(
      grpc::CallbackServerContext* context, const v1::GetClusterMapRequest* request) override {
    static MethodCounters counters("WatchClusterMap");
    counters.Count(true);
    return watches_->Open(context, request->plan_revision_known());
  }

  AttendHub::Reactor* Attend(grpc::CallbackServerContext* context) override {
    static MethodCounters counters("Attend");
    counters.Count(true);
    return attends_->Open(context);
  }

  // Before the first call. Empty: every caller may use every table.
  void SetTablesOf(TableAccessOf tables_of) { tables_of_ = std::move(tables_of); }

 private:
  template <typename ReplyMessage>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   absl::StatusOr<ReplyMessage> answer, ReplyMessage* reply,
                                   MethodCounters* counters) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    counters->Count(answer.ok());
    const absl::Status status = answer.status();
    if (answer.ok()) *reply = *std::move(answer);
    // Nothing was done: callers ask the one that leads.
    if (LeadsNoMore(status)) context->AddTrailingMetadata(kStandsBy, "");
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     v1::RegisterServerRequest request,
                                     v1::RegisterServerReply* reply, MethodCounters* counters) {
    const absl::Status filled = FillSeenHosts(context->peer(), &request);
    if (filled.ok()) return Submit(context, "RegisterServer", request, reply, counters);
    return Answer(context, absl::StatusOr<v1::RegisterServerReply>(filled), reply, counters);
  }

  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context, v1::ServingReport report,
                                   v1::ServingOrders* reply, MethodCounters* counters) {
    v1::RegisterServerRequest addresses;
    addresses.set_address(report.address());
    addresses.set_admin_address(report.admin_address());
    const absl::Status filled = FillSeenHosts(context->peer(), &addresses);
    if (!filled.ok()) {
      return Answer(context, absl::StatusOr<v1::ServingOrders>(filled), reply, counters);
    }
    report.set_address(addresses.address());
    report.set_admin_address(addresses.admin_address());
    return Submit(context, "ReportServing", report, reply, counters);
  }

  template <typename RequestMessage, typename ReplyMessage>
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context, const char* method,
                                   const RequestMessage& request, ReplyMessage* reply,
                                   MethodCounters* counters,
                                   void (*log)(const ReplyMessage&) = nullptr) {
    const absl::Status may =
        MayUse(*context, method, TablesNamed(request), ReadsCheckpoint(request));
    if (!may.ok()) return Answer(context, absl::StatusOr<ReplyMessage>(may), reply, counters);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    coordinator_->Submit(request, [reactor, reply, counters, log](absl::StatusOr<Reply> answer) {
      counters->Count(answer.ok());
      const absl::Status status = answer.status();
      if (answer.ok()) *reply = std::get<ReplyMessage>(*std::move(answer));
      if (status.ok() && log != nullptr) log(*reply);
      reactor->Finish(ToGrpc(status));
    });
    return reactor;
  }

  absl::Status MayUse(const grpc::ServerContextBase& context, const char* method,
                      const std::vector<std::string>& tables, bool reads_checkpoint) const {
    if (tables.empty() || !tables_of_) return absl::OkStatus();
    const std::unique_ptr<TableAccess> access = tables_of_(context, method);
    if (access == nullptr) return absl::OkStatus();
    if (reads_checkpoint) return access->Refuse("from a checkpoint");
    for (const std::string& table : tables) HOTBED_RETURN_IF_ERROR(access->Check(table));
    return absl::OkStatus();
  }

  Coordinator* const coordinator_;
  WatchHub* const watches_;
  AttendHub* const attends_;
  TableAccessOf tables_of_;
};

CoordinatorService::CoordinatorService(const CoordinatorServiceOptions& options,
                                       Coordinator* coordinator, const Clock* clock)
    : coordinator_(coordinator),
      watches_(coordinator, clock, options.watches),
      attends_(coordinator, clock, AttendHub::kLimits),
      methods_(std::make_unique<Methods>(coordinator, &watches_, &attends_)),
      tools_(ToolCalls({"hotbed.v1.Coordinator", "hotbed.v1.ServingCoordinator"},
                       [this] {
                         std::string why_not;
                         return coordinator_->Serving() && port().Answers(&why_not);
                       })),
      clock_(clock) {}

CoordinatorService::~CoordinatorService() { Shutdown(); }

absl::StatusOr<std::unique_ptr<CoordinatorService>> CoordinatorService::Start(
    const CoordinatorServiceOptions& options, Coordinator* coordinator, const Clock* clock) {
  std::unique_ptr<CoordinatorService> service(new CoordinatorService(options, coordinator, clock));
  HOTBED_RETURN_IF_ERROR(service->Listen(options));
  return service;
}

absl::Status CoordinatorService::Listen(const CoordinatorServiceOptions& options) {
  coordinator_->SetNewsListener([this](bool plan_changed) {
    attends_.streams().PumpAll();  // servers first: clients follow them
    if (plan_changed) watches_.streams().PumpAll();
  });
  coordinator_->SetTickListener([this] {
    attends_.streams().DropStalled();
    watches_.streams().DropStalled();
  });
  HOTBED_RETURN_IF_ERROR(coordinator_->Start());
  HOTBED_ASSIGN_OR_RETURN(server_, ControlServer::Open(options.control, clock_));
  methods_->SetTablesOf(server_->tables_of());
  server_->Serve({static_cast<v1::Coordinator::CallbackService*>(methods_.get()),
                  static_cast<v1::ServingCoordinator::CallbackService*>(methods_.get())},
                 &tools_);
  return absl::OkStatus();
}

void CoordinatorService::Shutdown() {
  if (server_ != nullptr) server_->StopAccepting();
  attends_.streams().Close();
  watches_.streams().Close();
  coordinator_->Stop();  // answers all waiting calls, so the server need not cancel them
  if (server_ != nullptr) server_->Shutdown();
}

}  // namespace hotbed
