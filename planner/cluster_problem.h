// A cluster as the planner's problem, and the planner's output as a cluster's shards. The
// coordinator places with it, and `hotbed plan` shows a live cluster with it. Pure; safe from any
// thread.
#ifndef HOTBED_PLANNER_CLUSTER_PROBLEM_H_
#define HOTBED_PLANNER_CLUSTER_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "planner/model/placement.h"
#include "planner/model/plan.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// A server's report about one replica that it holds. The counters are those of its process.
struct ReplicaLoad {
  ShardId shard;
  uint64_t rows_pulled_total = 0;
  uint64_t rows_pushed_total = 0;
  uint64_t bytes = 0;  // of weights and state, in all tiers
};

struct ClusterServer {
  ServerId id = 0;
  std::string name;
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
  std::optional<uint64_t> free_bytes;  // reported: on its disk for further rows
  uint64_t spill_bytes = 0;            // for rows beyond its memory; 0: unknown
  bool usable = true;                  // may take further shards
  bool draining = false;               // is to be emptied
  bool reachable = true;               // if not, its shards can only stay on it
  std::string failure_domain;          // empty: a domain of its own
  Incarnation incarnation = 0;
  std::vector<ReplicaLoad> replicas;  // the busiest of its replicas, or all
  uint64_t rows_pulled_total = 0;
  uint64_t rows_pushed_total = 0;
  // Weights and optimizer state of shards here whose tables the view leaves out, and the part of
  // them whose primary is here.
  uint64_t other_bytes = 0;
  uint64_t other_primary_bytes = 0;
};

struct ClusterShard {
  ShardRange range;
  ServerId primary = 0;
  std::vector<ServerId> backups;
  // Known from its replicas, else 0: bytes of one replica, and rows pulled and pushed per second
  // (or per another unit of time, if all shards have the same).
  uint64_t bytes = 0;
  double rows_pulled = 0;
  double rows_pushed = 0;
  // The shard's index in its table; kByPlace: its place in ClusterTable::shards.
  static constexpr uint32_t kByPlace = ~0u;
  uint32_t index = kByPlace;
  size_t lanes = 1;  // it was merged from
};

// `shards` are in the order of columns, then rows; empty for a table that is to be placed. A table
// begins with its shards in the order of their indexes, and keeps it until one of them is cut.
struct ClusterTable {
  TableSpec spec;
  std::vector<ClusterShard> shards;

  ShardId IdOf(uint32_t place) const {
    const uint32_t index = shards[place].index;
    return {spec.id, index == ClusterShard::kByPlace ? place : index};
  }
  // The place of a shard that is in the table.
  uint32_t PlaceOf(ShardId shard) const;
};

void SortByPosition(std::vector<ClusterShard>* shards);

struct ClusterView {
  std::vector<ClusterServer> servers;
  std::vector<ClusterTable> tables;
};

// The usable servers, with the bytes that the view's tables and others have on them.
std::vector<ServerCandidate> Candidates(const ClusterView& view);
// Counts the bytes of further tables.
void AddBytes(absl::Span<const ClusterTable> tables, std::vector<ServerCandidate>* servers);

// The problem under strategy `cost`, servers and tables in the view's order, with the live plan as
// `current` if there is one. Servers have their names, or name#id if two have the same name. Their
// hosts are the failure domains, so that no two replicas of a shard share one. A server that is
// neither usable nor draining nor unreachable (a read-only one) keeps its shards and gets no
// others. Tables are cut by rows, and by columns into their number of slices. New tables may go to
// the usable servers. If the load of any shard is known, shards cost their measured load, and new
// tables the mean of the others; otherwise every table has 512 evenly spread ids per step. Read
// replicas of `data_parallel` tables take room on every server, and are otherwise not part of the
// problem.
PlannerInput ClusterProblem(const ClusterView& view);

// Sets the bytes of each shard to the most that any of its replicas reported.
void TakeMeasuredBytes(ClusterView* view);

// Sets the spill bytes of each server that reported the free bytes of its disk: it then has room
// for what the planner counts there now and for four fifths of the free bytes, the rest being for
// records' headers, files that are merged, and the log. If that is less than its host memory, the
// host memory counts as that much. Call it after TakeMeasuredBytes.
void TakeFreeBytes(ClusterView* view);

// The table as the planner sees it, without measurements.
InputTable PlannerTable(const TableSpec& spec);

// The view's placement without costs, equal to ClusterProblem(view).current.
PlannerOutput LivePlan(const ClusterView& view);

// The placement in force as a plan with bytes and, where the cost model knows them, times.
// `problem` is that of ClusterProblem; nothing moves.
PlannerOutput LivePlanOf(PlannerInput problem);

// Places the view's tables without shards, together; existing shards stay. Returns the new shards,
// by table in the view's order, each with its primary and then its backups in the order of their
// servers. FailedPrecondition: no server is usable, or a table does not fit; the message names
// table, limit and missing bytes.
absl::StatusOr<Plan> PlaceNewTables(const ClusterView& view);

// `error` as a status for people: InvalidArgument for kind input, else FailedPrecondition.
absl::Status ToStatus(const PlanError& error);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_CLUSTER_PROBLEM_H_
