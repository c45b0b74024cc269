#include "planner/cost/problem_builder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/cost/heat_cut.h"
#include "planner/cost/table_mode.h"
#include "planner/model/cost_constants.h"
#include "planner/model/placement.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

uint64_t AfterReserve(uint64_t bytes, const Reserve& reserve) {
  if (reserve.kind == ReserveKind::kNone) return bytes;
  const double kept = std::clamp(1 - reserve.fraction, 0.0, 1.0);
  const double rest = std::floor(static_cast<double>(bytes) * kept);
  return std::min(bytes, static_cast<uint64_t>(rest));
}

}  // namespace

ProblemBuilder::ProblemBuilder(const PlannerInput& input)
    : input_(input),
      model_(input),
      constraints_(input.tables.size(), nullptr),
      current_(input.tables.size(), nullptr),
      table_heat_(input.tables.size()) {
  for (const TableConstraint& c : input.options.constraints) constraints_[c.table] = &c;
  if (!input.current.has_value()) return;
  std::unordered_map<std::string, const PlacedTable*> by_name;
  for (const PlacedTable& table : input.current->tables) by_name.emplace(table.name, &table);
  for (size_t t = 0; t < input.tables.size(); ++t) {
    const auto it = by_name.find(input.tables[t].name);
    if (it != by_name.end()) current_[t] = it->second;
  }
}

void ProblemBuilder::AddServers() {
  std::map<std::string, uint32_t> hosts;
  std::map<std::string, uint32_t> zones;
  for (const InputServer& server : input_.topology.servers) {
    ProblemServer out;
    out.usable = !server.draining && !server.unreachable;
    const bool device = input_.topology.device == PlannerDevice::kCuda;
    out.capacity.device = device ? AfterReserve(server.device_bytes, input_.options.reserve) : 0;
    out.capacity.host = AfterReserve(server.host_bytes, input_.options.reserve);
    out.capacity.spill = server.spill_bytes;
    out.host = hosts.emplace(server.host, static_cast<uint32_t>(hosts.size())).first->second;
    if (!server.zone.empty()) {
      out.zone = zones.emplace(server.zone, static_cast<uint32_t>(zones.size()) + 1).first->second;
    }
    problem_.usable += out.usable ? 1 : 0;
    load_ns_.push_back(std::clamp(server.load, 0.0, 1e12) * kNsPerMs);
    problem_.servers.push_back(out);
  }
  problem_.allowed.emplace_back();
}

void ProblemBuilder::MeasureTable(uint32_t table) {
  TableHeat& heat = table_heat_[table];
  heat.strata = AccessStrata(input_.tables[table]);
  heat.unique = UniqueByStratum(heat.strata, problem_.tables[table].reads);
  for (const double u : heat.unique) heat.unique_sum += u;
}

double ProblemBuilder::SliceNs(uint32_t table, uint32_t columns) const {
  const InputTable& t = input_.tables[table];
  return model_.Row(t, columns, Role::kPrimary, t.replicas, 1).Hot() * model_.trainers() *
         table_heat_[table].unique_sum;
}

std::optional<PlanError> ProblemBuilder::AddTables() {
  const std::vector<double> reads = AllReadsPerStep(input_);
  double total_ns = 0;
  for (uint32_t t = 0; t < input_.tables.size(); ++t) {
    PlanResult<ModeChoice> choice =
        ChooseMode(input_.tables[t], constraints_[t], input_.options, problem_.usable);
    if (!choice.ok()) return choice.error();
    ProblemTable table;
    table.mode = choice.value().mode;
    table.constrained = choice.value().constrained;
    table.slices = choice.value().slices;
    table.slices_fixed = choice.value().slices_fixed;
    table.reads = reads[t];
    problem_.tables.push_back(table);
    MeasureTable(t);
    total_ns += SliceNs(t, input_.tables[t].dim);
  }
  for (uint32_t t = 0; t < input_.tables.size(); ++t) {
    CutTable(t, total_ns / problem_.usable);
    const bool replicated = problem_.tables[t].mode == TableMode::kDataParallel;
    std::optional<PlanError> error = replicated ? AddReplicated(t) : AddUnits(t);
    if (error.has_value()) return error;
  }
  return std::nullopt;
}

std::vector<PieceRange> ProblemBuilder::CurrentRanges(uint32_t table) const {
  std::vector<PieceRange> ranges;
  for (const PlacedRange& range : current_[table]->ranges) {
    if (range.role != Role::kPrimary) continue;
    ranges.push_back({range.row_first, range.row_limit, range.column_first, range.column_limit});
  }
  std::sort(ranges.begin(), ranges.end(), [](const PieceRange& a, const PieceRange& b) {
    return std::tie(a.column_first, a.row_first) < std::tie(b.column_first, b.row_first);
  });
  return ranges;
}

std::vector<PieceRange> ProblemBuilder::CutSlice(uint32_t table, const PieceRange& slice,
                                                 uint64_t count, double fair_ns) const {
  const TableMode mode = problem_.tables[table].mode;
  const bool spread =
      mode == TableMode::kRows || mode == TableMode::kRowsOnHost || mode == TableMode::kGrid;
  if (spread && fair_ns > 0) {
    const TableHeat& heat = table_heat_[table];
    return CutByHeat(input_.tables[table], heat.strata, heat.unique, slice, count,
                     SliceNs(table, slice.columns()) / fair_ns);
  }
  std::vector<PieceRange> shards;
  CutEvenly(slice, count, shards);
  return shards;
}

std::vector<PieceRange> ProblemBuilder::CutSlices(uint32_t table, double fair_ns) const {
  const InputTable& t = input_.tables[table];
  std::vector<PieceRange> slices;
  for (uint32_t i = 0; i < problem_.tables[table].slices; ++i) {
    const ColumnRange columns = SliceColumns(t.dim, problem_.tables[table].slices, i);
    slices.push_back({0, TableUnits(t), columns.first, columns.limit});
  }
  const std::vector<uint64_t> counts = ShardCounts(t, slices);
  std::vector<PieceRange> shards;
  for (size_t i = 0; i < slices.size(); ++i) {
    const std::vector<PieceRange> cut = CutSlice(table, slices[i], counts[i], fair_ns);
    shards.insert(shards.end(), cut.begin(), cut.end());
  }
  return shards;
}

// The first slice is the widest: where it is cut, all are.
std::vector<PieceRange> ProblemBuilder::CutSlicesAlike(uint32_t table, double fair_ns) const {
  const InputTable& t = input_.tables[table];
  const uint64_t slices = problem_.tables[table].slices;
  const ColumnRange widest = SliceColumns(t.dim, problem_.tables[table].slices, 0);
  const PieceRange slice{0, TableUnits(t), widest.first, widest.limit};
  const uint64_t at_most = kShardsPerTableMax / slices;
  const uint64_t of_table = ShardCounts(t, {{0, TableUnits(t), 0, t.dim}})[0];
  const uint64_t by_bytes = ShardCountByBytes(t, slice);
  const uint64_t count =
      std::min({std::max((of_table + slices - 1) / slices, by_bytes), at_most, TableUnits(t)});
  std::vector<PieceRange> first = CutSlice(table, slice, count, fair_ns);
  if (first.size() > at_most) {
    first.clear();
    CutEvenly(slice, at_most, first);
  }
  std::vector<PieceRange> shards;
  for (uint32_t i = 0; i < slices; ++i) {
    const ColumnRange columns = SliceColumns(t.dim, problem_.tables[table].slices, i);
    for (const PieceRange& range : first) {
      shards.push_back({range.row_first, range.row_limit, columns.first, columns.limit});
    }
  }
  return shards;
}

void ProblemBuilder::CutTable(uint32_t table, double fair_ns) {
  const InputTable& t = input_.tables[table];
  ProblemTable& out = problem_.tables[table];
  const TableHeat& heat = table_heat_[table];
  std::vector<PieceRange> shards = current_[table] != nullptr ? CurrentRanges(table)
                                   : out.slices > 1 && out.slices_fixed
                                       ? CutSlicesAlike(table, fair_ns)
                                       : CutSlices(table, fair_ns);
  // The next plan must read the same ranges that this plan lists.
  if (out.slices == 1 || !out.slices_fixed) shards = RefineRanges(t, shards);
  out.shard_first = static_cast<uint32_t>(problem_.shards.size());
  for (const PieceRange& range : shards) {
    ProblemShard shard;
    shard.range = range;
    shard.bytes = RangeBytesOf(t, range.row_first, range.row_limit, RowBytes(t, range.columns()));
    shard.unique = t.hashed
                       ? heat.unique_sum * static_cast<double>(range.row_limit - range.row_first) /
                             static_cast<double>(kHashBuckets)
                       : UniqueInRows(heat.strata, heat.unique, range.row_first, range.row_limit);
    if (!t.measured.empty()) MeasureShard(table, shard);
    problem_.shards.push_back(shard);
  }
  out.shard_limit = static_cast<uint32_t>(problem_.shards.size());
}

std::vector<ProblemBuilder::UnitRange> ProblemBuilder::GroupShards(uint32_t table) {
  const ProblemTable& t = problem_.tables[table];
  std::vector<UnitRange> units;
  if (t.mode == TableMode::kWhole || t.mode == TableMode::kDataParallel) {
    return {{t.shard_first, t.shard_limit, kNobody}};
  }
  const bool by_slice = t.mode == TableMode::kColumns || t.mode == TableMode::kColumnsOnHost;
  const bool one_host = t.mode == TableMode::kRowsOnHost || t.mode == TableMode::kColumnsOnHost;
  const uint32_t table_group = one_host ? host_groups_++ : kNobody;
  uint32_t slice_group = kNobody;
  for (uint32_t s = t.shard_first; s < t.shard_limit; ++s) {
    const bool new_slice = s == t.shard_first || problem_.shards[s].range.column_first !=
                                                     problem_.shards[s - 1].range.column_first;
    if (t.mode == TableMode::kGrid && new_slice) slice_group = host_groups_++;
    const uint32_t group = one_host ? table_group : slice_group;
    if (by_slice && !new_slice) {
      units.back().shard_limit = s + 1;
    } else {
      units.push_back({s, s + 1, group});
    }
  }
  return units;
}

std::optional<PlanError> ProblemBuilder::AddUnits(uint32_t table) {
  uint32_t allowed_primary = 0;
  uint32_t allowed_replicas = 0;
  std::optional<PlanError> error = AllowedFor(table, allowed_primary, allowed_replicas);
  if (error.has_value()) return error;
  uint32_t replicas = std::max(1u, input_.tables[table].replicas);
  std::vector<uint32_t> there;
  if (replicas > 1 && KeepsReplicas(table)) there = ReplicasByShard(table);
  const uint32_t first = problem_.tables[table].shard_first;
  problem_.tables[table].unit_first = static_cast<uint32_t>(problem_.units.size());
  for (const UnitRange& range : GroupShards(table)) {
    if (!there.empty()) {
      replicas = *std::max_element(there.begin() + (range.shard_first - first),
                                   there.begin() + (range.shard_limit - first));
    }
    Unit unit;
    unit.table = table;
    unit.shard_first = range.shard_first;
    unit.shard_limit = range.shard_limit;
    unit.group_first = static_cast<uint32_t>(problem_.units.size());
    unit.group_limit = unit.group_first + replicas;
    for (uint32_t i = 0; i < replicas; ++i) {
      unit.role = i == 0 ? Role::kPrimary : Role::kBackup;
      unit.allowed = i == 0 ? allowed_primary : allowed_replicas;
      unit.host_group = i == 0 ? range.host_group : kNobody;
      AddUnit(unit, replicas, i == 0 ? 1 : 0);
    }
  }
  problem_.tables[table].unit_limit = static_cast<uint32_t>(problem_.units.size());
  return std::nullopt;
}

// The server that has the primary now; for new tables the servers in turn.
uint32_t ProblemBuilder::ReplicatedPrimary(uint32_t table, const AllowedServers& allowed) {
  const auto may = [&](uint32_t s) {
    return problem_.servers[s].usable && (allowed.all || allowed.holds[s]);
  };
  if (current_[table] != nullptr) {
    for (const PlacedRange& range : current_[table]->ranges) {
      if (range.role != Role::kPrimary) continue;
      const std::string& name = input_.current->servers[range.server].name;
      for (uint32_t s = 0; s < problem_.servers.size(); ++s) {
        if (may(s) && input_.topology.servers[s].name == name) return s;
      }
    }
  }
  for (uint32_t i = 0;; ++i) {
    const uint32_t s = (next_replicated_ + i) % problem_.servers.size();
    if (!may(s)) continue;
    next_replicated_ = s + 1;
    return s;
  }
}

std::optional<PlanError> ProblemBuilder::AddReplicated(uint32_t table) {
  uint32_t allowed = 0;
  uint32_t unused = 0;
  std::optional<PlanError> error = AllowedFor(table, allowed, unused);
  if (error.has_value()) return error;
  const uint32_t primary = ReplicatedPrimary(table, problem_.allowed[allowed]);
  std::vector<uint32_t> members = {primary};
  for (uint32_t s = 0; s < problem_.servers.size(); ++s) {
    const ProblemServer& server = problem_.servers[s];
    if (server.usable && server.host != problem_.servers[primary].host) members.push_back(s);
  }
  ProblemTable& t = problem_.tables[table];
  t.unit_first = static_cast<uint32_t>(problem_.units.size());
  Unit unit;
  unit.table = table;
  unit.shard_first = t.shard_first;
  unit.shard_limit = t.shard_limit;
  unit.fixed = true;
  unit.group_first = t.unit_first;
  unit.group_limit = t.unit_first + static_cast<uint32_t>(members.size());
  for (const uint32_t server : members) {
    unit.role = server == primary ? Role::kPrimary : Role::kReplica;
    unit.allowed = AllowedIndex({server});
    AddUnit(unit, static_cast<uint32_t>(members.size()), 1.0 / members.size());
  }
  t.unit_limit = static_cast<uint32_t>(problem_.units.size());
  return std::nullopt;
}

void ProblemBuilder::AddUnit(Unit unit, uint32_t members, double read_share) {
  const InputTable& table = input_.tables[unit.table];
  double ns = 0;
  RowCost cost;
  uint32_t columns = 0;
  for (uint32_t s = unit.shard_first; s < unit.shard_limit; ++s) {
    const ProblemShard& shard = problem_.shards[s];
    if (shard.range.columns() != columns || !table.measured.empty()) {
      columns = shard.range.columns();
      cost =
          model_.Row(table, columns, unit.role, members, read_share * shard.reads, shard.updates);
    }
    unit.bytes = unit.bytes > UINT64_MAX - shard.bytes ? UINT64_MAX : unit.bytes + shard.bytes;
    ns += cost.Hot() * model_.trainers() * shard.unique + model_.SegmentNs(unit.role, shard.unique);
  }
  AddHeat(unit, members, read_share);
  for (uint32_t h = unit.heat_first; h < unit.heat_limit; ++h) {
    const HeatEntry& entry = problem_.heat[h];
    extra_ns_ += (entry.host_extra + entry.spill_extra) * unit.heat_fraction;
  }
  unit_ns_.push_back(ns);
  problem_.units.push_back(unit);
}

// Units of several shards are whole slices. Of a hashed table every shard has the table's entries
// in its share: they are stored once for all shards of the same columns and role.
void ProblemBuilder::AddHeat(Unit& unit, uint32_t members, double read_share) {
  const InputTable& table = input_.tables[unit.table];
  if (!table.measured.empty()) return AddMeasured(unit, members, read_share);
  const PieceRange& front = problem_.shards[unit.shard_first].range;
  const bool shared = table.hashed && unit.shard_limit == unit.shard_first + 1;
  if (shared) {
    unit.heat_fraction =
        static_cast<double>(front.row_limit - front.row_first) / static_cast<double>(kHashBuckets);
    for (const Unit& other : shared_heat_) {
      const PieceRange& range = problem_.shards[other.shard_first].range;
      if (other.table != unit.table || other.role != unit.role) continue;
      if (range.columns() != front.columns()) continue;
      unit.heat_first = other.heat_first;
      unit.heat_limit = other.heat_limit;
      return;
    }
  }
  std::array<HeatEntry, kHeatClasses> classes{};
  for (uint32_t s = unit.shard_first; s < unit.shard_limit;) {
    uint32_t end = s + 1;
    const PieceRange& range = problem_.shards[s].range;
    while (end < unit.shard_limit &&
           problem_.shards[end].range.column_first == range.column_first) {
      ++end;
    }
    const uint64_t first = table.hashed ? 0 : range.row_first;
    const uint64_t limit = table.hashed ? table.rows : problem_.shards[end - 1].range.row_limit;
    const RowCost cost = model_.Row(table, range.columns(), unit.role, members, read_share);
    AddRows(unit.table, range.columns(), cost, first, limit, classes);
    s = end;
  }
  unit.heat_first = static_cast<uint32_t>(problem_.heat.size());
  for (uint32_t c = 0; c < kHeatClasses; ++c) {
    if (classes[c].bytes == 0) continue;
    classes[c].heat = c;
    problem_.heat.push_back(classes[c]);
  }
  unit.heat_limit = static_cast<uint32_t>(problem_.heat.size());
  if (!shared) return;
  if (!shared_heat_.empty() && shared_heat_.front().table != unit.table) shared_heat_.clear();
  shared_heat_.push_back(unit);
}

void ProblemBuilder::AddRows(uint32_t table, uint32_t columns, const RowCost& cost, uint64_t first,
                             uint64_t limit, std::array<HeatEntry, kHeatClasses>& classes) const {
  const TableHeat& heat = table_heat_[table];
  const double row_bytes = static_cast<double>(RowBytes(input_.tables[table], columns));
  auto it = std::upper_bound(heat.strata.begin(), heat.strata.end(), first,
                             [](uint64_t row, const Stratum& s) { return row < s.limit; });
  for (; it != heat.strata.end() && it->first < limit; ++it) {
    const double rows =
        static_cast<double>(std::min(limit, it->limit) - std::max(first, it->first));
    const double unique = heat.unique[it - heat.strata.begin()] * rows /
                          static_cast<double>(it->limit - it->first) * model_.trainers();
    const double bytes = rows * row_bytes;
    HeatEntry& entry = classes[HeatClass(unique * cost.spill_extra / bytes)];
    entry.bytes += bytes;
    entry.host_extra += unique * cost.host_extra;
    entry.spill_extra += unique * cost.spill_extra;
  }
}

}  // namespace hotbed
