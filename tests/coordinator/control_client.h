// Callers of the coordinator for tests: a blocking client, a watch, and a shard server that holds
// nothing.
#ifndef HOTBED_TESTS_COORDINATOR_CONTROL_CLIENT_H_
#define HOTBED_TESTS_COORDINATOR_CONTROL_CLIENT_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/ids.h"
#include "proto/control.grpc.pb.h"

namespace hotbed {

// Thread-safe. Every call ends within ten seconds.
class ControlClient {
 public:
  explicit ControlClient(const std::string& address) {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no back-off inherited from a dead one
    stub = v1::Coordinator::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args));
  }

  template <typename Reply, typename Request>
  absl::StatusOr<Reply> Call(grpc::Status (v1::Coordinator::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&, Reply*),
                             const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    Reply reply;
    const grpc::Status s = (stub.get()->*method)(&context, request, &reply);
    if (s.ok()) return reply;
    return absl::Status(static_cast<absl::StatusCode>(s.error_code()), s.error_message());
  }

  absl::StatusOr<v1::ClusterMap> Map() {
    return Call(&v1::Coordinator::Stub::GetClusterMap, v1::GetClusterMapRequest());
  }
  absl::StatusOr<v1::CreateTableReply> CreateTable(const std::string& name, uint64_t rows,
                                                   uint32_t shards = 0) {
    v1::CreateTableRequest request;
    request.set_shards(shards);
    v1::TableSpec* spec = request.mutable_spec();
    spec->set_name(name);
    spec->set_rows(rows);
    spec->set_dim(16);
    spec->mutable_optimizer()->set_kind(v1::OPTIMIZER_ROWWISE_ADAGRAD);
    spec->mutable_optimizer()->set_epsilon(1e-8f);
    return Call(&v1::Coordinator::Stub::CreateTable, request);
  }
  absl::StatusOr<v1::DropTableReply> DropTable(const std::string& name) {
    v1::DropTableRequest request;
    request.set_name(name);
    return Call(&v1::Coordinator::Stub::DropTable, request);
  }
  absl::StatusOr<v1::OpenSessionReply> OpenSession(const std::string& name) {
    v1::OpenSessionRequest request;
    request.set_name(name);
    return Call(&v1::Coordinator::Stub::OpenSession, request);
  }

  std::unique_ptr<v1::Coordinator::Stub> stub;
};

class MapWatch {
 public:
  MapWatch(ControlClient* client, uint64_t known) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::GetClusterMapRequest request;
    request.set_plan_revision_known(known);
    reader_ = client->stub->WatchClusterMap(&context_, request);
  }
  ~MapWatch() {
    if (reader_ == nullptr) return;
    context_.TryCancel();
    Finish();
  }
  // The next map; an empty one when the stream ended.
  v1::ClusterMap Next() {
    v1::ClusterMap map;
    if (!reader_->Read(&map)) map.Clear();
    return map;
  }
  // Reads on to the end.
  grpc::Status Finish() {
    v1::ClusterMap map;
    while (reader_->Read(&map)) {
    }
    grpc::Status status = reader_->Finish();
    reader_.reset();
    return status;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::ClusterMap>> reader_;
};

// Does what a shard server does with the coordinator, and keeps the records that it is told.
// Thread-compatible.
class FakeServer {
 public:
  FakeServer(std::string name, ControlClient* client) : name_(std::move(name)), client_(client) {}
  // The same process, over a new connection.
  FakeServer(std::string name, ControlClient* client, const FakeServer& before)
      : name_(std::move(name)),
        client_(client),
        registration_(before.registration_),
        shards_(before.shards_) {}

  absl::Status Register() {
    v1::RegisterServerRequest request;
    request.set_server(registration_.server());
    request.set_cluster_id(registration_.cluster_id());
    request.set_name(name_);
    request.set_address(address);
    for (const auto& [packed, record] : shards_) {  // its disk keeps everything
      v1::HeldReplica* held = request.add_held();
      held->set_shard(packed);
      held->mutable_end()->set_epoch(1);
      held->mutable_end()->set_lsn(1);
    }
    auto reply = client_->Call(&v1::Coordinator::Stub::RegisterServer, request);
    if (!reply.ok()) return reply.status();
    registration_ = *reply;
    return absl::OkStatus();
  }
  absl::Status Heartbeat() {
    v1::HeartbeatRequest request;
    request.set_server(registration_.server());
    request.set_incarnation(registration_.incarnation());
    request.set_plan_revision_known(known_);
    *request.mutable_load() = load;
    const auto reply = Attend(&request);
    if (!reply.ok()) return reply.status();
    if (!reply->lease_held()) return absl::NotFoundError("lease lost");
    if (!reply->map().delta()) shards_.clear();
    for (const v1::ShardRecord& r : reply->map().shards()) shards_[r.shard()] = r;
    for (const TableId id : reply->map().tables_dropped()) {
      shards_.erase(shards_.lower_bound(ShardId{id, 0}.packed()),
                    shards_.lower_bound(ShardId{id + 1, 0}.packed()));
    }
    known_ = reply->map().plan_revision();
    return absl::OkStatus();
  }
  absl::Status ActivateAll() {
    v1::ActivateShardsRequest request;
    request.set_server(registration_.server());
    request.set_incarnation(registration_.incarnation());
    for (const auto& [id, record] : shards_) {
      v1::ShardEpoch* shard = request.add_shards();
      shard->set_shard(id);
      shard->set_epoch(record.epoch());
    }
    auto reply = client_->Call(&v1::Coordinator::Stub::ActivateShards, request);
    if (!reply.ok()) return reply.status();
    for (const v1::ShardRecord& r : reply->records()) shards_[r.shard()] = r;
    return absl::OkStatus();
  }

  ~FakeServer() {
    if (stream_ == nullptr) return;
    context_.TryCancel();
    stream_->Finish();
  }

  const v1::RegisterServerReply& registration() const { return registration_; }
  const std::map<uint64_t, v1::ShardRecord>& shards() const { return shards_; }
  v1::ServerLoad load;
  std::string address = "127.0.0.1:1";

 private:
  // The reply to this heartbeat; news in between are not needed, since it carries them, too.
  absl::StatusOr<v1::HeartbeatReply> Attend(v1::HeartbeatRequest* request) {
    if (stream_ == nullptr) {
      context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(100));
      stream_ = client_->stub->Attend(&context_);
    }
    request->set_number(++number_);
    v1::HeartbeatReply reply;
    bool read = stream_->Write(*request);
    while (read && reply.number() != number_) read = stream_->Read(&reply);
    if (read) return reply;
    return absl::UnavailableError("the stream ended");
  }

  const std::string name_;
  ControlClient* const client_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::HeartbeatRequest, v1::HeartbeatReply>> stream_;
  uint64_t number_ = 0;
  v1::RegisterServerReply registration_;
  std::map<uint64_t, v1::ShardRecord> shards_;
  uint64_t known_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_COORDINATOR_CONTROL_CLIENT_H_
