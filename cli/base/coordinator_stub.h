// The CLI's connection to the coordinator: unary calls with one deadline each. Thread-safe.
#ifndef HOTBED_CLI_BASE_COORDINATOR_STUB_H_
#define HOTBED_CLI_BASE_COORDINATOR_STUB_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/control.pb.h"

namespace hotbed {

class CoordinatorStub {
 public:
  // `address` is HOST:PORT, or several with commas between. Connects at the first call. Errors
  // carry the coordinator's message. Unavailable: the coordinator cannot be reached; the message
  // names its address and the next step.
  CoordinatorStub(std::string address, absl::Duration timeout);
  ~CoordinatorStub();

  // Where the last call was answered.
  std::string leader() const;
  // `rates`: with the measured load of each shard, for a planner.
  absl::StatusOr<v1::ClusterMap> GetClusterMap(bool rates = false);
  absl::StatusOr<v1::ListTrainersReply> ListTrainers();
  absl::StatusOr<v1::CreateTableReply> CreateTable(const v1::CreateTableRequest& request);
  absl::StatusOr<v1::CreateTablesReply> CreateTables(const v1::CreateTablesRequest& request);
  absl::StatusOr<v1::DropTableReply> DropTable(const v1::DropTableRequest& request);
  absl::StatusOr<v1::AlterTableReply> AlterTable(const v1::AlterTableRequest& request);
  absl::StatusOr<v1::MoveShardsReply> MoveShards(const v1::MoveShardsRequest& request);
  absl::StatusOr<v1::ChooseReplicaReply> ChooseReplica(const v1::ChooseReplicaRequest& request);
  absl::StatusOr<v1::CutShardReply> CutShard(const v1::CutShardRequest& request);
  absl::StatusOr<v1::DrainServerReply> DrainServer(const v1::DrainServerRequest& request);
  absl::StatusOr<v1::ListMovesReply> ListMoves(const v1::ListMovesRequest& request);
  absl::StatusOr<v1::ControlMovesReply> ControlMoves(const v1::ControlMovesRequest& request);
  absl::StatusOr<v1::RebuildMetadataReply> RebuildMetadata(
      const v1::RebuildMetadataRequest& request);
  absl::StatusOr<v1::BackupMetadataReply> BackupMetadata();
  absl::StatusOr<v1::ListEventsReply> ListEvents(const v1::ListEventsRequest& request);
  absl::StatusOr<v1::ScheduleCheckpointsReply> ScheduleCheckpoints(
      const v1::ScheduleCheckpointsRequest& request);

 private:
  struct Grpc;
  std::unique_ptr<Grpc> grpc_;
};

}  // namespace hotbed

#endif  // HOTBED_CLI_BASE_COORDINATOR_STUB_H_
