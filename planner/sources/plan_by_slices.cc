#include "planner/sources/plan_by_slices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/model/finish_plan.h"
#include "planner/model/fused_groups.h"
#include "planner/model/placement.h"
#include "planner/model/plan_names.h"
#include "planner/model/table_bytes.h"
#include "planner/sources/place_slices.h"
#include "planner/sources/slice_columns.h"
#include "planner/sources/usable_servers.h"

namespace hotbed {
namespace {

uint64_t RowUnits(const InputTable& table) { return table.hashed ? kHashBuckets : table.rows; }

PlanError Refused(const InputTable& table, const std::string& message) {
  PlanError error{PlanErrorKind::kStrictConstraints, message};
  error.table = table.name;
  return error;
}

// Refuses column slices of a table whose optimizer needs whole rows.
std::optional<PlanError> CheckColumnSlices(const PlannerInput& input, const PlannerOutput& plan) {
  for (size_t t = 0; t < input.tables.size(); ++t) {
    const InputTable& table = input.tables[t];
    if (!NeedsWholeRows(table) || table.row_statistics == RowStatistics::kSlice) continue;
    for (const PlacedRange& range : plan.tables[t].ranges) {
      if (range.column_limit - range.column_first == table.dim) continue;
      return Refused(
          table,
          absl::StrCat("table '", table.name, "': strategy ", plan.strategy, " cuts its ",
                       table.dim, " columns, but optimizer ", PlanWord(table.optimizer),
                       " with weights ", PlanWord(table.weight),
                       " needs statistics of whole rows; row_statistics=slice allows it, as does "
                       "a column_slice_threshold of ",
                       table.rows * table.dim, " elements or another optimizer"));
    }
  }
  return std::nullopt;
}

class SlicePlan {
 public:
  SlicePlan(const PlannerInput& input, std::vector<uint32_t> servers)
      : input_(input), servers_(std::move(servers)), fused_(input.topology.servers.size()) {
    plan_.servers.resize(input.topology.servers.size());
    for (const InputTable& table : input.tables) plan_.tables.push_back({.name = table.name});
  }

  PlanResult<PlannerOutput> ByThresholds() {
    PlannerStrategy strategy = input_.options.strategy;
    std::vector<uint32_t> by_column;
    if (workers() == 1) {
      strategy = PlannerStrategy::kBasic;
      for (uint32_t t = 0; t < input_.tables.size(); ++t) by_column.push_back(t);
    } else {
      by_column = CopyAndCutRows();
    }
    plan_.strategy = PlanWord(strategy);
    if (auto error = PlaceColumns(strategy, by_column)) return *std::move(error);
    if (auto error = CheckColumnSlices(input_, plan_)) return *std::move(error);
    return std::move(plan_);
  }

  PlanResult<PlannerOutput> ColumnEven() {
    plan_.strategy = PlanWord(PlannerStrategy::kColumnEven);
    for (uint32_t t = 0; t < input_.tables.size(); ++t) {
      const InputTable& table = input_.tables[t];
      if (input_.options.strict && table.dim % workers() != 0) {
        return Refused(table, absl::StrCat("table '", table.name, "': its ", table.dim,
                                           " columns cannot be divided evenly by ", workers(),
                                           " servers; make dim a multiple of ", workers(),
                                           ", or leave out strict"));
      }
      plan_.tables[t].sharding =
          workers() == 1 || table.dim == 1 ? Sharding::kTableWise : Sharding::kColumnWise;
      uint32_t first = 0;
      const std::vector<uint64_t> widths = EvenParts(table.dim, workers());
      for (uint32_t w = 0; w < workers() && widths[w] > 0; ++w) {
        const uint32_t limit = first + static_cast<uint32_t>(widths[w]);
        Add(t, w, Role::kPrimary, 0, RowUnits(table), first, limit);
        first = limit;
      }
    }
    if (auto error = CheckColumnSlices(input_, plan_)) return *std::move(error);
    return std::move(plan_);
  }

 private:
  uint32_t workers() const { return static_cast<uint32_t>(servers_.size()); }

  // Answers the range's bytes.
  uint64_t Add(uint32_t table, uint32_t worker, Role role, uint64_t row_first, uint64_t row_limit,
               uint32_t column_first, uint32_t column_limit) {
    PlacedRange range{.server = servers_[worker],
                      .role = role,
                      .row_first = row_first,
                      .row_limit = row_limit,
                      .column_first = column_first,
                      .column_limit = column_limit};
    MeasureRange(input_.tables[table], &range);
    plan_.tables[table].ranges.push_back(range);
    TierBytes& bytes = plan_.servers[servers_[worker]].bytes;
    (HasDevice(worker) ? bytes.device : bytes.host) += range.bytes;
    return range.bytes;
  }

  bool HasDevice(uint32_t worker) const {
    return input_.options.strategy != PlannerStrategy::kColumnEven &&
           input_.topology.device == PlannerDevice::kCuda &&
           input_.topology.servers[servers_[worker]].device_bytes > 0;
  }

  // Places the tables that are copied or cut by rows; answers the others.
  std::vector<uint32_t> CopyAndCutRows() {
    std::vector<uint32_t> by_column;
    uint32_t copied = 0;
    for (uint32_t t = 0; t < input_.tables.size(); ++t) {
      const InputTable& table = input_.tables[t];
      switch (GroupOf(table.rows * table.dim, input_.options.data_parallel_threshold,
                      input_.options.row_slice_threshold)) {
        case TableGroup::kDataParallel:
          Copy(t, copied++ % workers());
          break;
        case TableGroup::kRow:
          CutRows(t);
          break;
        case TableGroup::kColumn:
          by_column.push_back(t);
      }
    }
    return by_column;
  }

  void Copy(uint32_t t, uint32_t primary) {
    plan_.tables[t].sharding = Sharding::kDataParallel;
    const InputTable& table = input_.tables[t];
    for (uint32_t w = 0; w < workers(); ++w) {
      Add(t, w, w == primary ? Role::kPrimary : Role::kReplica, 0, RowUnits(table), 0, table.dim);
    }
  }

  void CutRows(uint32_t t) {
    plan_.tables[t].sharding = Sharding::kRowWise;
    const InputTable& table = input_.tables[t];
    const std::vector<uint64_t> rows = EvenParts(RowUnits(table), workers());
    uint64_t first = 0;
    for (uint32_t w = 0; w < workers() && rows[w] > 0; ++w) {
      Add(t, w, Role::kPrimary, first, first + rows[w], 0, table.dim);
      first += rows[w];
    }
  }

  std::optional<PlanError> PlaceColumns(PlannerStrategy strategy,
                                        const std::vector<uint32_t>& tables) {
    if (tables.empty()) return std::nullopt;
    std::vector<uint64_t> sizes;
    for (const uint32_t t : tables) sizes.push_back(input_.tables[t].rows * input_.tables[t].dim);
    std::optional<int64_t> threshold;
    if (input_.options.column_slice_threshold) {
      threshold = static_cast<int64_t>(*input_.options.column_slice_threshold);
    } else {
      threshold = AutomaticColumnThreshold(sizes, workers());
    }
    std::vector<std::vector<uint32_t>> widths;
    std::vector<TableSlice> slices;
    for (uint32_t i = 0; i < tables.size(); ++i) {
      const InputTable& table = input_.tables[tables[i]];
      widths.push_back(SliceWidths(table.rows, table.dim, threshold, workers()));
      for (const uint32_t width : widths.back()) slices.push_back({table.rows * width, i});
    }
    const auto merged = MergeSlices(PlaceSlices(strategy, workers(), slices), widths);
    for (uint32_t w = 0; w < workers(); ++w) {
      if (merged[w].empty() && input_.options.strict) return LeftWithout(w, slices.size());
      AddSlices(w, tables, merged[w]);
    }
    fused_.MoveTo(&plan_);
    for (const uint32_t t : tables) {
      plan_.tables[t].sharding =
          plan_.tables[t].ranges.size() > 1 ? Sharding::kColumnWise : Sharding::kTableWise;
    }
    return std::nullopt;
  }

  // Fuses them in the order in which the strategy gave them; copied and row-sliced tables stay
  // apart.
  void AddSlices(uint32_t worker, const std::vector<uint32_t>& tables,
                 const std::vector<MergedSlice>& slices) {
    struct Local {
      uint64_t elements;
      size_t slice;
    };
    std::vector<Local> by_size;
    std::vector<uint64_t> bytes;
    for (size_t i = 0; i < slices.size(); ++i) {
      const uint32_t t = tables[slices[i].table];
      bytes.push_back(Add(t, worker, Role::kPrimary, 0, RowUnits(input_.tables[t]),
                          slices[i].column_first, slices[i].column_limit));
      by_size.push_back({plan_.tables[t].ranges.back().elements, i});
    }
    std::vector<bool> offloaded(slices.size());
    if (HasDevice(worker)) {
      std::stable_sort(by_size.begin(), by_size.end(),
                       [](const Local& a, const Local& b) { return a.elements < b.elements; });
      TierBytes& tiers = plan_.servers[servers_[worker]].bytes;
      const uint64_t limit = input_.topology.servers[servers_[worker]].device_bytes;
      for (; tiers.device > limit && !by_size.empty(); by_size.pop_back()) {
        const size_t largest = by_size.back().slice;
        offloaded[largest] = true;
        plan_.tables[tables[slices[largest].table]].ranges.back().kernel = "offloaded";
        tiers.device -= bytes[largest];
        tiers.host += bytes[largest];
      }
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      const InputTable& table = input_.tables[tables[slices[i].table]];
      fused_.Add(servers_[worker], table, slices[i].column_limit - slices[i].column_first,
                 table.rows, offloaded[i]);
    }
  }

  PlanError LeftWithout(uint32_t worker, size_t slices) const {
    return {PlanErrorKind::kStrictConstraints,
            absl::StrCat("server '", input_.topology.servers[servers_[worker]].name,
                         "' gets no slice: there are ", slices, " slices for ", workers(),
                         " servers; a lower column_slice_threshold makes more, fewer servers need "
                         "fewer, and without strict a server may stay without")};
  }

  const PlannerInput& input_;
  const std::vector<uint32_t> servers_;
  PlannerOutput plan_;
  FusedGroups fused_;
};

}  // namespace

PlanResult<PlannerOutput> PlanBySlices(const PlannerInput& input) {
  PlanResult<std::vector<uint32_t>> servers = UsableServers(input);
  if (!servers.ok()) return servers.error();
  SlicePlan plan(input, std::move(servers.value()));
  if (input.options.strategy == PlannerStrategy::kColumnEven) return plan.ColumnEven();
  return plan.ByThresholds();
}

}  // namespace hotbed
