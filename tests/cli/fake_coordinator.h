// A coordinator that answers from a map held in memory, for the CLI's tests. Thread-safe for one
// test.
#ifndef HOTBED_TESTS_CLI_FAKE_COORDINATOR_H_
#define HOTBED_TESTS_CLI_FAKE_COORDINATOR_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "proto/control.grpc.pb.h"

namespace hotbed {

class FakeCoordinator : public v1::Coordinator::Service {
 public:
  FakeCoordinator();
  ~FakeCoordinator() override;
  const std::string& address() const { return address_; }

  v1::ClusterMap map;              // what is answered
  v1::CreateTableRequest created;  // the last request
  v1::CreateTablesRequest created_together;
  v1::DropTableRequest dropped;
  int drops = 0;
  v1::AlterTableRequest altered;

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

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_CLI_FAKE_COORDINATOR_H_
