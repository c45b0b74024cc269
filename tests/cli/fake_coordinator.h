// A coordinator that answers from a map in memory, for the tests of the CLI. A test sets its fields
// before the calls that read them.
#ifndef HOTBED_TESTS_CLI_FAKE_COORDINATOR_H_
#define HOTBED_TESTS_CLI_FAKE_COORDINATOR_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/control.grpc.pb.h"
#include "proto/serving.grpc.pb.h"

namespace hotbed {

class FakeServing : public v1::ServingCoordinator::Service {
 public:
  v1::ServingMap map;
  std::vector<v1::ServeTablesRequest> served;
  v1::ServeTablesReply reply;
  grpc::Status status;
  std::vector<v1::PublishVersionRequest> published;
  std::vector<v1::ChooseVersionRequest> chosen;
  v1::ChooseVersionReply choice;

  grpc::Status GetServing(grpc::ServerContext*, const v1::GetServingRequest*,
                          v1::ServingMap* said) override {
    *said = map;
    return grpc::Status::OK;
  }
  grpc::Status ServeTables(grpc::ServerContext*, const v1::ServeTablesRequest* request,
                           v1::ServeTablesReply* said) override {
    served.push_back(*request);
    *said = reply;
    return status;
  }
  grpc::Status PublishVersion(grpc::ServerContext*, const v1::PublishVersionRequest* request,
                              v1::PublishVersionReply* said) override {
    published.push_back(*request);
    said->mutable_version()->set_name(request->name());
    said->mutable_version()->set_model(request->model());
    return status;
  }
  grpc::Status ChooseVersion(grpc::ServerContext*, const v1::ChooseVersionRequest* request,
                             v1::ChooseVersionReply* said) override {
    chosen.push_back(*request);
    *said = choice;
    return status;
  }
};

class FakeCoordinator : public v1::Coordinator::Service {
 public:
  FakeCoordinator();
  ~FakeCoordinator() override;
  const std::string& address() const { return address_; }

  FakeServing serving;
  v1::ClusterMap map;              // the answer
  v1::CreateTableRequest created;  // the last request
  v1::CreateTablesRequest created_together;
  v1::DropTableRequest dropped;
  int drops = 0;
  v1::AlterTableRequest altered;
  std::function<grpc::Status(const v1::AlterTableRequest&)> on_alter;  // null: OK
  v1::MoveShardsRequest moved;
  v1::DrainServerRequest drained;
  v1::ControlMovesRequest controlled;
  std::vector<v1::ChooseReplicaRequest> choices;
  std::function<grpc::Status(const v1::ChooseReplicaRequest&)> on_choose;  // null: OK
  v1::MoveShardsReply move_reply;
  v1::DrainServerReply drain_reply;
  v1::ControlMovesReply control_reply;
  grpc::Status move_status;  // of MoveShards and DrainServer
  // Answers of ListMoves, one after another; the last one is repeated. `on_list` is called with
  // each request before the answer, and may change them.
  std::vector<v1::ListMovesReply> lists;
  std::function<void(const v1::ListMovesRequest&)> on_list;
  int lists_asked = 0;
  v1::ListEventsReply events;
  v1::RebuildMetadataRequest rebuild;
  v1::RebuildMetadataReply rebuild_reply;
  grpc::Status rebuild_status = {grpc::StatusCode::FAILED_PRECONDITION, "not empty"};

  grpc::Status GetClusterMap(grpc::ServerContext*, const v1::GetClusterMapRequest*,
                             v1::ClusterMap* reply) override;
  grpc::Status CreateTable(grpc::ServerContext*, const v1::CreateTableRequest* request,
                           v1::CreateTableReply* reply) override;
  grpc::Status CreateTables(grpc::ServerContext*, const v1::CreateTablesRequest* request,
                            v1::CreateTablesReply* reply) override;
  grpc::Status DropTable(grpc::ServerContext*, const v1::DropTableRequest* request,
                         v1::DropTableReply* reply) override;
  grpc::Status AlterTable(grpc::ServerContext*, const v1::AlterTableRequest* request,
                          v1::AlterTableReply* reply) override;
  grpc::Status MoveShards(grpc::ServerContext*, const v1::MoveShardsRequest* request,
                          v1::MoveShardsReply* reply) override;
  grpc::Status ChooseReplica(grpc::ServerContext*, const v1::ChooseReplicaRequest* request,
                             v1::ChooseReplicaReply* reply) override;
  grpc::Status RebuildMetadata(grpc::ServerContext*, const v1::RebuildMetadataRequest* request,
                               v1::RebuildMetadataReply* reply) override {
    rebuild = *request;
    *reply = rebuild_reply;
    return rebuild_status;
  }
  grpc::Status BackupMetadata(grpc::ServerContext*, const v1::BackupMetadataRequest*,
                              v1::BackupMetadataReply* reply) override {
    reply->set_file("the metadata");
    reply->set_cluster_id("c");
    return grpc::Status::OK;
  }
  grpc::Status DrainServer(grpc::ServerContext*, const v1::DrainServerRequest* request,
                           v1::DrainServerReply* reply) override;
  grpc::Status ListMoves(grpc::ServerContext*, const v1::ListMovesRequest* request,
                         v1::ListMovesReply* reply) override;
  grpc::Status ControlMoves(grpc::ServerContext*, const v1::ControlMovesRequest* request,
                            v1::ControlMovesReply* reply) override;
  grpc::Status ListTrainers(grpc::ServerContext*, const v1::ListTrainersRequest*,
                            v1::ListTrainersReply*) override {
    return grpc::Status::OK;
  }
  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsReply* reply) override;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_CLI_FAKE_COORDINATOR_H_
