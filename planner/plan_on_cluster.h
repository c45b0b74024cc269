// A plan of any strategy on a live cluster: the servers that each shard of its tables is to have,
// and the shards of a table that is created for it. Pure; safe from any thread.
//
// Tables and servers are known by their names (those of ClusterProblem: a server's name, or name#id
// where two have the same). A shard is placed as a whole, so a plan fits the shards of a table if
// each lies on one server. Shards of which a plan has parts on different servers are to be cut
// first, at rows; a plan that divides a shard by columns is refused. Where a plan
// has no backups, they are the cluster's to choose: those of a live shard stay, except that one
// gives its place to the former primary if it is on the new primary's server or in its failure
// domain. Replicas to read from are those of a data_parallel table, which has one on every server.
// Errors name the table and the shard or range.
#ifndef HOTBED_PLANNER_PLAN_ON_CLUSTER_H_
#define HOTBED_PLANNER_PLAN_ON_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "planner/cluster_problem.h"
#include "planner/model/plan.h"
#include "planner/model/planner_output.h"

namespace hotbed {

// The members wanted of a shard, the primary first.
struct WantedShard {
  ShardId shard;
  std::vector<ServerId> servers;
  std::string reason;
};

// Members of a shard, the primary first.
std::vector<ServerId> HoldersOf(const ClusterShard& shard);

// The view as it will be once the goals are reached.
ClusterView After(ClusterView view, const std::vector<WantedShard>& goals);

// A shard that is to be cut, at each of these rows or buckets, the highest first: it keeps its
// number and the lowest part.
struct WantedCut {
  ShardId shard;
  std::vector<uint64_t> at;
};

// The cuts that the shards of the plan's tables need before it fits them (WantedByPlan), by table
// and place. The errors of WantedByPlan.
absl::StatusOr<std::vector<WantedCut>> CutsByPlan(const ClusterView& view,
                                                  const PlannerOutput& plan);

// The view as it will be once the cuts are made; the new shards have the next numbers of the table.
ClusterView AfterCuts(ClusterView view, const std::vector<WantedCut>& cuts);

// Two neighbours that are to be merged: the lower one keeps its number.
struct WantedMerge {
  ShardId lower;
  ShardId upper;
  uint64_t at = 0;  // where they meet
};

// The merges after which the plan's tables have no more shards than if they were created by the
// plan, as far as their shards can be merged: neighbours with the same members in one range of the
// plan, at most kShardBytesMax together, the smallest first. To be made in this order, of a view
// that is as the plan has it. None for tables whose shards are never merged: synchronous ones,
// copied ones and those with column slices. The errors of WantedByPlan.
absl::StatusOr<std::vector<WantedMerge>> MergesByPlan(const ClusterView& view,
                                                      const PlannerOutput& plan);

// The shards whose primary or members are not those of `plan`, by the plan's tables and by index.
// Tables that the plan lacks stay as they are.
//   NotFound            the cluster lacks a table, or a server that the plan gives a range
//   FailedPrecondition  the ranges of a table do not tile it, cut one of its shards, or have more
//                       replicas than it; replicas to read from, of a table that has none
absl::StatusOr<std::vector<WantedShard>> WantedByPlan(const ClusterView& view,
                                                      const PlannerOutput& plan,
                                                      const std::string& reason);

// For reports: the goals as moves between servers, in their order. Goals that only switch roles are
// none.
std::vector<PlannedMove> MovesOf(const ClusterView& view, const std::vector<WantedShard>& goals);

// A shard of a table that is to be created.
struct NewShard {
  ShardRange range;
  std::vector<ServerId> servers;  // the primary first
};
struct TableToCreate {
  TableSpec spec;
  std::vector<NewShard> shards;  // slice by slice, in position order
};

// `spec` with its shards as `plan` has the table of this name: its ranges, cut further where the
// limits of shards ask for it (planner/model/refine.h), all column slices at the same rows. The
// spec gets the fewest column slices whose edges include the plan's, unless it names a number, and
// becomes data_parallel if the plan has read replicas. The errors of WantedByPlan, those of
// ValidateTableSpec for the new spec, and InvalidArgument if there would be too many shards.
absl::StatusOr<TableToCreate> CutAsPlanned(const ClusterView& view, const TableSpec& spec,
                                           const PlannerOutput& plan);

// The shards of a new table where they are asked to be, with backups chosen if there are none.
//   InvalidArgument     the shards do not tile the table slice by slice; too many; a shard without
//                       a server, or with one twice
//   NotFound            no such server
//   FailedPrecondition  a server may not take shards; not as many replicas as the table has; two of
//                       them share a failure domain, or there are too few domains
absl::StatusOr<Plan> PlaceAsAsked(const ClusterView& view, const TableToCreate& table);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_PLAN_ON_CLUSTER_H_
