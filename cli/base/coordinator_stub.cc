#include "cli/base/coordinator_stub.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {

struct CoordinatorStub::Grpc {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Coordinator::Stub> stub;

  // The deadline covers the connection as well, so that a refused connection is not reported as a
  // slow answer.
  template <typename Request, typename Reply, typename Method>
  absl::StatusOr<Reply> Call(Method method, const Request& request, const std::string& address,
                             absl::Duration timeout) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (status.ok()) return reply;
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::Status(
          static_cast<absl::StatusCode>(status.error_code()),
          absl::StrCat("coordinator at ", address, ": ", status.error_message(),
                       ". Is it running? Start a cluster with 'hotbed up', or name another "
                       "coordinator with --coordinator"));
    }
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
};

CoordinatorStub::CoordinatorStub(std::string address, absl::Duration timeout)
    : address_(std::move(address)), timeout_(timeout), grpc_(std::make_unique<Grpc>()) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A map of many shards is large, and it comes from our own coordinator.
  args.SetMaxReceiveMessageSize(-1);
  grpc_->channel = grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), args);
  grpc_->stub = v1::Coordinator::NewStub(grpc_->channel);
}

CoordinatorStub::~CoordinatorStub() = default;

absl::StatusOr<v1::ClusterMap> CoordinatorStub::GetClusterMap() {
  return grpc_->Call<v1::GetClusterMapRequest, v1::ClusterMap>(
      &v1::Coordinator::Stub::GetClusterMap, v1::GetClusterMapRequest(), address_, timeout_);
}

absl::StatusOr<v1::ListTrainersReply> CoordinatorStub::ListTrainers() {
  return grpc_->Call<v1::ListTrainersRequest, v1::ListTrainersReply>(
      &v1::Coordinator::Stub::ListTrainers, v1::ListTrainersRequest(), address_, timeout_);
}

absl::StatusOr<v1::CreateTableReply> CoordinatorStub::CreateTable(
    const v1::CreateTableRequest& request) {
  return grpc_->Call<v1::CreateTableRequest, v1::CreateTableReply>(
      &v1::Coordinator::Stub::CreateTable, request, address_, timeout_);
}

absl::StatusOr<v1::CreateTablesReply> CoordinatorStub::CreateTables(
    const v1::CreateTablesRequest& request) {
  return grpc_->Call<v1::CreateTablesRequest, v1::CreateTablesReply>(
      &v1::Coordinator::Stub::CreateTables, request, address_, timeout_);
}

absl::StatusOr<v1::DropTableReply> CoordinatorStub::DropTable(const v1::DropTableRequest& request) {
  return grpc_->Call<v1::DropTableRequest, v1::DropTableReply>(&v1::Coordinator::Stub::DropTable,
                                                               request, address_, timeout_);
}

absl::StatusOr<v1::AlterTableReply> CoordinatorStub::AlterTable(
    const v1::AlterTableRequest& request) {
  return grpc_->Call<v1::AlterTableRequest, v1::AlterTableReply>(&v1::Coordinator::Stub::AlterTable,
                                                                 request, address_, timeout_);
}

absl::StatusOr<v1::MoveShardsReply> CoordinatorStub::MoveShards(
    const v1::MoveShardsRequest& request) {
  return grpc_->Call<v1::MoveShardsRequest, v1::MoveShardsReply>(&v1::Coordinator::Stub::MoveShards,
                                                                 request, address_, timeout_);
}

absl::StatusOr<v1::ChooseReplicaReply> CoordinatorStub::ChooseReplica(
    const v1::ChooseReplicaRequest& request) {
  return grpc_->Call<v1::ChooseReplicaRequest, v1::ChooseReplicaReply>(
      &v1::Coordinator::Stub::ChooseReplica, request, address_, timeout_);
}

absl::StatusOr<v1::DrainServerReply> CoordinatorStub::DrainServer(
    const v1::DrainServerRequest& request) {
  return grpc_->Call<v1::DrainServerRequest, v1::DrainServerReply>(
      &v1::Coordinator::Stub::DrainServer, request, address_, timeout_);
}

absl::StatusOr<v1::ListMovesReply> CoordinatorStub::ListMoves(const v1::ListMovesRequest& request) {
  return grpc_->Call<v1::ListMovesRequest, v1::ListMovesReply>(&v1::Coordinator::Stub::ListMoves,
                                                               request, address_, timeout_);
}

absl::StatusOr<v1::ControlMovesReply> CoordinatorStub::ControlMoves(
    const v1::ControlMovesRequest& request) {
  return grpc_->Call<v1::ControlMovesRequest, v1::ControlMovesReply>(
      &v1::Coordinator::Stub::ControlMoves, request, address_, timeout_);
}

absl::StatusOr<v1::ListEventsReply> CoordinatorStub::ListEvents(
    const v1::ListEventsRequest& request) {
  return grpc_->Call<v1::ListEventsRequest, v1::ListEventsReply>(&v1::Coordinator::Stub::ListEvents,
                                                                 request, address_, timeout_);
}

}  // namespace hotbed
