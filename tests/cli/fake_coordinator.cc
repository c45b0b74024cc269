#include "tests/cli/fake_coordinator.h"

#include "absl/strings/str_cat.h"
#include "common/ids.h"

namespace hotbed {

FakeCoordinator::FakeCoordinator() {
  map.set_cluster_id("c-1");
  map.set_plan_revision(7);
  for (int i = 0; i < 2; ++i) {
    v1::ServerInfo* server = map.add_servers();
    server->set_server(uint64_t{10} + i);
    server->set_name(absl::StrCat("s", i));
    server->set_address(absl::StrCat("127.0.0.1:75", i));
    server->set_live(i == 0);
    server->mutable_load()->set_rows_resident(1000);
  }
  v1::TableSpec* table = map.add_tables();
  table->set_id(1);
  table->set_name("user");
  table->set_rows(100);
  table->set_dim(4);
  table->set_seed(~uint64_t{0});  // does not fit a double
  for (uint32_t i = 0; i < 4; ++i) {
    v1::ShardRecord* shard = map.add_shards();
    shard->set_shard((uint64_t{1} << 32) | i);
    shard->set_range_first(i * 25);
    shard->set_range_limit(i * 25 + 25);
    shard->set_column_limit(4);
    shard->set_epoch(3);
    shard->set_active(i != 3);
    shard->mutable_primary()->set_server(i < 3 ? 10 : 11);
  }
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  builder.RegisterService(&serving);
  server_ = builder.BuildAndStart();
  address_ = absl::StrCat("127.0.0.1:", port);
}

FakeCoordinator::~FakeCoordinator() { server_->Shutdown(); }

grpc::Status FakeCoordinator::GetClusterMap(grpc::ServerContext*, const v1::GetClusterMapRequest*,
                                            v1::ClusterMap* reply) {
  *reply = map;
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::CreateTable(grpc::ServerContext*,
                                          const v1::CreateTableRequest* request,
                                          v1::CreateTableReply* reply) {
  created = *request;
  if (request->spec().name() == "user") {
    return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "table 'user' exists with dim 4, not 8");
  }
  *reply->mutable_spec() = request->spec();
  reply->set_created(!request->dry_run());
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::CreateTables(grpc::ServerContext*,
                                           const v1::CreateTablesRequest* request,
                                           v1::CreateTablesReply* reply) {
  created_together = *request;
  for (const v1::NewTable& table : request->tables()) {
    v1::CreateTableReply& one = *reply->add_tables();
    *one.mutable_spec() = table.spec();
    one.set_created(!request->dry_run());
  }
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::DropTable(grpc::ServerContext*, const v1::DropTableRequest* request,
                                        v1::DropTableReply* reply) {
  dropped = *request;
  ++drops;
  reply->set_id(1);
  reply->set_shards(4);
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::AlterTable(grpc::ServerContext*, const v1::AlterTableRequest* request,
                                         v1::AlterTableReply* reply) {
  altered = *request;
  if (on_alter) {
    if (const grpc::Status status = on_alter(*request); !status.ok()) return status;
  }
  *reply->mutable_spec() = map.tables(0);
  *reply->mutable_spec()->add_changes() = request->change();
  reply->set_altered(!request->dry_run());
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::MoveShards(grpc::ServerContext*, const v1::MoveShardsRequest* request,
                                         v1::MoveShardsReply* reply) {
  moved = *request;
  *reply = move_reply;
  return move_status;
}

grpc::Status FakeCoordinator::ChooseReplica(grpc::ServerContext*,
                                            const v1::ChooseReplicaRequest* request,
                                            v1::ChooseReplicaReply* reply) {
  choices.push_back(*request);
  reply->mutable_record()->set_shard(request->shard());
  reply->mutable_record()->set_epoch(9);
  reply->set_text(absl::StrCat("shard ", ShardId::FromPacked(request->shard()).index, " kept"));
  return on_choose ? on_choose(*request) : grpc::Status::OK;
}

grpc::Status FakeCoordinator::DrainServer(grpc::ServerContext*,
                                          const v1::DrainServerRequest* request,
                                          v1::DrainServerReply* reply) {
  drained = *request;
  *reply = drain_reply;
  return move_status;
}

grpc::Status FakeCoordinator::ListMoves(grpc::ServerContext*, const v1::ListMovesRequest* request,
                                        v1::ListMovesReply* reply) {
  ++lists_asked;
  if (on_list) on_list(*request);
  if (!lists.empty()) *reply = lists.front();
  if (lists.size() > 1) lists.erase(lists.begin());
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::ControlMoves(grpc::ServerContext*,
                                           const v1::ControlMovesRequest* request,
                                           v1::ControlMovesReply* reply) {
  controlled = *request;
  *reply = control_reply;
  return grpc::Status::OK;
}

grpc::Status FakeCoordinator::ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                                         v1::ListEventsReply* reply) {
  for (const v1::ClusterEvent& event : events.events()) {
    if (event.number() > request->after()) *reply->add_events() = event;
  }
  return grpc::Status::OK;
}

}  // namespace hotbed
