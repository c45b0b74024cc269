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
#include "planner/plan.h"
#include "planner/plan_error.h"
#include "planner/planner_input.h"
#include "planner/planner_output.h"

namespace hotbed {

struct ClusterServer {
  ServerId id = 0;
  std::string name;
  uint64_t host_bytes = 0;
  uint64_t spill_bytes = 0;  // 0: as much as its disk has, which nobody counts
  bool usable = true;        // may take shards that it does not have
  bool draining = false;     // is to be emptied
  bool reachable = true;     // else what it has can only stay with it
};

struct ClusterShard {
  ShardRange range;
  ServerId primary = 0;
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
// `current` if there is any. Servers are called by their names, or name#id where two have the same.
// Tables are cut by rows, and by columns into as many slices as they say. New tables may go to the
// usable servers.
PlannerInput ClusterProblem(const ClusterView& view);

// What the view's placement is, without costs: as ClusterProblem(view).current.
PlannerOutput LivePlan(const ClusterView& view);

// The placement in force as a plan like any other: with bytes and, where the cost model can say
// them, times. `problem` is ClusterProblem's; nothing moves.
PlannerOutput LivePlanOf(PlannerInput problem);

// Places the view's tables without shards, together; nothing that is there moves. Their shards, by
// table in the view's order, each with its primary. FailedPrecondition: no server is usable, or
// nothing fits; the message names table, limit and missing bytes.
absl::StatusOr<Plan> PlaceNewTables(const ClusterView& view);

// `error` as a status for people: FailedPrecondition, or InvalidArgument of kind input.
absl::Status ToStatus(const PlanError& error);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_CLUSTER_PROBLEM_H_
