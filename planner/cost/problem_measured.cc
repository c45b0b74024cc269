// ProblemBuilder's part for live clusters: the measured rates of shards, and replicas as they are.
#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "planner/cost/problem_builder.h"

namespace hotbed {

// Its part of the range that was measured, which may have been cut since.
void ProblemBuilder::MeasureShard(uint32_t table, ProblemShard& shard) const {
  const std::vector<MeasuredRange>& measured = input_.tables[table].measured;
  const auto place = [](uint32_t column, uint64_t row) { return std::pair(column, row); };
  auto it = std::upper_bound(measured.begin(), measured.end(),
                             place(shard.range.column_first, shard.range.row_first),
                             [&](const auto& at, const MeasuredRange& m) {
                               return at < place(m.column_first, m.row_first);
                             });
  if (it == measured.begin()) return;
  const auto next = it--;
  if (it->column_first != shard.range.column_first) return;
  const bool last = next == measured.end() || next->column_first != it->column_first;
  const uint64_t limit = last ? TableUnits(input_.tables[table]) : next->row_first;
  const double part = static_cast<double>(shard.range.row_limit - shard.range.row_first) /
                      static_cast<double>(limit - it->row_first);
  const double bytes = static_cast<double>(it->bytes) * part;
  shard.bytes = std::max(shard.bytes, static_cast<uint64_t>(bytes));
  if (it->reads < 0) return;
  const double rows = std::max(it->reads, it->updates);
  shard.unique = rows * part;
  shard.reads = rows > 0 ? it->reads / rows : 0;
  shard.updates = rows > 0 ? it->updates / rows : 0;
}

bool ProblemBuilder::KeepsReplicas(uint32_t table) const {
  return input_.options.replicas_as_they_are && current_[table] != nullptr;
}

// For a table that keeps its present number of replicas.
std::vector<uint32_t> ProblemBuilder::ReplicasByShard(uint32_t table) const {
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> holders;
  for (const PlacedRange& range : current_[table]->ranges) {
    if (range.role == Role::kReplica) continue;
    ++holders[{range.column_first, range.row_first}];
  }
  std::vector<uint32_t> replicas;
  const ProblemTable& t = problem_.tables[table];
  for (uint32_t s = t.shard_first; s < t.shard_limit; ++s) {
    const PieceRange& range = problem_.shards[s].range;
    auto it = holders.upper_bound({range.column_first, range.row_first});
    replicas.push_back(it == holders.begin() ? 1 : std::prev(it)->second);
  }
  return replicas;
}

// Which rows of a shard are the frequent ones is not measured: they count as all alike.
void ProblemBuilder::AddMeasured(Unit& unit, uint32_t members, double read_share) {
  std::array<HeatEntry, kHeatClasses> classes{};
  for (uint32_t s = unit.shard_first; s < unit.shard_limit; ++s) {
    const ProblemShard& shard = problem_.shards[s];
    if (shard.bytes == 0) continue;
    const RowCost cost = model_.Row(input_.tables[unit.table], shard.range.columns(), unit.role,
                                    members, read_share * shard.reads, shard.updates);
    const double unique = shard.unique * model_.trainers();
    const double bytes = static_cast<double>(shard.bytes);
    HeatEntry& entry = classes[HeatClass(unique * cost.spill_extra / bytes)];
    entry.bytes += bytes;
    entry.host_extra += unique * cost.host_extra;
    entry.spill_extra += unique * cost.spill_extra;
  }
  unit.heat_first = static_cast<uint32_t>(problem_.heat.size());
  for (uint32_t c = 0; c < kHeatClasses; ++c) {
    if (classes[c].bytes == 0) continue;
    classes[c].heat = c;
    problem_.heat.push_back(classes[c]);
  }
  unit.heat_limit = static_cast<uint32_t>(problem_.heat.size());
}

}  // namespace hotbed
