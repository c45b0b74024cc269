// CheckpointCluster over gRPC: unary calls.
#ifndef HOTBED_CLIENT_NET_GRPC_CHECKPOINT_CLUSTER_H_
#define HOTBED_CLIENT_NET_GRPC_CHECKPOINT_CLUSTER_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/map/checkpoint_cluster.h"
#include "leader/leader_stub.h"
#include "places/servers/servers_place.h"
#include "proto/changes.grpc.pb.h"
#include "proto/checkpoint.grpc.pb.h"
#include "proto/serving.grpc.pb.h"
#include "proto/softmax.grpc.pb.h"
#include "proto/top_k.grpc.pb.h"
#include "proto/vocabulary.grpc.pb.h"
#include "security/identity.h"

namespace hotbed {

class GrpcCheckpointCluster final : public CheckpointCluster {
 public:
  // `target` is hotbed://HOST:PORT of the coordinator.
  static absl::StatusOr<std::unique_ptr<GrpcCheckpointCluster>> Connect(const std::string& target);
  // `address` is HOST:PORT,... of the coordinators.
  GrpcCheckpointCluster(const std::string& address, const ClientIdentity& identity);

  absl::StatusOr<v1::ClusterMap> GetMap(absl::Duration timeout) override;
  absl::StatusOr<v1::CreateTablesReply> CreateTables(
      const v1::CreateTablesRequest& request) override;
  absl::Status DropTable(const std::string& name) override;
  absl::StatusOr<v1::HoldStepReply> HoldStep(const v1::HoldStepRequest& request) override;
  absl::Status BeginSave(const std::string& address, const v1::BeginSaveRequest& request) override;
  absl::StatusOr<v1::WatchSaveReply> WatchSave(const std::string& address,
                                               const v1::WatchSaveRequest& request) override;
  absl::StatusOr<v1::WatchRestoreReply> WatchRestore(
      const std::string& address, const v1::WatchRestoreRequest& request) override;
  absl::StatusOr<v1::TopKReply> TopK(const std::string& address,
                                     const v1::TopKRequest& request) override;
  absl::StatusOr<v1::SoftmaxReply> Softmax(const std::string& address, bool gradient,
                                           const v1::SoftmaxRequest& request) override;
  absl::StatusOr<v1::NumberReply> Number(const std::string& address,
                                         const v1::NumberRequest& request) override;
  absl::StatusOr<v1::RowLifeReply> RowLife(const std::string& address,
                                           const v1::RowLifeRequest& request,
                                           absl::Duration timeout) override;
  absl::StatusOr<Place*> ServersDisks() override { return &disks_; }
  // For calls that do not block (client/changes/).
  v1::Changes::Stub* ChangesAt(const std::string& address) {
    return ServerAt(address).changes.get();
  }
  v1::ServingRelay::Stub* RelayAt(const std::string& address) {
    return ServerAt(address).relay.get();
  }

 private:
  struct Server {
    std::unique_ptr<v1::Checkpoints::Stub> checkpoints;
    std::unique_ptr<v1::Changes::Stub> changes;
    std::unique_ptr<v1::ServingRelay::Stub> relay;
    std::unique_ptr<v1::Search::Stub> search;
    std::unique_ptr<v1::OutputLayer::Stub> output;
    std::unique_ptr<v1::Vocabularies::Stub> vocabularies;
  };
  const Server& ServerAt(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string coordinator_;
  const ClientIdentity identity_;
  LeaderStub leader_;
  ServersPlace disks_;
  absl::Mutex mu_;
  std::map<std::string, Server> servers_ ABSL_GUARDED_BY(mu_);  // by address
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_NET_GRPC_CHECKPOINT_CLUSTER_H_
