// The operations of the coordinator; operation.h says how they run. Each factory takes a request
// and documents its rules; errors are the reply's status.
#ifndef HOTBED_PLANNER_COORDINATOR_OPERATIONS_OPERATIONS_H_
#define HOTBED_PLANNER_COORDINATOR_OPERATIONS_OPERATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "planner/coordinator/balance/rebalance_policy.h"
#include "planner/coordinator/membership/asked_cuts.h"
#include "planner/coordinator/membership/membership.h"
#include "planner/coordinator/serving/remembered_serving.h"
#include "planner/coordinator/serving/serving_servers.h"
#include "planner/coordinator/state/leases.h"
#include "planner/coordinator/state/operation.h"
#include "planner/coordinator/state/strangers.h"
#include "planner/model/placement.h"
#include "proto/control.pb.h"

namespace hotbed {

// Leaves room for the counter and an event.
inline constexpr size_t kGoalsPerTxn = kRecordsPerTxn - 8;
// Bounds the reason that is given with a move or a cut, and is stored with each shard's goal.
inline constexpr size_t kReasonBytesMax = 400;
// Each table is two records: the table and its name.
inline constexpr int kTablesPerTxn = kRecordsPerTxn / 2;

struct ClusterLimits {
  uint64_t tables_max = 65536;
  uint64_t shards_max = 1 << 20;
  uint64_t servers_max = 4096;
  uint64_t sessions_max = 1 << 20;
  uint64_t dropped_max = 1024;       // names of dropped tables to remember
  uint64_t activations_max = 65536;  // shards in one request
  uint64_t moves_max = 65536;        // shards in one request
};

// The facts that an operation gets besides the state.
struct OperationContext {
  ClusterLimits limits;
  const Leases* leases = nullptr;  // which servers are alive
  Membership* membership = nullptr;
  const RebalancePolicy* rebalance = nullptr;  // which loads were measured
  Strangers* strangers = nullptr;
  AskedCuts* cuts = nullptr;
  ServingServers* serving = nullptr;
  const RememberedServing* remembered = nullptr;
  int64_t now_ns = 0;   // when the operation was asked for
  int64_t unix_ms = 0;  // the same
};

// --- bootstrap_operations.cc

// Runs after each read of the store. Takes or confirms the leadership: writes `token` as the
// leader, and into an empty store the cluster id and the format. FailedPrecondition: the store has
// another format.
Operation MakeBootstrap(std::string token, std::string new_cluster_id);

// Deletes shard records without a table, left over from a creation or drop that was cut short.
Operation MakeCleanup();

// --- table_operations.cc

// The parts of a composed table, in their order; none: there is no such composed table.
std::vector<TableSpec> PartsOfComposed(const ClusterState& state, const std::string& name);
// Why no table of this name can be served: it is composed, or there is none.
absl::Status NoTableToServe(const ClusterState& state, const std::string& name);

// Creates tables that one plan places together. Nothing is written unless all of them are valid,
// new (or existing and equal, with if_not_exists) and have a place. Writes the id counter and the
// shards first, then the tables and their names, kTablesPerTxn per transaction; only the latter
// make tables visible. If it is cut short, each table exists whole or not at all; so do composed
// tables, whose parts follow each other in the request.
//
//   InvalidArgument    names field, value and range of a bad spec; too many shards asked for; no
//                      tables; a name given twice
//   AlreadyExists      the name is taken, by a table that differs in the named field, or
//                      if_not_exists is not set
//   FailedPrecondition no server is live, the tables fit nowhere, or a plan puts a shard where it
//                      cannot be
//   ResourceExhausted  too many tables or shards in the cluster
Operation MakeOperation(v1::CreateTablesRequest request, const OperationContext& context);
// Creates a single table, with the same errors and a reply of its own.
Operation MakeOperation(v1::CreateTableRequest request, const OperationContext& context);

// Deletes the table and its name in one transaction and remembers that its id was dropped; the next
// cleanup deletes its shards. NotFound names the table.
Operation MakeOperation(v1::DropTableRequest request, const OperationContext& context);

// --- alter_operations.cc

// Adds a change of the table's options that applies from a step on (AddTableChange in
// common/tables/table_spec.h), in one transaction.
//   NotFound         names the table
//   InvalidArgument  names the field, its value and what is allowed
Operation MakeOperation(v1::AlterTableRequest request, const OperationContext& context);

// --- server_operations.cc

// Registers a server process that starts: gives it an id (if its data directory is new) and the
// next incarnation. Before the reply, Membership has given it all shards of which only its data
// directory holds a replica; in shards with other members it is a newcomer. The
// reply lacks the times of the lease, which the core adds.
//
//   InvalidArgument    name or address missing or malformed
//   FailedPrecondition its data directory belongs to another cluster, or names a server that this
//                      cluster does not know
//   AlreadyExists      the name belongs to another server, or its data directory is a copy: another
//                      process uses the original, or has used it since. An event tells of a copy.
//   Unavailable        the process that registered for it last may still run; or it is a stranger
//                      (Strangers) to metadata that are empty, or were rebuilt without it
Operation MakeOperation(v1::RegisterServerRequest request, const OperationContext& context);

// Marks the server as down after the lease of this process ended, for the reason `why`. Membership
// decides about its shards.
Operation MakeMarkDown(ServerId server, Incarnation incarnation, std::string why, int64_t unix_ms);

// Sets active=true and base=members for each shard that is at the given epoch and has the caller as
// its primary. Other shards are no error: the reply has the records of all of them.
Operation MakeOperation(v1::ActivateShardsRequest request, const OperationContext& context);

// --- rebuild_operations.cc

// Adopts the servers that ask for a cluster whose metadata were lost (Strangers), and their tables,
// into empty metadata; or into rebuilt ones, for servers that were away then. Writes a fence for
// each shard: the record of a later epoch whose members are all servers that may have been members,
// none of them live. Membership then goes on with the fullest replica.
//
//   FailedPrecondition  the metadata are not empty; nobody asks, or servers of several clusters; a
//                       data directory is there twice; shards or replicas are missing, and
//                       without_missing is not set
//   AlreadyExists       another server has the name of one that asks
Operation MakeOperation(v1::RebuildMetadataRequest request, const OperationContext& context);

// --- choose_operations.cc

// Carries out a person's choice of a replica (Membership::Choose, with its errors).
Operation MakeOperation(v1::ChooseReplicaRequest request, const OperationContext& context);

// --- cut_operations.cc

// Asks the shard's server for a cut (AskedCuts), with the errors of PlanCut and AskedCuts::Ask.
Operation MakeOperation(v1::CutShardRequest request, const OperationContext& context);

// Cuts the shard, in one transaction, for its primary: both parts begin the next epoch with the
// members of the whole. Answered alike if it is cut there already. Any other error than
// FailedPrecondition, NotFound and InvalidArgument leaves open whether it is cut; these say that it
// is not, and that no earlier request of this kind will cut it.
// A refusal is an event too (cut_refused), but for one that comes of another epoch or primary: then
// the cut is asked for again.
Operation MakeOperation(v1::CommitCutRequest request, const OperationContext& context);

// Writes the event that a cut was given up (AskedCuts::Tick).
Operation MakeCutGivenUp(v1::ShardCut cut, const OperationContext& context);

// --- move_operations.cc

// Writes goals that replace one replica of each shard by one on another server or, if that server
// holds a replica already, make it the primary; or that name all members of a shard. Nothing is
// written unless all moves are allowed; kGoalsPerTxn per transaction.
//
//   InvalidArgument     no moves, too many, a shard or one of its servers given twice, or more
//                       servers than the table has replicas
//   NotFound            the shard or a server does not exist
//   AlreadyExists       the shard is where it is wanted
//   FailedPrecondition  the shard is moving already, `from` holds no replica of it, or the target
//                       cannot take one (MayTakeReplicas) or shares a failure domain with another
Operation MakeOperation(v1::MoveShardsRequest request, const OperationContext& context);

// Marks the server as draining; Membership then gives its shards goals. Undo removes the mark, and
// the drain's goals of which no replica has joined.
//
//   NotFound            no such server
//   FailedPrecondition  no other server may take replicas, or one of its shards fits nowhere
Operation MakeOperation(v1::DrainServerRequest request, const OperationContext& context);

// Pauses, resumes or aborts moves, sets the rate limit and the latency guard, or switches
// rebalancing on and off. InvalidArgument: an unknown action.
Operation MakeOperation(v1::ControlMovesRequest request, const OperationContext& context);

// --- schedule_operations.cc

// Sets, shows or ends the schedule of checkpoints. InvalidArgument names the field.
Operation MakeOperation(v1::ScheduleCheckpointsRequest request, const OperationContext& context);

// A save by the schedule, and the deletion of old checkpoints behind it.
struct ScheduledSave {
  enum class Stage : uint8_t { kBegins, kSaved, kPruned, kFolded };
  std::string place;
  int64_t begun_unix_ms = 0;
  Stage stage = Stage::kBegins;
  std::string checkpoint;  // its path; empty: there is none
  uint64_t pruned = 0;     // old ones that were deleted
  std::string error;       // of the stage
};
// Aborted: the schedule is another one by now, or another save has begun. Replies with the schedule
// as it is then.
Operation MakeOperation(ScheduledSave save, const OperationContext& context);
v1::ScheduleCheckpointsReply ShowSchedule(const ClusterState& state, int64_t unix_ms);

// --- rebalance_operations.cc

// Writes the goals of a wave that still fit the state.
Operation MakeRebalance(RebalanceWave wave, const OperationContext& context);

// --- session_operations.cc

// Opens the session of that name, at its next incarnation.
//
//   InvalidArgument    name missing or malformed
//   ResourceExhausted  too many names of sessions
//   Unavailable        the metadata are empty: they may be lost, with the numbers of sessions
Operation MakeOperation(v1::OpenSessionRequest request, const OperationContext& context);

// --- serving_operations.cc

// Begins or ends the serving of tables, all in one transaction. Adding a table that is served
// changes how many replicas it has and how old they may be.
//
//   InvalidArgument     no tables, too many, one twice; an unknown format; a number of replicas
//   NotFound            a table does not exist, or is not served
//   FailedPrecondition  a table is served in another format
Operation MakeOperation(v1::ServeTablesRequest request, const OperationContext& context);

// Writes what ServingServers::Changes says.
Operation MakePlaceServing(const OperationContext& context);

// --- version_operations.cc

// Makes a checkpoint of served tables a version, which is to be current unless another one is
// pinned. With the name and the folder of one that there is: that one.
//
//   InvalidArgument     name, model or folder malformed; no tables, too many, or one twice; no
//                       model is named, and the tables belong to several
//   NotFound            a table does not exist
//   AlreadyExists       there is a version of that name, of another folder
//   FailedPrecondition  a table is not served, or belongs to another model; or the current version
//                       of the model has one that is left out
//   ResourceExhausted   too many models
Operation MakeOperation(v1::PublishVersionRequest request, const OperationContext& context);

//   InvalidArgument     no model is named, and there are several
//   NotFound            there is no such version, or model
//   FailedPrecondition  there is none before the current one; or the current one would end
Operation MakeOperation(v1::ChooseVersionRequest request, const OperationContext& context);

// Whether a version that is to be current of its model is not, and every server that must have it
// has it.
bool FlipsVersion(const ClusterState& state, const ServingServers& servers, int64_t now_ns);
// Makes one such version current; its tables belong to no other model from then on.
Operation MakeFlipVersion(const OperationContext& context);

// --- group_operations.cc

// Makes `commit` the group's last commit, unless the store has one of the same or a later step.
Operation MakeGroupCommit(v1::GroupCommit commit);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_OPERATIONS_OPERATIONS_H_
