#include "planner/coordinator/shell/service.h"

#include <grpcpp/grpcpp.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/table_spec.h"
#include "proto/control.grpc.pb.h"
#include "proto/convert.h"
#include "proto/grpc_tuning.h"

namespace hotbed {
namespace {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

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

class Methods : public v1::Coordinator::CallbackService {
 public:
  Methods(Coordinator* coordinator, WatchHub* hub, AttendHub* attends)
      : coordinator_(coordinator), hub_(hub), attends_(attends) {}

  grpc::ServerUnaryReactor* GetClusterMap(grpc::CallbackServerContext* context,
                                          const v1::GetClusterMapRequest* request,
                                          v1::ClusterMap* reply) override {
    static MethodCounters counters("GetClusterMap");
    return Answer(context, coordinator_->Map(request->plan_revision_known()), reply, &counters);
  }

  grpc::ServerWriteReactor<v1::ClusterMap>* WatchClusterMap(
      grpc::CallbackServerContext* context, const v1::GetClusterMapRequest* request) override {
    static MethodCounters counters("WatchClusterMap");
    counters.Count(true);
    return hub_->Open(context, request->plan_revision_known());
  }

  grpc::ServerUnaryReactor* CreateTable(grpc::CallbackServerContext* context,
                                        const v1::CreateTableRequest* request,
                                        v1::CreateTableReply* reply) override {
    static MethodCounters counters("CreateTable");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* CreateTables(grpc::CallbackServerContext* context,
                                         const v1::CreateTablesRequest* request,
                                         v1::CreateTablesReply* reply) override {
    static MethodCounters counters("CreateTables");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* DropTable(grpc::CallbackServerContext* context,
                                      const v1::DropTableRequest* request,
                                      v1::DropTableReply* reply) override {
    static MethodCounters counters("DropTable");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* AlterTable(grpc::CallbackServerContext* context,
                                       const v1::AlterTableRequest* request,
                                       v1::AlterTableReply* reply) override {
    static MethodCounters counters("AlterTable");
    return Submit(context, *request, reply, &counters, LogAltered);
  }
  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionReply* reply) override {
    static MethodCounters counters("OpenSession");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* Train(grpc::CallbackServerContext* context,
                                  const v1::TrainRequest* request, v1::TrainReply* reply) override {
    static MethodCounters counters("Train");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* ListTrainers(grpc::CallbackServerContext* context,
                                         const v1::ListTrainersRequest* request,
                                         v1::ListTrainersReply* reply) override {
    static MethodCounters counters("ListTrainers");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    *reply = coordinator_->Trainers();
    counters.Count(true);
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* RegisterServer(grpc::CallbackServerContext* context,
                                           const v1::RegisterServerRequest* request,
                                           v1::RegisterServerReply* reply) override {
    static MethodCounters counters("RegisterServer");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::HeartbeatReply>* Attend(
      grpc::CallbackServerContext* context) override {
    static MethodCounters counters("Attend");
    counters.Count(true);
    return attends_->Open(context);
  }
  grpc::ServerUnaryReactor* MoveShards(grpc::CallbackServerContext* context,
                                       const v1::MoveShardsRequest* request,
                                       v1::MoveShardsReply* reply) override {
    static MethodCounters counters("MoveShards");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* DrainServer(grpc::CallbackServerContext* context,
                                        const v1::DrainServerRequest* request,
                                        v1::DrainServerReply* reply) override {
    static MethodCounters counters("DrainServer");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* ControlMoves(grpc::CallbackServerContext* context,
                                         const v1::ControlMovesRequest* request,
                                         v1::ControlMovesReply* reply) override {
    static MethodCounters counters("ControlMoves");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* ChooseReplica(grpc::CallbackServerContext* context,
                                          const v1::ChooseReplicaRequest* request,
                                          v1::ChooseReplicaReply* reply) override {
    static MethodCounters counters("ChooseReplica");
    return Submit(context, *request, reply, &counters);
  }
  grpc::ServerUnaryReactor* ListMoves(grpc::CallbackServerContext* context,
                                      const v1::ListMovesRequest* request,
                                      v1::ListMovesReply* reply) override {
    static MethodCounters counters("ListMoves");
    return Answer(context, coordinator_->Moves(*request), reply, &counters);
  }
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsReply* reply) override {
    static MethodCounters counters("ListEvents");
    return Answer(context, coordinator_->Events(*request), reply, &counters);
  }
  grpc::ServerUnaryReactor* ActivateShards(grpc::CallbackServerContext* context,
                                           const v1::ActivateShardsRequest* request,
                                           v1::ActivateShardsReply* reply) override {
    static MethodCounters counters("ActivateShards");
    return Submit(context, *request, reply, &counters);
  }

 private:
  template <typename ReplyMessage>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   absl::StatusOr<ReplyMessage> answer, ReplyMessage* reply,
                                   MethodCounters* counters) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    counters->Count(answer.ok());
    const absl::Status status = answer.status();
    if (answer.ok()) *reply = *std::move(answer);
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  template <typename RequestMessage, typename ReplyMessage>
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const RequestMessage& request, ReplyMessage* reply,
                                   MethodCounters* counters,
                                   void (*log)(const ReplyMessage&) = nullptr) {
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

  Coordinator* const coordinator_;
  WatchHub* const hub_;
  AttendHub* const attends_;
};

class RunningService : public CoordinatorService {
 public:
  RunningService(const CoordinatorServiceOptions& options, Coordinator* coordinator,
                 const Clock* clock)
      : coordinator_(coordinator),
        hub_(coordinator, clock, options.watches),
        attends_(coordinator, clock, options.attends),
        methods_(coordinator, &hub_, &attends_) {}
  ~RunningService() override { Shutdown(); }

  absl::Status Listen(const CoordinatorServiceOptions& options) {
    coordinator_->SetPlanListener([this] {
      attends_.OnNews();  // servers first: clients follow them
      hub_.OnPlanChanged();
    });
    coordinator_->SetTickListener([this] {
      attends_.OnTick();
      hub_.OnTick();
    });
    if (absl::Status s = coordinator_->Start(); !s.ok()) return s;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use must be noticed
    builder.SetMaxReceiveMessageSize(options.request_bytes_max);
    builder.SetMaxSendMessageSize(-1);
    AllowKeepalives(&builder);
    builder.RegisterService(&methods_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen,
                                                 ": the port is in use or the address is not this "
                                                 "machine's; choose another with --listen"));
    }
    address_ = absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  size_t watches() const override { return hub_.streams(); }
  size_t attends() const override { return attends_.streams(); }

  void Shutdown() override {
    attends_.Close();
    hub_.Close();
    coordinator_->Stop();  // answers all waiting calls, so the server need not cancel them
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    server_->Wait();
    server_.reset();
  }

 private:
  Coordinator* const coordinator_;
  WatchHub hub_;
  AttendHub attends_;
  Methods methods_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorService>> CoordinatorService::Start(
    const CoordinatorServiceOptions& options, Coordinator* coordinator, const Clock* clock) {
  auto service = std::make_unique<RunningService>(options, coordinator, clock);
  if (absl::Status s = service->Listen(options); !s.ok()) return s;
  return service;
}

}  // namespace hotbed
