// The calls of a cluster for whole tables: of its coordinator, and of its servers by address. They
// block, each for a limited time. Thread-compatible.
#ifndef HOTBED_CLIENT_MAP_CHECKPOINT_CLUSTER_H_
#define HOTBED_CLIENT_MAP_CHECKPOINT_CLUSTER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "places/place_finder.h"
#include "places/servers_path.h"
#include "proto/changes.pb.h"
#include "proto/checkpoint.pb.h"
#include "proto/control.pb.h"
#include "proto/softmax.pb.h"
#include "proto/top_k.pb.h"
#include "proto/vocabulary.pb.h"

namespace hotbed {

class CheckpointCluster {
 public:
  virtual ~CheckpointCluster() = default;
  virtual absl::StatusOr<v1::ClusterMap> GetMap(absl::Duration timeout = absl::Seconds(10)) = 0;
  virtual absl::StatusOr<v1::CreateTablesReply> CreateTables(
      const v1::CreateTablesRequest& request) = 0;
  virtual absl::Status DropTable(const std::string& name) = 0;
  virtual absl::StatusOr<v1::HoldStepReply> HoldStep(const v1::HoldStepRequest& request) = 0;
  virtual absl::Status BeginSave(const std::string& address,
                                 const v1::BeginSaveRequest& request) = 0;
  virtual absl::StatusOr<v1::WatchSaveReply> WatchSave(const std::string& address,
                                                       const v1::WatchSaveRequest& request) = 0;
  virtual absl::StatusOr<v1::WatchRestoreReply> WatchRestore(
      const std::string& address, const v1::WatchRestoreRequest& request) = 0;
  // Takes at most the time that the request names. Thread-safe, besides other calls of TopK and
  // Softmax.
  virtual absl::StatusOr<v1::TopKReply> TopK(const std::string& address,
                                             const v1::TopKRequest& request) = 0;
  // Softmax, or SoftmaxGradient, with the same promises.
  virtual absl::StatusOr<v1::SoftmaxReply> Softmax(const std::string& address, bool gradient,
                                                   const v1::SoftmaxRequest& request) = 0;
  // Thread-safe, too; within the time that the request names.
  virtual absl::StatusOr<v1::NumberReply> Number(const std::string& /*address*/,
                                                 const v1::NumberRequest& /*request*/) {
    return absl::UnimplementedError("a save asks for no numbers");
  }
  virtual absl::StatusOr<v1::RowLifeReply> RowLife(const std::string& /*address*/,
                                                   const v1::RowLifeRequest& /*request*/,
                                                   absl::Duration /*timeout*/) {
    return absl::UnimplementedError("a save asks for no touches");
  }
  // Where server:NAME is: the own disks of the servers.
  virtual absl::StatusOr<Place*> ServersDisks() {
    return absl::FailedPreconditionError(
        "the local engine has no servers with disks of their own; name a directory");
  }

  absl::StatusOr<Place*> PlaceOf(const std::string& path) {
    return NamesServersDisks(path) ? ServersDisks() : PlaceFinder::Real()->Of(path);
  }
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_CHECKPOINT_CLUSTER_H_
