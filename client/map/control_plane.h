// The seam between the client and the coordinator. Calls block for at most their timeout.
// Thread-safe.
#ifndef HOTBED_CLIENT_MAP_CONTROL_PLANE_H_
#define HOTBED_CLIENT_MAP_CONTROL_PLANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/map/checkpoint_cluster.h"
#include "client/map/cluster_map.h"
#include "common/tables/table_spec.h"
#include "proto/control.pb.h"

namespace hotbed {

struct SessionIdentity {
  SessionId session = 0;
  Incarnation incarnation = 0;
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  virtual absl::StatusOr<MapUpdate> GetMap(uint64_t revision_known, absl::Duration timeout) = 0;
  // Calls `news` for each change until the stream breaks (the status says why) or StopWatching is
  // called. Blocks.
  virtual absl::Status Watch(uint64_t revision_known,
                             const std::function<void(const MapUpdate&)>& news) = 0;
  virtual void StopWatching() = 0;
  // These return the new state of the tables, as of MapUpdate::tables_revision: created, with their
  // shards, or dropped. CreateTables creates all or none.
  virtual absl::StatusOr<MapUpdate> CreateTable(const TableSpec& spec, bool if_not_exists,
                                                absl::Duration timeout) = 0;
  virtual absl::StatusOr<MapUpdate> CreateTables(const std::vector<TableSpec>& specs,
                                                 bool if_not_exists, absl::Duration timeout) {
    return absl::UnimplementedError("this control plane creates one table at a time");
  }
  virtual absl::StatusOr<MapUpdate> DropTable(const std::string& name, absl::Duration timeout) = 0;
  virtual absl::StatusOr<SessionIdentity> OpenSession(const std::string& name,
                                                      absl::Duration timeout) = 0;
  // A request of a trainer to its group. The coordinator delays the reply for at most wait_ms of
  // the request.
  virtual absl::StatusOr<v1::TrainReply> Train(const v1::TrainRequest& request,
                                               absl::Duration timeout) {
    return absl::UnimplementedError("this control plane has no groups of trainers");
  }
  // The calls for whole tables of the same cluster.
  virtual std::unique_ptr<CheckpointCluster> WholeTables() { return nullptr; }
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_CONTROL_PLANE_H_
