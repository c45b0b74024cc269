// The calls of a cluster for whole tables, over gRPC: unary, blocking, each with a deadline.
// Thread-compatible.
#ifndef HOTBED_CLIENT_CHECKPOINT_CHECKPOINT_CLUSTER_H_
#define HOTBED_CLIENT_CHECKPOINT_CHECKPOINT_CLUSTER_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "leader/leader_stub.h"
#include "proto/changes.grpc.pb.h"
#include "proto/checkpoint.grpc.pb.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {

class CheckpointCluster {
 public:
  // `target` is hotbed://HOST:PORT of the coordinator.
  static absl::StatusOr<std::unique_ptr<CheckpointCluster>> Connect(const std::string& target);

  absl::StatusOr<v1::ClusterMap> GetMap(absl::Duration timeout = absl::Seconds(10));
  absl::StatusOr<v1::CreateTablesReply> CreateTables(const v1::CreateTablesRequest& request);
  absl::Status DropTable(const std::string& name);
  // Calls of the server at `address`.
  absl::Status BeginSave(const std::string& address, const v1::BeginSaveRequest& request);
  absl::StatusOr<v1::WatchSaveReply> WatchSave(const std::string& address,
                                               const v1::WatchSaveRequest& request);
  absl::StatusOr<v1::WatchRestoreReply> WatchRestore(const std::string& address,
                                                     const v1::WatchRestoreRequest& request);
  // For calls that do not block (client/changes/).
  v1::Changes::Stub* ChangesAt(const std::string& address) {
    return ServerAt(address).changes.get();
  }

 private:
  struct Server {
    std::unique_ptr<v1::Checkpoints::Stub> checkpoints;
    std::unique_ptr<v1::Changes::Stub> changes;
  };
  CheckpointCluster() = default;
  const Server& ServerAt(const std::string& address);

  std::string coordinator_;
  std::unique_ptr<LeaderStub> leader_;
  std::map<std::string, Server> servers_;  // by address
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHECKPOINT_CHECKPOINT_CLUSTER_H_
