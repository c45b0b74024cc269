// A cluster as the planner's problem, and the planner's answer as a cluster's shards. What the
// coordinator places with and what `hotbed plan` shows of a live cluster is made here. Pure; safe
// from any thread.
#ifndef HOTBED_PLANNER_CLUSTER_PROBLEM_H_
#define HOTBED_PLANNER_CLUSTER_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/shard_record.h"
#include "common/table_spec.h"
#include "planner/model/plan.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// What a server says of one copy that it holds. The counters are those of its process.
struct CopyLoad {
  ShardId shard;
  uint64_t rows_pulled_total = 0;
  uint64_t rows_pushed_total = 0;
  uint64_t bytes = 0;  // of weights and state, in all tiers
};

struct ClusterServer {
  ServerId id = 0;
  std::string name;
  uint64_t host_bytes = 0;
  uint64_t spill_bytes = 0;    // 0: as much as its disk has, which nobody counts
  bool usable = true;          // may take shards that it does not have
  bool draining = false;       // is to be emptied
  bool reachable = true;       // else what it has can only stay with it
  std::string failure_domain;  // empty: its own, which no other server is in
  Incarnation incarnation = 0;
  uint64_t bytes_held = 0;       // as it says, of all copies; 0: it has not said
  std::vector<CopyLoad> copies;  // the busiest of those that it holds, or all
  uint64_t rows_pulled_total = 0;
  uint64_t rows_pushed_total = 0;
};

struct ClusterShard {
  ShardRange range;
  ServerId primary = 0;
  std::vector<ServerId> backups;
  // Known from its copies, else 0: bytes held for one, and rows pulled and pushed a second (any
  // other unit of time does, if it is that of all shards).
  uint64_t bytes = 0;
  double rows_pulled = 0;
  double rows_pushed = 0;
};

// `shards` in the order of their indices; none of a table that is to be placed.
struct ClusterTable {
  TableSpec spec;
  std::vector<ClusterShard> shards;
};

struct ClusterView {
  std::vector<ClusterServer> servers;
  std::vector<ClusterTable> tables;
};

// The problem under strategy `cost`, servers and tables in the view's order, with the live plan as
// `current` if there is any. Servers are called by their names, or name#id where two have the same;
// their hosts are the failure domains, so that no two copies of a shard share one. A server that is
// neither usable nor draining nor unreachable (a read-only one) keeps what it has and gets nothing.
// Tables are cut by rows, and by columns into as many slices as they say. New tables may go to the
// usable servers. Where any shard's load is known, shards cost what they were measured to, and
// new tables as much as the others in the mean; else every table has 512 evenly spread ids a step.
// Read copies of `data_parallel` tables take room on every server, and are otherwise no part of the
// problem.
PlannerInput ClusterProblem(const ClusterView& view);

// Gives each shard the bytes that its copies were said to hold (the most of them).
void TakeMeasuredBytes(ClusterView* view);

// What the view's placement is, without costs: as ClusterProblem(view).current.
PlannerOutput LivePlan(const ClusterView& view);

// The placement in force as a plan like any other: with bytes and, where the cost model can say
// them, times. `problem` is ClusterProblem's; nothing moves.
PlannerOutput LivePlanOf(PlannerInput problem);

// Places the view's tables without shards, together; nothing that is there moves. Their shards, by
// table in the view's order, each with its primary and, in the order of their servers, backups.
// FailedPrecondition: no server is usable, or nothing fits; the message names table, limit and
// missing bytes.
absl::StatusOr<Plan> PlaceNewTables(const ClusterView& view);

// `error` as a status for people: FailedPrecondition, or InvalidArgument of kind input.
absl::Status ToStatus(const PlanError& error);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_CLUSTER_PROBLEM_H_
