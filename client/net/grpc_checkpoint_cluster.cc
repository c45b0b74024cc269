#include "client/net/grpc_checkpoint_cluster.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "leader/leader_stub.h"
#include "leader/map_channel.h"
#include "security/channel_credentials.h"

namespace hotbed {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
// A new table is answered once it is placed.
constexpr absl::Duration kCreateTimeout = absl::Seconds(60);

absl::Status Said(const std::string& who, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const bool unreached =
      code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
  return absl::Status(
      code, unreached ? absl::StrCat(who, ": ", status.error_message()) : status.error_message());
}

template <typename Method, typename Request, typename Reply>
absl::Status CallLeader(const std::string& who, LeaderStub* leader, Method method,
                        const Request& request, Reply* reply, absl::Duration timeout = kTimeout) {
  return Said(who, leader->Call(timeout, /*patient=*/false,
                                [&](v1::Coordinator::Stub* stub, grpc::ClientContext* context) {
                                  return (stub->*method)(context, request, reply);
                                }));
}

template <typename Stub, typename Request, typename Reply>
absl::Status Call(const std::string& who, Stub* stub,
                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                  const Request& request, Reply* reply, absl::Duration timeout = kTimeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
  return Said(who, (stub->*method)(&context, request, reply));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcCheckpointCluster>> GrpcCheckpointCluster::Connect(
    const std::string& target) {
  absl::string_view address = target;
  if (!absl::ConsumePrefix(&address, "hotbed://") || !CheckHostPorts(address, 1).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "target \"", target,
        "\" is not of the form hotbed://HOST:PORT,...; the local engine is named by its client"));
  }
  return std::make_unique<GrpcCheckpointCluster>(std::string(address), IdentityOfEnvironment());
}

GrpcCheckpointCluster::GrpcCheckpointCluster(const std::string& address,
                                             const ClientIdentity& identity)
    : coordinator_(absl::StrCat("coordinator at ", address)),
      identity_(identity),
      leader_(address, identity, MapChannelArguments(identity)),
      disks_([this] { return GetMap(kTimeout); }, identity) {}

const GrpcCheckpointCluster::Server& GrpcCheckpointCluster::ServerAt(const std::string& address) {
  absl::MutexLock lock(&mu_);
  Server& server = servers_[address];  // which stays where it is
  if (server.checkpoints == nullptr) {
    const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
        address, ChannelCredentialsOf(identity_), MapChannelArguments(identity_));
    server.checkpoints = v1::Checkpoints::NewStub(channel);
    server.changes = v1::Changes::NewStub(channel);
    server.relay = v1::ServingRelay::NewStub(channel);
    server.search = v1::Search::NewStub(channel);
    server.output = v1::OutputLayer::NewStub(channel);
    server.vocabularies = v1::Vocabularies::NewStub(channel);
  }
  return server;
}

absl::StatusOr<v1::ClusterMap> GrpcCheckpointCluster::GetMap(absl::Duration timeout) {
  v1::ClusterMap map;
  HOTBED_RETURN_IF_ERROR(CallLeader(coordinator_, &leader_, &v1::Coordinator::Stub::GetClusterMap,
                                    v1::GetClusterMapRequest(), &map, timeout));
  return map;
}

absl::StatusOr<v1::CreateTablesReply> GrpcCheckpointCluster::CreateTables(
    const v1::CreateTablesRequest& request) {
  v1::CreateTablesReply reply;
  HOTBED_RETURN_IF_ERROR(CallLeader(coordinator_, &leader_, &v1::Coordinator::Stub::CreateTables,
                                    request, &reply, kCreateTimeout));
  return reply;
}

absl::Status GrpcCheckpointCluster::DropTable(const std::string& name) {
  v1::DropTableRequest request;
  request.set_name(name);
  v1::DropTableReply reply;
  return CallLeader(coordinator_, &leader_, &v1::Coordinator::Stub::DropTable, request, &reply);
}

absl::StatusOr<v1::HoldStepReply> GrpcCheckpointCluster::HoldStep(
    const v1::HoldStepRequest& request) {
  v1::HoldStepReply reply;
  HOTBED_RETURN_IF_ERROR(
      CallLeader(coordinator_, &leader_, &v1::Coordinator::Stub::HoldStep, request, &reply));
  return reply;
}

absl::Status GrpcCheckpointCluster::BeginSave(const std::string& address,
                                              const v1::BeginSaveRequest& request) {
  v1::BeginSaveReply reply;
  return Call(absl::StrCat("server at ", address), ServerAt(address).checkpoints.get(),
              &v1::Checkpoints::Stub::BeginSave, request, &reply);
}

absl::StatusOr<v1::WatchSaveReply> GrpcCheckpointCluster::WatchSave(
    const std::string& address, const v1::WatchSaveRequest& request) {
  v1::WatchSaveReply reply;
  HOTBED_RETURN_IF_ERROR(Call(absl::StrCat("server at ", address),
                              ServerAt(address).checkpoints.get(),
                              &v1::Checkpoints::Stub::WatchSave, request, &reply));
  return reply;
}

absl::StatusOr<v1::WatchRestoreReply> GrpcCheckpointCluster::WatchRestore(
    const std::string& address, const v1::WatchRestoreRequest& request) {
  v1::WatchRestoreReply reply;
  HOTBED_RETURN_IF_ERROR(Call(absl::StrCat("server at ", address),
                              ServerAt(address).checkpoints.get(),
                              &v1::Checkpoints::Stub::WatchRestore, request, &reply));
  return reply;
}

absl::StatusOr<v1::TopKReply> GrpcCheckpointCluster::TopK(const std::string& address,
                                                          const v1::TopKRequest& request) {
  v1::TopKReply reply;
  HOTBED_RETURN_IF_ERROR(Call(absl::StrCat("server at ", address), ServerAt(address).search.get(),
                              &v1::Search::Stub::TopK, request, &reply,
                              absl::Milliseconds(request.timeout_ms())));
  return reply;
}

absl::StatusOr<v1::SoftmaxReply> GrpcCheckpointCluster::Softmax(const std::string& address,
                                                                bool gradient,
                                                                const v1::SoftmaxRequest& request) {
  v1::SoftmaxReply reply;
  HOTBED_RETURN_IF_ERROR(
      Call(absl::StrCat("server at ", address), ServerAt(address).output.get(),
           gradient ? &v1::OutputLayer::Stub::SoftmaxGradient : &v1::OutputLayer::Stub::Softmax,
           request, &reply, absl::Milliseconds(request.timeout_ms())));
  return reply;
}

absl::StatusOr<v1::NumberReply> GrpcCheckpointCluster::Number(const std::string& address,
                                                              const v1::NumberRequest& request) {
  v1::NumberReply reply;
  HOTBED_RETURN_IF_ERROR(Call(absl::StrCat("server at ", address),
                              ServerAt(address).vocabularies.get(), &v1::Vocabularies::Stub::Number,
                              request, &reply, absl::Milliseconds(request.timeout_ms())));
  return reply;
}

absl::StatusOr<v1::RowLifeReply> GrpcCheckpointCluster::RowLife(const std::string& address,
                                                                const v1::RowLifeRequest& request,
                                                                absl::Duration timeout) {
  v1::RowLifeReply reply;
  HOTBED_RETURN_IF_ERROR(Call(absl::StrCat("server at ", address), ServerAt(address).changes.get(),
                              &v1::Changes::Stub::RowLife, request, &reply, timeout));
  return reply;
}

}  // namespace hotbed
