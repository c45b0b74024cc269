#include "client/net/grpc_control_plane.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/map/map_messages.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/status_macros.h"
#include "leader/leader_stub.h"
#include "leader/map_channel.h"
#include "proto/control.grpc.pb.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr absl::Duration kConnectMax = absl::Seconds(1);  // for a watch, which is tried again

class GrpcControlPlane final : public ControlPlane {
 public:
  GrpcControlPlane(const std::string& address, const ClientIdentity& identity)
      : address_(address),
        identity_(identity),
        leader_(std::make_unique<LeaderStub>(address, identity, MapChannelArguments(identity))) {}

  absl::StatusOr<MapUpdate> GetMap(uint64_t revision_known, absl::Duration timeout) override {
    v1::GetClusterMapRequest request;
    request.set_plan_revision_known(revision_known);
    v1::ClusterMap map;
    HOTBED_RETURN_IF_ERROR(
        CallAgain(&v1::Coordinator::Stub::GetClusterMap, request, timeout, &map));
    return MapUpdateOf(map);
  }

  absl::Status Watch(uint64_t revision_known,
                     const std::function<void(const MapUpdate&)>& news) override {
    grpc::ClientContext context;
    {
      absl::MutexLock lock(&mu_);
      if (stopped_) return absl::CancelledError("stopped");
      watching_ = &context;
    }
    v1::GetClusterMapRequest request;
    request.set_plan_revision_known(revision_known);
    const auto place = leader_->Find(kConnectMax, /*patient=*/false);
    const auto reader = place->stub->WatchClusterMap(&context, request);
    v1::ClusterMap map;
    while (reader->Read(&map)) {
      const auto update = MapUpdateOf(map);
      if (update.ok()) news(*update);
    }
    const grpc::Status status = reader->Finish();
    leader_->Learn(*place, status, context);
    absl::MutexLock lock(&mu_);
    watching_ = nullptr;
    return Checked(status);
  }

  void StopWatching() override {
    leader_->Stop();
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    if (watching_ != nullptr) watching_->TryCancel();
  }

  absl::StatusOr<MapUpdate> CreateTable(const TableSpec& spec, bool if_not_exists,
                                        absl::Duration timeout) override {
    v1::CreateTableRequest request;
    *request.mutable_spec() = ToProto(spec);
    request.set_if_not_exists(if_not_exists);
    v1::CreateTableReply reply;
    HOTBED_RETURN_IF_ERROR(Call(&v1::Coordinator::Stub::CreateTable, request, timeout, &reply));
    return MapUpdateOf(reply);
  }

  absl::StatusOr<MapUpdate> DropTable(const std::string& name, absl::Duration timeout) override {
    v1::DropTableRequest request;
    request.set_name(name);
    v1::DropTableReply reply;
    HOTBED_RETURN_IF_ERROR(Call(&v1::Coordinator::Stub::DropTable, request, timeout, &reply));
    return MapUpdateOf(reply);
  }

  absl::StatusOr<SessionIdentity> OpenSession(const std::string& name,
                                              absl::Duration timeout) override {
    v1::OpenSessionRequest request;
    request.set_name(name);
    v1::OpenSessionReply reply;
    HOTBED_RETURN_IF_ERROR(
        CallAgain(&v1::Coordinator::Stub::OpenSession, request, timeout, &reply));
    return SessionIdentity{reply.session(), reply.incarnation()};
  }

  absl::StatusOr<v1::TrainReply> Train(const v1::TrainRequest& request,
                                       absl::Duration timeout) override {
    v1::TrainReply reply;
    HOTBED_RETURN_IF_ERROR(Call(&v1::Coordinator::Stub::Train, request, timeout, &reply));
    return reply;
  }

  std::unique_ptr<CheckpointCluster> WholeTables() override {
    return std::make_unique<GrpcCheckpointCluster>(address_, identity_);
  }

 private:
  // For calls that may be carried out twice.
  template <typename Method, typename Request, typename Reply>
  absl::Status CallAgain(Method method, const Request& request, absl::Duration timeout,
                         Reply* reply) const {
    return Call(method, request, timeout, reply, LeaderStub::Again::kUnavailable);
  }
  template <typename Method, typename Request, typename Reply>
  absl::Status Call(Method method, const Request& request, absl::Duration timeout, Reply* reply,
                    LeaderStub::Again again = LeaderStub::Again::kStoodBy) const {
    const auto attempt = [&](v1::Coordinator::Stub* stub, grpc::ClientContext* context) {
      return (stub->*method)(context, request, reply);
    };
    return Checked(leader_->Call(timeout, /*patient=*/true, attempt, again));
  }
  absl::Status Checked(const grpc::Status& status) const {
    if (status.ok()) return absl::OkStatus();
    const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
                        status.error_code() == grpc::StatusCode::UNAVAILABLE;
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("coordinator ", address_, ": ", status.error_message(),
                                     silent ? " (is it running, and is that its address?)" : ""));
  }

  const std::string address_;
  const ClientIdentity identity_;
  std::unique_ptr<LeaderStub> leader_;
  absl::Mutex mu_;
  grpc::ClientContext* watching_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

std::unique_ptr<ControlPlane> NewGrpcControlPlane(const std::string& address,
                                                  const ClientIdentity& identity) {
  return std::make_unique<GrpcControlPlane>(address, identity);
}

}  // namespace hotbed
