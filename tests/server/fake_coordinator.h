// A scripted coordinator: it registers every name but "taken", hands out one shard record and
// grants every activation.
#ifndef HOTBED_TESTS_SERVER_FAKE_COORDINATOR_H_
#define HOTBED_TESTS_SERVER_FAKE_COORDINATOR_H_

#include <string>
#include <vector>

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
    failure_domain_ = request->failure_domain();
    if (request->name() == "taken") {
      return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "the name taken belongs to server 3");
    }
    reply->set_server(7);
    reply->set_incarnation(100 + registrations_);
    reply->set_cluster_id("cluster-a");
    reply->set_heartbeat_interval_ms(heartbeat_interval_ms_);
    lease_held_ = true;
    return grpc::Status::OK;
  }

  grpc::Status Attend(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::HeartbeatReply, v1::HeartbeatRequest>* stream) override {
    {
      absl::MutexLock lock(&mu_);
      attending_.push_back(context);
      news_to_ = stream;
    }
    v1::HeartbeatRequest request;
    while (stream->Read(&request)) {
      v1::HeartbeatReply reply;
      {
        absl::MutexLock lock(&mu_);
        if (silent_) continue;
      }
      Answer(request, &reply);
      reply.set_number(request.number());
      absl::MutexLock lock(&mu_);
      if (!stream->Write(reply)) break;
    }
    absl::MutexLock lock(&mu_);
    if (news_to_ == stream) news_to_ = nullptr;
    std::erase(attending_, context);
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

  void SetHeartbeatIntervalMs(uint32_t ms) {
    absl::MutexLock lock(&mu_);
    heartbeat_interval_ms_ = ms;
  }
  void SetSilent(bool silent) {  // heartbeats are read and not answered
    absl::MutexLock lock(&mu_);
    silent_ = silent;
  }
  // Sends a reply between two heartbeats. False: no stream is open.
  bool Tell(const v1::HeartbeatReply& news) {
    absl::MutexLock lock(&mu_);
    return news_to_ != nullptr && news_to_->Write(news);
  }
  void CutStreams() {
    absl::MutexLock lock(&mu_);
    for (grpc::ServerContext* context : attending_) context->TryCancel();
  }
  // The servers of every whole map; SetTransferLimits: the limits of every reply.
  void SetServers(const v1::ClusterMap& map) {
    absl::MutexLock lock(&mu_);
    servers_ = map;
  }
  void SetTransferLimits(const v1::TransferLimits& limits) {
    absl::MutexLock lock(&mu_);
    transfer_limits_ = limits;
  }
  v1::HeartbeatRequest last() {  // heartbeat
    absl::MutexLock lock(&mu_);
    return last_;
  }
  int streams() {  // open now
    absl::MutexLock lock(&mu_);
    return static_cast<int>(attending_.size());
  }
  std::string failure_domain() {
    absl::MutexLock lock(&mu_);
    return failure_domain_;
  }
  // The content of the next whole map, in addition to its one shard of table 1.
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
  void Answer(const v1::HeartbeatRequest& request, v1::HeartbeatReply* reply) {
    absl::MutexLock lock(&mu_);
    ++heartbeats_;
    draining_ = request.draining();
    last_ = request;
    reply->set_lease_held(lease_held_);
    reply->set_lease_ttl_ms(3000);
    *reply->mutable_transfer_limits() = transfer_limits_;
    v1::ClusterMap* const map = reply->mutable_map();
    map->set_plan_revision(plan_revision_);
    map->set_delta(request.plan_revision_known() != 0);
    if (request.plan_revision_known() < plan_revision_) {
      map->set_cluster_id(map_cluster_id_);
      FillRecord({1, 2}, 5, false, map->add_shards());
      *map->mutable_servers() = servers_.servers();
      if (table_dropped_ != 0) map->add_tables_dropped(table_dropped_);
    }
  }

  absl::Mutex mu_;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<grpc::ServerContext*> attending_ ABSL_GUARDED_BY(mu_);
  grpc::ServerReaderWriter<v1::HeartbeatReply, v1::HeartbeatRequest>* news_to_
      ABSL_GUARDED_BY(mu_) = nullptr;  // the newest
  uint32_t heartbeat_interval_ms_ ABSL_GUARDED_BY(mu_) = 5;
  v1::ClusterMap servers_ ABSL_GUARDED_BY(mu_);
  v1::TransferLimits transfer_limits_ ABSL_GUARDED_BY(mu_);
  v1::HeartbeatRequest last_ ABSL_GUARDED_BY(mu_);
  std::string failure_domain_ ABSL_GUARDED_BY(mu_);
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
