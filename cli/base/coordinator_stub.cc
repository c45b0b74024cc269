#include "cli/base/coordinator_stub.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "leader/leader_stub.h"
#include "proto/control.grpc.pb.h"
#include "security/identity.h"

namespace hotbed {
namespace {

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A map of many shards is large, and it comes from our own coordinator.
  args.SetMaxReceiveMessageSize(-1);
  return args;
}

}  // namespace

struct CoordinatorStub::Grpc {
  const std::string address;
  const absl::Duration timeout;
  LeaderStub leader;

  template <typename Request, typename Reply>
  using Method = grpc::Status (v1::Coordinator::Stub::*)(grpc::ClientContext*, const Request&,
                                                         Reply*);

  // The deadline covers the connection as well, so that a refused connection is not reported as a
  // slow answer.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request) {
    Reply reply;
    const grpc::Status status = leader.Call(
        timeout, /*patient=*/false, [&](v1::Coordinator::Stub* stub, grpc::ClientContext* context) {
          return (stub->*method)(context, request, &reply);
        });
    if (status.ok()) return reply;
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    if (code != absl::StatusCode::kUnavailable && code != absl::StatusCode::kDeadlineExceeded) {
      return absl::Status(code, status.error_message());
    }
    return absl::Status(
        code,
        absl::StrCat("coordinator at ", address, ": ", status.error_message(),
                     ". Is it running? Start a cluster with 'hotbed up', or name another "
                     "coordinator with --coordinator",
                     IdentityOfEnvironment().files.any()
                         ? ""
                         : "; if the cluster has TLS, give --tls-ca, --tls-cert and --tls-key"));
  }
};

CoordinatorStub::CoordinatorStub(std::string address, absl::Duration timeout)
    : grpc_(new Grpc{address, timeout, {address, IdentityOfEnvironment(), Arguments()}}) {}

CoordinatorStub::~CoordinatorStub() = default;

std::string CoordinatorStub::leader() const { return grpc_->leader.current(); }

absl::StatusOr<v1::ClusterMap> CoordinatorStub::GetClusterMap(bool rates) {
  v1::GetClusterMapRequest request;
  request.set_rates(rates);
  return grpc_->Call(&v1::Coordinator::Stub::GetClusterMap, request);
}

absl::StatusOr<v1::ListTrainersReply> CoordinatorStub::ListTrainers() {
  return grpc_->Call(&v1::Coordinator::Stub::ListTrainers, v1::ListTrainersRequest());
}

absl::StatusOr<v1::BackupMetadataReply> CoordinatorStub::BackupMetadata() {
  return grpc_->Call(&v1::Coordinator::Stub::BackupMetadata, v1::BackupMetadataRequest());
}

#define HOTBED_CALL(Method)                                                                       \
  absl::StatusOr<v1::Method##Reply> CoordinatorStub::Method(const v1::Method##Request& request) { \
    return grpc_->Call(&v1::Coordinator::Stub::Method, request);                                  \
  }
HOTBED_CALL(CreateTable)
HOTBED_CALL(CreateTables)
HOTBED_CALL(DropTable)
HOTBED_CALL(AlterTable)
HOTBED_CALL(MoveShards)
HOTBED_CALL(ChooseReplica)
HOTBED_CALL(CutShard)
HOTBED_CALL(DrainServer)
HOTBED_CALL(ListMoves)
HOTBED_CALL(ControlMoves)
HOTBED_CALL(RebuildMetadata)
HOTBED_CALL(ListEvents)
HOTBED_CALL(ScheduleCheckpoints)
#undef HOTBED_CALL

}  // namespace hotbed
