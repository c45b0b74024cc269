#include "planner/plan_on_cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/tables/session_of_lane.h"
#include "common/tables/touch_filter_shape.h"
#include "planner/model/placement.h"
#include "planner/model/refine.h"
#include "planner/model/table_bytes.h"
#include "planner/model/tiling.h"

namespace hotbed {
namespace {

constexpr size_t kNamesMax = 5;  // in an error

std::string Table(const std::string& name) { return absl::StrCat("table \"", name, "\""); }

std::string Text(const ShardRange& range) {
  return absl::StrCat("rows [", range.first, ", ", range.limit, ") x columns [", range.column_first,
                      ", ", range.column_limit, ")");
}

uint64_t Units(const TableSpec& spec) { return spec.hashed ? kHashBuckets : spec.rows; }

// Names and ids of the view's servers.
class Servers {
 public:
  explicit Servers(const ClusterView& view) {
    const PlannerOutput live = LivePlan({view.servers, {}});
    for (size_t s = 0; s < view.servers.size(); ++s) {
      names_.push_back(live.servers[s].name);
      by_name_.emplace(names_.back(), &view.servers[s]);
      by_id_.emplace(view.servers[s].id, s);
    }
    view_ = &view;
  }

  absl::StatusOr<ServerId> Id(const std::string& table, const std::string& name) const {
    const auto it = by_name_.find(name);
    if (it != by_name_.end()) return it->second->id;
    std::vector<std::string> some(names_.begin(),
                                  names_.begin() + std::min(kNamesMax, names_.size()));
    return absl::NotFoundError(absl::StrCat(
        Table(table), ": the plan has a range on server \"", name,
        "\", which the cluster does not have (it has ", absl::StrJoin(some, ", "),
        names_.size() > some.size() ? ", ..." : "", "); name the plan's servers as the cluster's"));
  }
  const ClusterServer* Find(ServerId id) const {
    const auto it = by_id_.find(id);
    return it == by_id_.end() ? nullptr : &view_->servers[it->second];
  }
  std::string Name(ServerId id) const {
    const auto it = by_id_.find(id);
    return it == by_id_.end() ? absl::StrCat("server ", id) : names_[it->second];
  }
  bool ShareDomain(ServerId a, ServerId b) const {
    const ClusterServer* const one = Find(a);
    const ClusterServer* const other = Find(b);
    return a == b || (one != nullptr && other != nullptr && !one->failure_domain.empty() &&
                      one->failure_domain == other->failure_domain);
  }

 private:
  const ClusterView* view_ = nullptr;
  std::vector<std::string> names_;
  std::map<std::string, const ClusterServer*> by_name_;
  absl::flat_hash_map<ServerId, size_t> by_id_;
};

// The ranges of one table in a plan.
class PlannedTable {
 public:
  PlannedTable(const TableSpec& spec, const PlacedTable& placed, const PlannerOutput& plan,
               const Servers& servers)
      : spec_(spec), placed_(placed), plan_(plan), servers_(servers) {}

  absl::Status Check() {
    if (std::optional<std::string> fault = TilingFault(placed_.ranges, Units(spec_), spec_.dim)) {
      return absl::FailedPreconditionError(absl::StrCat(
          Table(spec_.name), ": the plan is not of its ", Units(spec_),
          spec_.hashed ? " buckets" : " rows", " x ", spec_.dim, " columns: ", *fault));
    }
    for (const PlacedRange& range : placed_.ranges) {
      HOTBED_ASSIGN_OR_RETURN(const ServerId id,
                              servers_.Id(spec_.name, plan_.servers[range.server].name));
      ids_.push_back(id);
      has_read_replicas_ |= range.role == Role::kReplica;
    }
    return absl::OkStatus();
  }

  bool has_read_replicas() const { return has_read_replicas_; }

  // The servers of the shard, the primary first, then the backups in the plan's order.
  absl::StatusOr<std::vector<ServerId>> HoldersOf(uint32_t index, const ShardRange& shard) const {
    std::map<std::pair<Role, ServerId>, absl::uint128> held;
    std::vector<std::pair<Role, ServerId>> order;
    for (size_t r = 0; r < placed_.ranges.size(); ++r) {
      const absl::uint128 common = Common(placed_.ranges[r], shard);
      const std::pair holder(placed_.ranges[r].role, ids_[r]);
      if (common == 0 || holder.first == Role::kReplica) continue;
      if (held.find(holder) == held.end()) order.push_back(holder);
      held[holder] += common;
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const absl::uint128 all =
        absl::uint128(shard.limit - shard.first) * (shard.column_limit - shard.column_first);
    std::vector<ServerId> servers;
    for (const auto& holder : order) {
      if (held[holder] != all) return Cut(index, shard, order);
      if (Contains(servers, holder.second)) {
        return absl::FailedPreconditionError(absl::StrCat(Name(index, shard),
                                                          ": the plan has two replicas of it on ",
                                                          servers_.Name(holder.second)));
      }
      servers.push_back(holder.second);
    }
    if (servers.size() <= std::max(1u, spec_.replicas)) return servers;
    return absl::FailedPreconditionError(
        absl::StrCat(Name(index, shard), ": the plan has ", servers.size(),
                     " replicas of it, and the table has ", std::max(1u, spec_.replicas)));
  }

  // Where the shard has to be cut so that each part lies on one server; ascending.
  absl::StatusOr<std::vector<uint64_t>> CutsOf(uint32_t index, const ShardRange& shard) const {
    std::set<uint64_t> edges;
    for (const PlacedRange& range : placed_.ranges) {
      if (Common(range, shard) == 0) continue;
      if (range.row_first > shard.first) edges.insert(range.row_first);
      if (range.row_limit < shard.limit) edges.insert(range.row_limit);
    }
    std::vector<uint64_t> cuts;
    if (edges.empty() || spec_.column_slices > 1) return cuts;
    ShardRange part = shard;
    std::vector<ServerId> before;
    for (const uint64_t edge : edges) {
      part.limit = edge;
      HOTBED_ASSIGN_OR_RETURN(std::vector<ServerId> holders, HoldersOf(index, part));
      if (part.first > shard.first && holders != before) cuts.push_back(part.first);
      before = std::move(holders);
      part.first = edge;
    }
    part.limit = shard.limit;
    HOTBED_ASSIGN_OR_RETURN(const std::vector<ServerId> holders, HoldersOf(index, part));
    if (holders != before) cuts.push_back(part.first);
    return cuts;
  }

  // The ranges of the primaries, by their rows.
  std::vector<PieceRange> Pieces() const {
    std::vector<PieceRange> pieces;
    for (const PlacedRange& range : placed_.ranges) {
      if (range.role != Role::kPrimary) continue;
      pieces.push_back({range.row_first, range.row_limit, range.column_first, range.column_limit});
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const PieceRange& a, const PieceRange& b) { return a.row_first < b.row_first; });
    return pieces;
  }

 private:
  static absl::uint128 Common(const PlacedRange& range, const ShardRange& shard) {
    const uint64_t first = std::max(range.row_first, shard.first);
    const uint64_t limit = std::min(range.row_limit, shard.limit);
    const uint32_t column_first = std::max(range.column_first, shard.column_first);
    const uint32_t column_limit = std::min(range.column_limit, shard.column_limit);
    if (first >= limit || column_first >= column_limit) return 0;
    return absl::uint128(limit - first) * (column_limit - column_first);
  }

  std::string Name(uint32_t index, const ShardRange& shard) const {
    return absl::StrCat(Table(spec_.name), ", shard ", index, " (", Text(shard), ")");
  }

  absl::Status Cut(uint32_t index, const ShardRange& shard,
                   const std::vector<std::pair<Role, ServerId>>& holders) const {
    std::vector<std::string> names;
    for (const auto& [role, id] : holders) {
      if (role == holders.front().first) names.push_back(servers_.Name(id));
    }
    if (names.size() < 2) names.push_back("none");
    if (names.size() > kNamesMax) names.resize(kNamesMax);
    return absl::FailedPreconditionError(absl::StrCat(
        Name(index, shard), ": the plan has parts of it on ", absl::StrJoin(names, " and "),
        ", and a shard is placed as a whole; plan with the placement in force ('hotbed plan show "
        "-o json') as the input's \"current\", or create the table by this plan ('hotbed table "
        "create --file TABLES --plan PLAN')"));
  }

  const TableSpec& spec_;
  const PlacedTable& placed_;
  const PlannerOutput& plan_;
  const Servers& servers_;
  std::vector<ServerId> ids_;  // by range
  bool has_read_replicas_ = false;
};

// The plan's servers for a live shard, with members that it has now where the plan has fewer.
std::vector<ServerId> WithBackups(const Servers& servers, const ClusterShard& now,
                                  std::vector<ServerId> wanted) {
  const size_t replicas = std::max(wanted.size(), 1 + now.backups.size());
  std::vector<ServerId> others = now.backups;
  others.push_back(now.primary);
  for (const ServerId other : others) {
    if (wanted.size() == replicas) break;
    const bool shares = std::any_of(wanted.begin(), wanted.end(),
                                    [&](ServerId s) { return servers.ShareDomain(s, other); });
    if (!shares) wanted.push_back(other);
  }
  return wanted;
}

bool Same(const ClusterShard& now, const std::vector<ServerId>& wanted) {
  std::vector<ServerId> a = HoldersOf(now);
  std::vector<ServerId> b = wanted;
  if (a.front() != b.front()) return false;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

absl::Status ReadReplicasOf(const std::string& name) {
  return absl::FailedPreconditionError(
      absl::StrCat(Table(name),
                   ": the plan has replicas to read from, and the table was created "
                   "without --data-parallel, which cannot change"));
}

}  // namespace

std::vector<ServerId> HoldersOf(const ClusterShard& shard) {
  std::vector<ServerId> holders = {shard.primary};
  holders.insert(holders.end(), shard.backups.begin(), shard.backups.end());
  return holders;
}

ClusterView After(ClusterView view, const std::vector<WantedShard>& goals) {
  std::map<TableId, ClusterTable*> tables;
  for (ClusterTable& table : view.tables) tables.emplace(table.spec.id, &table);
  for (const WantedShard& goal : goals) {
    ClusterTable& table = *tables.at(goal.shard.table);
    ClusterShard& shard = table.shards[table.PlaceOf(goal.shard)];
    shard.primary = goal.servers.front();
    shard.backups.assign(goal.servers.begin() + 1, goal.servers.end());
  }
  return view;
}

namespace {

// Calls `visit` for each table of the plan, in its order, until it returns an error.
absl::Status VisitPlanned(
    const ClusterView& view, const PlannerOutput& plan,
    absl::FunctionRef<absl::Status(const Servers&, const ClusterTable&, const PlannedTable&)>
        visit) {
  const Servers servers(view);
  absl::flat_hash_map<std::string, const ClusterTable*> tables;
  for (const ClusterTable& table : view.tables) tables.emplace(table.spec.name, &table);
  std::set<std::string> seen;
  for (const PlacedTable& placed : plan.tables) {
    const auto found = tables.find(placed.name);
    if (found == tables.end()) {
      return absl::NotFoundError(
          absl::StrCat(Table(placed.name),
                       " of the plan is not in the cluster; create it by the plan "
                       "('hotbed table create --file TABLES --plan PLAN')"));
    }
    if (!seen.insert(placed.name).second) {
      return absl::FailedPreconditionError(
          absl::StrCat(Table(placed.name), " stands twice in the plan"));
    }
    const ClusterTable& table = *found->second;
    PlannedTable planned(table.spec, placed, plan, servers);
    HOTBED_RETURN_IF_ERROR(planned.Check());
    if (planned.has_read_replicas() && !table.spec.data_parallel)
      return ReadReplicasOf(placed.name);
    HOTBED_RETURN_IF_ERROR(visit(servers, table, planned));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<WantedShard>> WantedByPlan(const ClusterView& view,
                                                      const PlannerOutput& plan,
                                                      const std::string& reason) {
  std::vector<WantedShard> wanted;
  HOTBED_RETURN_IF_ERROR(VisitPlanned(view, plan,
                                      [&](const Servers& servers, const ClusterTable& table,
                                          const PlannedTable& planned) -> absl::Status {
                                        for (uint32_t i = 0; i < table.shards.size(); ++i) {
                                          const ClusterShard& shard = table.shards[i];
                                          HOTBED_ASSIGN_OR_RETURN(
                                              std::vector<ServerId> holders,
                                              planned.HoldersOf(table.IdOf(i).index, shard.range));
                                          holders = WithBackups(servers, shard, std::move(holders));
                                          if (!Same(shard, holders))
                                            wanted.push_back({table.IdOf(i), holders, reason});
                                        }
                                        return absl::OkStatus();
                                      }));
  return wanted;
}

absl::StatusOr<std::vector<WantedCut>> CutsByPlan(const ClusterView& view,
                                                  const PlannerOutput& plan) {
  std::vector<WantedCut> wanted;
  HOTBED_RETURN_IF_ERROR(VisitPlanned(
      view, plan,
      [&](const Servers&, const ClusterTable& table, const PlannedTable& planned) -> absl::Status {
        for (uint32_t i = 0; i < table.shards.size(); ++i) {
          HOTBED_ASSIGN_OR_RETURN(std::vector<uint64_t> at,
                                  planned.CutsOf(table.IdOf(i).index, table.shards[i].range));
          std::reverse(at.begin(), at.end());
          if (!at.empty()) wanted.push_back({table.IdOf(i), std::move(at)});
        }
        return absl::OkStatus();
      }));
  return wanted;
}

namespace {

// As the coordinator does (planner/coordinator/membership/asked_cuts.h).
bool MayMerge(const TableSpec& spec) {
  return spec.column_slices <= 1 && !IsSynchronous(spec) && !spec.data_parallel;
}

// Shards of one range of a plan that are merged down to `count`.
class Merging {
 public:
  Merging(const ClusterTable& table, const PieceRange& piece)
      : spec_(table.spec), filter_(TouchFilterShapeOf(spec_)) {
    const InputTable input = PlannerTable(spec_);
    for (uint32_t i = 0; i < table.shards.size(); ++i) {
      const ClusterShard& shard = table.shards[i];
      const ShardRange& range = shard.range;
      if (range.first < piece.row_first || range.limit > piece.row_limit) continue;
      // The planner guesses the rows of a hashed table, so only measured bytes count.
      const uint64_t bytes = spec_.hashed
                                 ? 0
                                 : StoredBytes(input, {range.first, range.limit, range.column_first,
                                                       range.column_limit});
      parts_.push_back({table.IdOf(i), &shard, range.first, range.limit,
                        std::max(bytes, shard.bytes), shard.lanes});
    }
  }

  void Down(uint64_t count, std::vector<WantedMerge>* merges) {
    while (parts_.size() > count) {
      size_t best = parts_.size();
      uint64_t least = kShardBytesMax;
      for (size_t i = 0; i + 1 < parts_.size(); ++i) {
        const uint64_t together = parts_[i].bytes + parts_[i + 1].bytes;
        const bool less = together < least || (best == parts_.size() && together == least);
        if (!less || !Same(*parts_[i].shard, HoldersOf(*parts_[i + 1].shard))) continue;
        if (parts_[i].lanes + parts_[i + 1].lanes > kLanesMax) continue;
        if (filter_.Bytes(parts_[i + 1].limit - parts_[i].first) > kFilterShardBytesMax) continue;
        best = i;
        least = together;
      }
      if (best == parts_.size()) return;
      merges->push_back({parts_[best].id, parts_[best + 1].id, parts_[best + 1].first});
      parts_[best].bytes = least;
      parts_[best].limit = parts_[best + 1].limit;
      parts_[best].lanes += parts_[best + 1].lanes;
      parts_.erase(parts_.begin() + best + 1);
    }
  }

 private:
  struct Part {
    ShardId id;
    const ClusterShard* shard;  // any of those that it has
    uint64_t first;
    uint64_t limit;
    uint64_t bytes;
    size_t lanes;
  };

  const TableSpec& spec_;
  const TouchFilterShape filter_;
  std::vector<Part> parts_;
};

}  // namespace

absl::StatusOr<std::vector<WantedMerge>> MergesByPlan(const ClusterView& view,
                                                      const PlannerOutput& plan) {
  std::vector<WantedMerge> merges;
  HOTBED_RETURN_IF_ERROR(VisitPlanned(
      view, plan,
      [&](const Servers&, const ClusterTable& table, const PlannedTable& planned) -> absl::Status {
        if (!MayMerge(table.spec)) return absl::OkStatus();
        const std::vector<PieceRange> pieces = planned.Pieces();
        const std::vector<uint64_t> counts = ShardCounts(PlannerTable(table.spec), pieces);
        for (size_t i = 0; i < pieces.size(); ++i)
          Merging(table, pieces[i]).Down(counts[i], &merges);
        return absl::OkStatus();
      }));
  return merges;
}

ClusterView AfterCuts(ClusterView view, const std::vector<WantedCut>& cuts) {
  for (ClusterTable& table : view.tables) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < table.shards.size(); ++i) {
      table.shards[i].index = table.IdOf(i).index;
      next = std::max(next, table.shards[i].index + 1);
    }
    for (const WantedCut& cut : cuts) {
      if (cut.shard.table != table.spec.id) continue;
      const uint32_t place = table.PlaceOf(cut.shard);
      for (const uint64_t at : cut.at) {
        ClusterShard& lower = table.shards[place];
        ClusterShard upper = lower;
        upper.index = next++;
        upper.range.first = at;
        const double share = static_cast<double>(upper.range.limit - at) /
                             static_cast<double>(upper.range.limit - lower.range.first);
        upper.bytes = static_cast<uint64_t>(static_cast<double>(lower.bytes) * share);
        upper.rows_pulled *= share;
        upper.rows_pushed *= share;
        lower.range.limit = at;
        lower.bytes -= upper.bytes;
        lower.rows_pulled -= upper.rows_pulled;
        lower.rows_pushed -= upper.rows_pushed;
        table.shards.push_back(std::move(upper));
      }
    }
    SortByPosition(&table.shards);
  }
  return view;
}

std::vector<PlannedMove> MovesOf(const ClusterView& view, const std::vector<WantedShard>& goals) {
  const Servers servers(view);
  std::map<TableId, const ClusterTable*> tables;
  for (const ClusterTable& table : view.tables) tables.emplace(table.spec.id, &table);
  std::vector<PlannedMove> moves;
  for (const WantedShard& goal : goals) {
    const ClusterTable& table = *tables.at(goal.shard.table);
    const ClusterShard& shard = table.shards[table.PlaceOf(goal.shard)];
    const InputTable input = PlannerTable(table.spec);
    const ShardRange& range = shard.range;
    std::vector<ServerId> leaving;
    for (const ServerId now : HoldersOf(shard)) {
      if (!Contains(goal.servers, now)) leaving.push_back(now);
    }
    size_t next = 0;
    for (const ServerId to : goal.servers) {
      if (to == shard.primary || Contains(shard.backups, to)) continue;
      const std::string from = next < leaving.size() ? servers.Name(leaving[next++]) : "";
      const uint64_t bytes = std::max(
          shard.bytes, RangeBytesOf(input, range.first, range.limit,
                                    RowBytes(input, range.column_limit - range.column_first)));
      moves.push_back({table.spec.name, range.first, range.limit, range.column_first,
                       range.column_limit, from, servers.Name(to), bytes, goal.reason});
    }
  }
  return moves;
}

namespace {

// The fewest column slices whose edges include those of the ranges; 0: none have.
uint32_t SlicesFor(const TableSpec& spec, const std::vector<PlacedRange>& ranges) {
  std::set<uint32_t> edges;
  for (const PlacedRange& range : ranges) edges.insert({range.column_first, range.column_limit});
  const bool given = spec.column_slices > 1;
  const uint32_t most = given ? spec.column_slices : std::min(spec.dim, kColumnSlicesMax);
  for (uint32_t slices = given ? most : 1; slices <= most; ++slices) {
    std::set<uint32_t> of_slices = {spec.dim};
    for (uint32_t i = 0; i < slices; ++i) {
      of_slices.insert(SliceColumns(spec.dim, slices, i).first);
    }
    if (std::includes(of_slices.begin(), of_slices.end(), edges.begin(), edges.end())) {
      return slices;
    }
  }
  return 0;
}

// The ranges of rows that every slice is cut into.
std::vector<std::pair<uint64_t, uint64_t>> RowsOf(const TableSpec& spec,
                                                  const std::vector<PlacedRange>& ranges) {
  std::set<uint64_t> edges;
  for (const PlacedRange& range : ranges) edges.insert({range.row_first, range.row_limit});
  const InputTable input = PlannerTable(spec);
  std::vector<PieceRange> pieces;  // slice by slice
  for (uint32_t slice = 0; slice < spec.column_slices; ++slice) {
    const ColumnRange columns = SliceColumns(spec.dim, spec.column_slices, slice);
    for (auto edge = edges.begin(); std::next(edge) != edges.end(); ++edge) {
      pieces.push_back({*edge, *std::next(edge), columns.first, columns.limit});
    }
  }
  const std::vector<uint64_t> counts = ShardCounts(input, pieces);
  const size_t rows = edges.size() - 1;
  std::vector<PieceRange> cut;
  for (size_t piece = 0; piece < rows; ++piece) {
    uint64_t count = 1;
    for (size_t i = piece; i < pieces.size(); i += rows) count = std::max(count, counts[i]);
    CutEvenly(pieces[piece], count, cut);
  }
  std::vector<std::pair<uint64_t, uint64_t>> out;
  for (const PieceRange& range : cut) out.emplace_back(range.row_first, range.row_limit);
  return out;
}

absl::Status TooManyShards(const std::string& name, size_t shards) {
  return absl::InvalidArgumentError(absl::StrCat(Table(name), ": the plan makes ", shards,
                                                 " shards of it, the limit is ", kShardsPerTableMax,
                                                 " a table; plan larger ranges"));
}

}  // namespace

absl::StatusOr<TableToCreate> CutAsPlanned(const ClusterView& view, const TableSpec& spec,
                                           const PlannerOutput& plan) {
  const auto placed = std::find_if(plan.tables.begin(), plan.tables.end(),
                                   [&](const PlacedTable& t) { return t.name == spec.name; });
  if (placed == plan.tables.end()) {
    return absl::NotFoundError(absl::StrCat(
        Table(spec.name), " is not in the plan; add it there, or create it without a plan"));
  }
  const Servers servers(view);
  PlannedTable planned(spec, *placed, plan, servers);
  HOTBED_RETURN_IF_ERROR(planned.Check());
  const uint32_t slices = SlicesFor(spec, placed->ranges);
  if (slices == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        Table(spec.name), ": the plan cuts its ", spec.dim, " columns where ",
        spec.column_slices > 1 ? absl::StrCat(spec.column_slices, " column slices")
                               : absl::StrCat("no up to ", kColumnSlicesMax, " column slices"),
        " of equal width end; cut them evenly"));
  }
  TableToCreate table{spec, {}};
  table.spec.column_slices = slices;
  table.spec.data_parallel |= planned.has_read_replicas();
  HOTBED_RETURN_IF_ERROR(ValidateTableSpec(table.spec));
  const std::vector<std::pair<uint64_t, uint64_t>> rows = RowsOf(table.spec, placed->ranges);
  if (rows.size() * slices > kShardsPerTableMax) {
    return TooManyShards(table.spec.name, rows.size() * slices);
  }
  for (uint32_t slice = 0; slice < slices; ++slice) {
    const ColumnRange columns = SliceColumns(table.spec.dim, slices, slice);
    for (const auto& [first, limit] : rows) {
      const ShardRange range{first, limit, columns.first, columns.limit};
      HOTBED_ASSIGN_OR_RETURN(std::vector<ServerId> holders,
                              planned.HoldersOf(static_cast<uint32_t>(table.shards.size()), range));
      table.shards.push_back({range, std::move(holders)});
    }
  }
  return table;
}

namespace {

absl::Status CheckTiling(const TableToCreate& table) {
  const uint32_t slices = table.spec.column_slices;
  const std::vector<NewShard>& shards = table.shards;
  if (shards.size() > kShardsPerTableMax) return TooManyShards(table.spec.name, shards.size());
  const size_t rows = shards.size() / slices;
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardRange& range = shards[i].range;
    const ColumnRange columns =
        SliceColumns(table.spec.dim, slices, static_cast<uint32_t>(i / std::max<size_t>(1, rows)));
    const bool first_of_slice = rows > 0 && i % rows == 0;
    const bool last_of_slice = rows > 0 && (i + 1) % rows == 0;
    const ShardRange& alike = shards[rows == 0 ? 0 : i % rows].range;  // in the first slice
    if (rows * slices == shards.size() && range.first < range.limit &&
        range.first == (first_of_slice ? 0 : shards[i - 1].range.limit) &&
        (!last_of_slice || range.limit == Units(table.spec)) && range.first == alike.first &&
        range.limit == alike.limit && range.column_first == columns.first &&
        range.column_limit == columns.limit) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(Table(table.spec.name), ": its ", shards.size(), " shards do not tile ",
                     Units(table.spec), table.spec.hashed ? " buckets" : " rows", " in ", slices,
                     " column slices, each cut at the same rows; shard ", i, " is ", Text(range)));
  }
  return absl::OkStatus();
}

absl::Status CheckHolders(const ClusterView& view, const Servers& servers, const TableSpec& spec,
                          uint32_t index, const std::vector<ServerId>& holders) {
  const std::string name = absl::StrCat(Table(spec.name), ", shard ", index, ": ");
  if (holders.empty()) return absl::InvalidArgumentError(absl::StrCat(name, "it has no server"));
  for (size_t i = 0; i < holders.size(); ++i) {
    const ClusterServer* const server = servers.Find(holders[i]);
    if (server == nullptr) {
      return absl::NotFoundError(absl::StrCat(name, "the cluster has no server ", holders[i]));
    }
    if (!server->usable) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, servers.Name(holders[i]),
                       " may not take shards: it is down, draining or read-only"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (!servers.ShareDomain(holders[i], holders[j])) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(name, servers.Name(holders[j]), " and ", servers.Name(holders[i]),
                       " are in one failure domain, so they cannot both have a replica"));
    }
  }
  if (holders.size() == 1 || holders.size() == spec.replicas) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(name, "it is given ", holders.size(),
                                                    " servers, and the table has ", spec.replicas,
                                                    " replicas; give all of them, or the primary"));
}

}  // namespace

absl::StatusOr<Plan> PlaceAsAsked(const ClusterView& view, const TableToCreate& table) {
  HOTBED_RETURN_IF_ERROR(CheckTiling(table));
  const Servers servers(view);
  Plan plan;
  bool complete = true;
  for (uint32_t i = 0; i < table.shards.size(); ++i) {
    const NewShard& shard = table.shards[i];
    HOTBED_RETURN_IF_ERROR(CheckHolders(view, servers, table.spec, i, shard.servers));
    if (i > 0 && shard.servers.size() != table.shards[0].servers.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Table(table.spec.name), ": shard 0 names ", table.shards[0].servers.size(),
                       " servers and shard ", i, " ", shard.servers.size()));
    }
    PlannedShard& planned = plan.shards.emplace_back();
    planned.shard = {table.spec.id, i};
    planned.range = shard.range;
    planned.bytes = RangeBytes(table.spec, shard.range);
    for (const ServerId server : shard.servers) {
      planned.assignments.push_back(
          {server, planned.assignments.empty() ? Role::kPrimary : Role::kBackup});
    }
    complete = complete && shard.servers.size() == table.spec.replicas;
  }
  if (!complete) HOTBED_RETURN_IF_ERROR(AddBackups(table.spec, Candidates(view), &plan));
  return plan;
}

}  // namespace hotbed
