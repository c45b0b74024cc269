// The placement problem of the `cost` strategy as indices and integers: servers, shards, and units.
// A unit is a set of shards that are placed together. A plain value, immutable once built; safe
// from any thread.
//
// The units of a table depend on the shardings that its constraint allows (the first of these):
//   none given, row_wise   each shard
//   table_row_wise         each shard, all on one host
//   grid                   each shard of a column slice, a slice on one host
//   column_wise            each column slice
//   table_column_wise      each column slice, all on one host
//   table_wise             the table
//   data_parallel          the table: one primary, and a replica on every usable server outside of
//                          the primary's host; fixed, the search does not move them
// Without a constraint, a table of at most data_parallel_threshold elements is data_parallel, and
// one below row_slice_threshold elements is one unit. A table above column_slice_threshold is cut
// into the smallest power of two of column slices (at most servers, and dim / columns_min) that
// brings them to the threshold or under it, unless the table needs whole rows. With replicas > 1
// there are that many units of the same shards, on distinct hosts.
//
// The shards of a table in the current plan are its ranges refined (planner/model/refine.h), those
// of a new table come from planner/cost/heat_cut.h. For a cluster's table
// (TableConstraint::column_slices) the current ranges are the shards as they are, and the slices of
// a new one are all cut where the widest is. Pins bind primaries, and other replicas too if the
// pinned servers are on enough hosts. Ticks are integers of 2^-k ns, with the largest k up to 20 at
// which all of the problem's time stays below 2^60.
#ifndef HOTBED_PLANNER_COST_PROBLEM_H_
#define HOTBED_PLANNER_COST_PROBLEM_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/cost/cost_model.h"
#include "planner/cost/tier_load.h"
#include "planner/model/plan_error.h"
#include "planner/model/planner_input.h"
#include "planner/model/refine.h"

namespace hotbed {

constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();

struct ProblemServer {
  bool usable = true;     // neither draining nor unreachable
  TierCapacity capacity;  // after the input's reserve; device 0 without cuda
  int64_t load = 0;       // ticks
  uint32_t host = 0;
  uint32_t zone = 0;  // 0: unknown
};

struct ProblemShard {
  PieceRange range;
  uint64_t bytes = 0;
  double unique = 0;   // rows per step and trainer
  double reads = 1;    // fraction of them that is read
  double updates = 1;  // fraction of them that is updated
};

struct Unit {
  uint32_t table = 0;
  uint32_t shard_first = 0;
  uint32_t shard_limit = 0;
  Role role = Role::kPrimary;
  uint32_t group_first = 0;  // units of the same shards: the primary's, then the other replicas'
  uint32_t group_limit = 0;
  uint32_t allowed = 0;           // index into Problem::allowed
  uint32_t host_group = kNobody;  // units of one host group share a host
  bool fixed = false;             // on the one server of `allowed`
  uint64_t bytes = 0;
  int64_t ticks = 0;  // with all rows in the fastest memory
  uint32_t heat_first = 0;
  uint32_t heat_limit = 0;
  double heat_fraction = 1;  // of each entry
};

enum class TableMode : uint8_t {
  kRows,
  kRowsOnHost,
  kGrid,
  kColumns,
  kColumnsOnHost,
  kWhole,
  kDataParallel,
};

struct ProblemTable {
  TableMode mode = TableMode::kRows;
  bool constrained = false;  // the mode comes from a constraint
  uint32_t slices = 1;
  bool slices_fixed = false;  // cut at the same rows, and shards are never refined
  uint32_t shard_first = 0;
  uint32_t shard_limit = 0;
  uint32_t unit_first = 0;
  uint32_t unit_limit = 0;
  double reads = 0;  // ids per step and trainer
};

// The servers allowed to a unit: all usable ones, or these.
struct AllowedServers {
  bool all = true;
  std::vector<uint32_t> servers;  // ascending
  std::vector<bool> holds;        // by server
};

struct Problem {
  std::vector<ProblemServer> servers;
  std::vector<ProblemTable> tables;
  std::vector<ProblemShard> shards;
  std::vector<Unit> units;
  std::vector<HeatEntry> heat;
  std::vector<AllowedServers> allowed;  // [0] is all
  uint32_t usable = 0;
  bool device = false;  // there is device memory, which is faster than host memory
  double ticks_per_ns = 1;

  double Ms(int64_t ticks) const { return static_cast<double>(ticks) / ticks_per_ns / 1e6; }
  bool Allows(const Unit& unit, uint32_t server) const {
    const AllowedServers& set = allowed[unit.allowed];
    return servers[server].usable && (set.all || set.holds[server]);
  }
};

// Errors: strict_constraints if all servers drain, pins leave no server, replicas outnumber the
// hosts, or a table that needs whole rows may only be cut by columns; insufficient_storage if all
// tables together exceed all usable servers.
PlanResult<Problem> BuildProblem(const PlannerInput& input);

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_PROBLEM_H_
