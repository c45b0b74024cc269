// The operations of the coordinator; see operation.h for how they run. Each factory takes what was
// asked for and gives the whole of its rules; what may go wrong is told as the reply's status.
#ifndef HOTBED_PLANNER_COORDINATOR_OPERATIONS_OPERATIONS_H_
#define HOTBED_PLANNER_COORDINATOR_OPERATIONS_OPERATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "planner/coordinator/balance/rebalance_policy.h"
#include "planner/coordinator/state/leases.h"
#include "planner/coordinator/state/operation.h"
#include "planner/model/placement.h"
#include "proto/control.pb.h"

namespace hotbed {

// Beside the counter and an event.
inline constexpr size_t kGoalsPerTxn = kRecordsPerTxn - 8;
// Each is two records, itself and its name.
inline constexpr int kTablesPerTxn = kRecordsPerTxn / 2;

struct ClusterLimits {
  uint64_t tables_max = 65536;
  uint64_t shards_max = 1 << 20;
  uint64_t servers_max = 4096;
  uint64_t sessions_max = 1 << 20;
  uint64_t dropped_max = 1024;       // names of dropped tables that are remembered
  uint64_t activations_max = 65536;  // shards in one request
  uint64_t moves_max = 65536;        // shards in one request
};

// --- bootstrap_operations.cc

// Run after each reading of the store. Takes or confirms the leadership: writes `token` as the
// leader, and in an empty store the cluster id and the format. FailedPrecondition when the store
// has another format.
std::unique_ptr<Operation> MakeBootstrap(std::string token, std::string new_cluster_id);

// Deletes shard records without a table: what a creation or a drop that was cut short left behind.
std::unique_ptr<Operation> MakeCleanup();

// --- table_operations.cc

// Tables that one plan places together. All are valid, new (or there already and equal, with
// if_not_exists) and have a place, or nothing is written. Writes the id counter and the shards,
// then the tables and their names, kTablesPerTxn in a transaction: until then nothing is visible.
// Cut short before the first of those it leaves nothing; cut short between two of them, the tables
// that the earlier ones named, whole. `live` tells which servers may take shards now.
//   InvalidArgument    the spec names field, value and range; more shards asked for than may be;
//                      no tables; a name that stands twice
//   AlreadyExists      the name is taken, by a table that differs in the named field or without
//                      if_not_exists
//   FailedPrecondition no shard server is live, or the tables fit nowhere
//   ResourceExhausted  too many tables or shards in the cluster
std::unique_ptr<Operation> MakeCreateTables(v1::CreateTablesRequest request, ClusterLimits limits,
                                            std::function<bool(ServerId)> live);
// The case of one; the same errors, and its own reply.
std::unique_ptr<Operation> MakeCreateTable(v1::CreateTableRequest request, ClusterLimits limits,
                                           std::function<bool(ServerId)> live);

// Deletes the table and its name in one transaction and remembers that its id was dropped; its
// shards go with the next cleanup. NotFound names the table.
std::unique_ptr<Operation> MakeDropTable(v1::DropTableRequest request, ClusterLimits limits);

// --- alter_operations.cc

// One more change of a table's options, of a step on (common/table_spec.h: AddTableChange). One
// transaction; the table's record is as it was read, else it begins again.
//   NotFound         names the table
//   InvalidArgument  names the field, its value and what is allowed
std::unique_ptr<Operation> MakeAlterTable(v1::AlterTableRequest request);

// --- server_operations.cc

// A server process that starts: gives it an id (if its data directory is new) and the next
// incarnation. Before the answer Membership has handed it all shards that its data directory alone
// holds; where others are members it is a newcomer. `live` tells whether a server's lease holds.
// The reply lacks the lease's times: the core adds them.
//   InvalidArgument    name or address missing or malformed
//   FailedPrecondition its data directory belongs to another cluster, or names a server that this
//   cluster does not know AlreadyExists      the name belongs to another server
std::unique_ptr<Operation> MakeRegisterServer(v1::RegisterServerRequest request,
                                              ClusterLimits limits,
                                              std::function<bool(ServerId)> live, int64_t unix_ms);

// The lease of this process of the server ended, for the reason `why`: shows it as down. What
// becomes of its shards is Membership's.
std::unique_ptr<Operation> MakeMarkDown(ServerId server, Incarnation incarnation, std::string why,
                                        int64_t unix_ms);

// active=true, base=members for each shard that is at the epoch named and has the caller as its
// primary. Never fails for a shard that is not: the records in the reply tell.
std::unique_ptr<Operation> MakeActivateShards(v1::ActivateShardsRequest request,
                                              ClusterLimits limits);

// --- membership_operations.cc

// One transaction of Membership, if it has one: `next_batch` gives it.
std::unique_ptr<Operation> MakeMembershipStep(
    std::function<std::optional<Transaction>(const ClusterState&)> next_batch);

// --- move_operations.cc

// What is asked of moves looks at who is alive, as of the moment that it is carried out.
struct MoveContext {
  const Leases* leases = nullptr;
  int64_t unix_ms = 0;
};

// Goals for shards: each in the place of one of its copies gets one on another server, or, where
// that one holds a copy already, its backup as primary. All of them are allowed, or none is
// written; kGoalsPerTxn in a transaction.
//   InvalidArgument     no moves, too many, or a shard that stands twice
//   NotFound            the shard or a server does not exist
//   AlreadyExists       the shard is where it is wanted
//   FailedPrecondition  the shard is moving already, `from` holds no copy of it, the target cannot
//                       take copies (MayTakeReplicas) or shares a failure domain with another copy
std::unique_ptr<Operation> MakeMoveShards(v1::MoveShardsRequest request, ClusterLimits limits,
                                          MoveContext context);

// Marks the server as draining: its shards are given goals then (membership.h). Undo: takes the
// mark away, and the goals that it made of which no copy has joined.
//   NotFound            no such server
//   FailedPrecondition  no other server may take copies, or one of its shards fits nowhere
std::unique_ptr<Operation> MakeDrainServer(v1::DrainServerRequest request, MoveContext context);

// Pause, resume, abort, the dial, the guard, rebalancing on and off. InvalidArgument: an action of
// a later version.
std::unique_ptr<Operation> MakeControlMoves(v1::ControlMovesRequest request, MoveContext context);

// --- rebalance_operations.cc

// The goals of a wave, as far as they still fit.
std::unique_ptr<Operation> MakeRebalance(RebalanceWave wave, MoveContext context);

// --- session_operations.cc

// The session of that name, at its next incarnation.
std::unique_ptr<Operation> MakeOpenSession(v1::OpenSessionRequest request, ClusterLimits limits);

// --- group_operations.cc

// Makes `commit` the last one of its group, unless the store has one of the same or a later step.
std::unique_ptr<Operation> MakeGroupCommit(v1::GroupCommit commit);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COORDINATOR_OPERATIONS_OPERATIONS_H_
