// The steps of BuildProblem; planner/cost/problem.h has the rules. Thread-compatible; used once.
#ifndef HOTBED_PLANNER_COST_PROBLEM_BUILDER_H_
#define HOTBED_PLANNER_COST_PROBLEM_BUILDER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/cost/access_curve.h"
#include "planner/cost/problem.h"

namespace hotbed {

class ProblemBuilder {
 public:
  explicit ProblemBuilder(const PlannerInput& input);
  PlanResult<Problem> Build();

 private:
  // The heat of a table before it is cut.
  struct TableHeat {
    std::vector<Stratum> strata;
    std::vector<double> unique;
    double unique_sum = 0;
  };
  // The units that one table's shards become.
  struct UnitRange {
    uint32_t shard_first;
    uint32_t shard_limit;
    uint32_t host_group;
  };

  void AddServers();
  std::optional<PlanError> AddTables();
  void MeasureTable(uint32_t table);
  double SliceNs(uint32_t table, uint32_t columns) const;
  void CutTable(uint32_t table, double fair_ns);
  std::vector<PieceRange> CutSlice(uint32_t table, const PieceRange& slice, uint64_t count,
                                   double fair_ns) const;
  std::vector<PieceRange> CutSlices(uint32_t table, double fair_ns) const;
  std::vector<PieceRange> CutSlicesAlike(uint32_t table, double fair_ns) const;
  std::vector<PieceRange> CurrentRanges(uint32_t table) const;
  void MeasureShard(uint32_t table, ProblemShard& shard) const;
  bool KeepsReplicas(uint32_t table) const;
  std::vector<uint32_t> ReplicasByShard(uint32_t table) const;
  std::vector<UnitRange> GroupShards(uint32_t table);
  std::optional<PlanError> AddUnits(uint32_t table);
  std::optional<PlanError> AddReplicated(uint32_t table);
  void AddUnit(Unit unit, uint32_t members, double read_share);
  void AddHeat(Unit& unit, uint32_t members, double read_share);
  void AddMeasured(Unit& unit, uint32_t members, double read_share);
  void AddRows(uint32_t table, uint32_t columns, const RowCost& cost, uint64_t first,
               uint64_t limit, std::array<HeatEntry, kHeatClasses>& classes) const;
  std::optional<PlanError> AllowedFor(uint32_t table, uint32_t& primary, uint32_t& replicas);
  uint32_t AllowedIndex(const std::vector<uint32_t>& servers);
  uint32_t HostsOf(const AllowedServers& allowed) const;
  uint32_t ReplicatedPrimary(uint32_t table, const AllowedServers& allowed);
  std::optional<PlanError> CheckTotal() const;
  void ScaleTicks();

  const PlannerInput& input_;
  const CostModel model_;
  std::vector<const TableConstraint*> constraints_;  // by table; null: none
  std::vector<const PlacedTable*> current_;          // by table; null: new
  std::vector<TableHeat> table_heat_;
  std::map<std::vector<uint32_t>, uint32_t> allowed_index_;
  std::vector<Unit> shared_heat_;  // of the last hashed table
  std::vector<double> unit_ns_;
  std::vector<double> load_ns_;
  double extra_ns_ = 0;  // upper bound of what spilling can add
  uint32_t host_groups_ = 0;
  uint32_t next_replicated_ = 0;
  uint32_t all_hosts_ = 0;  // of usable servers; 0: not counted yet
  Problem problem_;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_COST_PROBLEM_BUILDER_H_
