// A coordinator that says what a test wants: it registers everyone but the name "taken", hands out
// one shard record and activates what it is asked to.
#ifndef HOTBED_TESTS_SERVER_FAKE_COORDINATOR_H_
#define HOTBED_TESTS_SERVER_FAKE_COORDINATOR_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {

inline void FillRecord(ShardId shard, Epoch epoch, bool active, v1::ShardRecord* record) {
  record->set_shard(shard.packed());
  record->set_range_limit(10);
  record->set_column_limit(4);
  record->set_epoch(epoch);
  record->set_active(active);
}

class FakeCoordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status RegisterServer(grpc::ServerContext*, const v1::RegisterServerRequest* request,
                              v1::RegisterServerReply* reply) override {
    {
      absl::MutexLock lock(&mu_);
      const auto go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return released_; };
      mu_.AwaitWithTimeout(absl::Condition(&go_on), registering_takes_);
    }
    absl::MutexLock lock(&mu_);
    ++registrations_;
    message_bytes_max_ = request->message_bytes_max();
    if (request->name() == "taken") {
      return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "the name taken belongs to server 3");
    }
    reply->set_server(7);
    reply->set_incarnation(100 + registrations_);
    reply->set_cluster_id("cluster-a");
    reply->set_heartbeat_interval_ms(5);
    lease_held_ = true;
    return grpc::Status::OK;
  }

  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply* reply) override {
    absl::MutexLock lock(&mu_);
    ++heartbeats_;
    draining_ = request->draining();
    reply->set_lease_held(lease_held_);
    v1::ClusterMap* const map = reply->mutable_map();
    map->set_plan_revision(plan_revision_);
    map->set_delta(request->plan_revision_known() != 0);
    if (request->plan_revision_known() < plan_revision_) {
      map->set_cluster_id(map_cluster_id_);
      FillRecord({1, 2}, 5, false, map->add_shards());
      if (table_dropped_ != 0) map->add_tables_dropped(table_dropped_);
    }
    return grpc::Status::OK;
  }

  grpc::Status ActivateShards(grpc::ServerContext*, const v1::ActivateShardsRequest* request,
                              v1::ActivateShardsReply* reply) override {
    absl::MutexLock lock(&mu_);
    activated_ += request->shards_size();
    for (const v1::ShardEpoch& shard : request->shards()) {
      FillRecord(ShardId::FromPacked(shard.shard()), shard.epoch(), true, reply->add_records());
    }
    return grpc::Status::OK;
  }

  // What the next whole map says beside its one shard, of table 1.
  void SetMap(const std::string& cluster_id, uint64_t plan_revision, TableId dropped) {
    absl::MutexLock lock(&mu_);
    map_cluster_id_ = cluster_id;
    plan_revision_ = plan_revision;
    table_dropped_ = dropped;
  }
  // Until Release().
  void SetRegisteringTakes(absl::Duration time) {
    absl::MutexLock lock(&mu_);
    released_ = false;
    registering_takes_ = time;
  }
  void Release() {
    absl::MutexLock lock(&mu_);
    released_ = true;
  }
  void LoseLease() {
    absl::MutexLock lock(&mu_);
    lease_held_ = false;
  }
  int registrations() {
    absl::MutexLock lock(&mu_);
    return registrations_;
  }
  int heartbeats() {
    absl::MutexLock lock(&mu_);
    return heartbeats_;
  }
  int activated() {
    absl::MutexLock lock(&mu_);
    return activated_;
  }
  uint64_t message_bytes_max() {  // of the last registration
    absl::MutexLock lock(&mu_);
    return message_bytes_max_;
  }
  bool draining() {
    absl::MutexLock lock(&mu_);
    return draining_;
  }

 private:
  absl::Mutex mu_;
  std::string map_cluster_id_ ABSL_GUARDED_BY(mu_) = "cluster-a";
  uint64_t plan_revision_ ABSL_GUARDED_BY(mu_) = 40;
  TableId table_dropped_ ABSL_GUARDED_BY(mu_) = 0;
  bool released_ ABSL_GUARDED_BY(mu_) = true;
  absl::Duration registering_takes_ ABSL_GUARDED_BY(mu_);
  int registrations_ ABSL_GUARDED_BY(mu_) = 0;
  int heartbeats_ ABSL_GUARDED_BY(mu_) = 0;
  int activated_ ABSL_GUARDED_BY(mu_) = 0;
  bool lease_held_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t message_bytes_max_ ABSL_GUARDED_BY(mu_) = 0;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_SERVER_FAKE_COORDINATOR_H_
