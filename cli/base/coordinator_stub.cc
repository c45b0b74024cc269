#include "cli/base/coordinator_stub.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {

struct CoordinatorStub::Grpc {
  const std::string address;
  const absl::Duration timeout;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Coordinator::Stub> stub;

  template <typename Request, typename Reply>
  using Method = grpc::Status (v1::Coordinator::Stub::*)(grpc::ClientContext*, const Request&,
                                                         Reply*);

  // The deadline covers the connection as well, so that a refused connection is not reported as a
  // slow answer.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (status.ok()) return reply;
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if (code != absl::StatusCode::kUnavailable && code != absl::StatusCode::kDeadlineExceeded) {
      return absl::Status(code, status.error_message());
    }
    return absl::Status(
        code, absl::StrCat("coordinator at ", address, ": ", status.error_message(),
                           ". Is it running? Start a cluster with 'hotbed up', or name another "
                           "coordinator with --coordinator"));
  }
};

CoordinatorStub::CoordinatorStub(std::string address, absl::Duration timeout)
    : grpc_(new Grpc{std::move(address), timeout, nullptr, nullptr}) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A map of many shards is large, and it comes from our own coordinator.
  args.SetMaxReceiveMessageSize(-1);
  grpc_->channel =
      grpc::CreateCustomChannel(grpc_->address, grpc::InsecureChannelCredentials(), args);
  grpc_->stub = v1::Coordinator::NewStub(grpc_->channel);
}

CoordinatorStub::~CoordinatorStub() = default;

absl::StatusOr<v1::ClusterMap> CoordinatorStub::GetClusterMap(bool rates) {
  v1::GetClusterMapRequest request;
  request.set_rates(rates);
  return grpc_->Call(&v1::Coordinator::Stub::GetClusterMap, request);
}

absl::StatusOr<v1::ListTrainersReply> CoordinatorStub::ListTrainers() {
  return grpc_->Call(&v1::Coordinator::Stub::ListTrainers, v1::ListTrainersRequest());
}

absl::StatusOr<v1::CreateTableReply> CoordinatorStub::CreateTable(
    const v1::CreateTableRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::CreateTable, request);
}

absl::StatusOr<v1::CreateTablesReply> CoordinatorStub::CreateTables(
    const v1::CreateTablesRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::CreateTables, request);
}

absl::StatusOr<v1::DropTableReply> CoordinatorStub::DropTable(const v1::DropTableRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::DropTable, request);
}

absl::StatusOr<v1::AlterTableReply> CoordinatorStub::AlterTable(
    const v1::AlterTableRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::AlterTable, request);
}

absl::StatusOr<v1::MoveShardsReply> CoordinatorStub::MoveShards(
    const v1::MoveShardsRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::MoveShards, request);
}

absl::StatusOr<v1::ChooseReplicaReply> CoordinatorStub::ChooseReplica(
    const v1::ChooseReplicaRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::ChooseReplica, request);
}

absl::StatusOr<v1::DrainServerReply> CoordinatorStub::DrainServer(
    const v1::DrainServerRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::DrainServer, request);
}

absl::StatusOr<v1::ListMovesReply> CoordinatorStub::ListMoves(const v1::ListMovesRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::ListMoves, request);
}

absl::StatusOr<v1::ControlMovesReply> CoordinatorStub::ControlMoves(
    const v1::ControlMovesRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::ControlMoves, request);
}

absl::StatusOr<v1::RebuildMetadataReply> CoordinatorStub::RebuildMetadata(
    const v1::RebuildMetadataRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::RebuildMetadata, request);
}

absl::StatusOr<v1::BackupMetadataReply> CoordinatorStub::BackupMetadata() {
  return grpc_->Call(&v1::Coordinator::Stub::BackupMetadata, v1::BackupMetadataRequest());
}

absl::StatusOr<v1::ListEventsReply> CoordinatorStub::ListEvents(
    const v1::ListEventsRequest& request) {
  return grpc_->Call(&v1::Coordinator::Stub::ListEvents, request);
}

}  // namespace hotbed
