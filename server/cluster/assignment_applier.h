// Applies the coordinator's cluster maps to this server: tables and shards go to the shard host,
// the addresses of other servers to the streams between servers.
//
// Thread-safe; maps are applied one at a time, in the order of the calls.
#ifndef HOTBED_SERVER_CLUSTER_ASSIGNMENT_APPLIER_H_
#define HOTBED_SERVER_CLUSTER_ASSIGNMENT_APPLIER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/control.pb.h"
#include "server/host/shard_host.h"
#include "server/shard/replica/replica_message.h"

namespace hotbed {

class AssignmentApplier {
 public:
  // `host` and `network` (null: none) outlive it.
  AssignmentApplier(ShardHost* host, ReplicaNetwork* network) : host_(host), network_(network) {}

  // A new incarnation starts without a map.
  void BeginIncarnation();
  // An error leaves plan_revision() as it was, so that the map comes again.
  absl::Status Apply(const v1::ClusterMap& map);

  // Applies the records that an activation returned.
  absl::Status ApplyRecords(const google::protobuf::RepeatedPtrField<v1::ShardRecord>& records);

  uint64_t plan_revision() const;  // of the last map applied; 0: none yet
  // Shards whose rows are here and that no map has named since BeginIncarnation; none before a
  // whole map. At most kUnnamedMax.
  std::vector<ShardId> Unnamed() const;
  static constexpr size_t kUnnamedMax = 4096;

  // The number of shards that this process should not leave yet: it is a member, and another live
  // one could go on without it. Pushes would wait for this one, or for another primary, and a new
  // primary may need its log.
  size_t NotHandedOver(const Member& self) const;

 private:
  struct Server {
    Incarnation incarnation = 0;
    std::string address;
    bool live = false;
    std::string name;
  };

  void AddTablesMissing(const v1::ClusterMap& map, std::vector<TableId>* dropped) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(applying_);
  void TakeServers(const v1::ClusterMap& map);

  ShardHost* const host_;
  ReplicaNetwork* const network_;
  absl::Mutex applying_ ABSL_ACQUIRED_BEFORE(mu_);
  uint64_t plan_revision_highest_ ABSL_GUARDED_BY(applying_) = 0;  // over all incarnations

  mutable absl::Mutex mu_;
  uint64_t plan_revision_ ABSL_GUARDED_BY(mu_) = 0;
  bool heard_whole_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<ShardId> named_ ABSL_GUARDED_BY(mu_);
  std::map<ServerId, Server> servers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_CLUSTER_ASSIGNMENT_APPLIER_H_
