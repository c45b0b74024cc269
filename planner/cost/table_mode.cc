#include "planner/cost/table_mode.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "planner/model/table_bytes.h"

namespace hotbed {
namespace {

constexpr uint32_t kColumnsMin = 32;  // per slice, by default

constexpr std::pair<Sharding, TableMode> kPreference[] = {
    {Sharding::kRowWise, TableMode::kRows},
    {Sharding::kTableRowWise, TableMode::kRowsOnHost},
    {Sharding::kGrid, TableMode::kGrid},
    {Sharding::kColumnWise, TableMode::kColumns},
    {Sharding::kTableColumnWise, TableMode::kColumnsOnHost},
    {Sharding::kTableWise, TableMode::kWhole},
    {Sharding::kDataParallel, TableMode::kDataParallel},
};

bool CutsColumns(TableMode mode) {
  return mode == TableMode::kGrid || mode == TableMode::kColumns ||
         mode == TableMode::kColumnsOnHost;
}

bool MayCutColumns(const InputTable& table) {
  return !NeedsWholeRows(table) || table.row_statistics == RowStatistics::kSlice;
}

PlanError NeedsWholeRowsError(const InputTable& table) {
  PlanError error;
  error.kind = PlanErrorKind::kStrictConstraints;
  error.table = table.name;
  error.message = absl::StrCat(
      "table \"", table.name,
      "\" may only be cut by columns, but its optimizer or weight type needs "
      "statistics of whole rows; say row_statistics=slice, or allow row_wise or table_wise");
  return error;
}

absl::uint128 Elements(const InputTable& table) { return absl::uint128(table.rows) * table.dim; }

uint32_t SlicesByThreshold(const InputTable& table, uint64_t threshold, uint32_t most) {
  absl::uint128 elements = Elements(table);
  uint32_t slices = 1;
  while (elements > threshold && slices < most) {
    slices *= 2;
    elements /= 2;
  }
  return std::min(slices, most);
}

PlanResult<ModeChoice> WithFixedSlices(const InputTable& table, const TableConstraint& constraint,
                                       ModeChoice choice) {
  if (!constraint.column_slices.has_value()) return choice;
  if (*constraint.column_slices > 1 && !MayCutColumns(table)) return NeedsWholeRowsError(table);
  choice.slices = *constraint.column_slices;
  choice.slices_fixed = true;
  return choice;
}

}  // namespace

PlanResult<ModeChoice> ChooseMode(const InputTable& table, const TableConstraint* constraint,
                                  const PlannerOptions& options, uint32_t usable) {
  ModeChoice choice;
  const uint32_t columns_min =
      constraint != nullptr ? constraint->columns_min.value_or(kColumnsMin) : kColumnsMin;
  const uint32_t most = std::max(1u, std::min(usable, table.dim / std::max(1u, columns_min)));
  if (constraint != nullptr && !constraint->sharding.empty()) {
    choice.constrained = true;
    bool found = false;
    for (const auto& [sharding, mode] : kPreference) {
      const auto& allowed = constraint->sharding;
      if (found || std::find(allowed.begin(), allowed.end(), sharding) == allowed.end()) continue;
      if (CutsColumns(mode) && !MayCutColumns(table)) continue;
      choice.mode = mode;
      found = true;
    }
    if (!found) return NeedsWholeRowsError(table);
    if (CutsColumns(choice.mode)) choice.slices = most;
    return WithFixedSlices(table, *constraint, choice);
  }
  const absl::uint128 elements = Elements(table);
  const bool several = usable > 1;  // with one server, thresholds for rows and replicas are off
  if (several && options.data_parallel_threshold.has_value() &&
      elements <= *options.data_parallel_threshold) {
    choice.mode = TableMode::kDataParallel;
    return choice;
  }
  if (options.column_slice_threshold.has_value() && MayCutColumns(table)) {
    choice.slices = SlicesByThreshold(table, *options.column_slice_threshold, most);
  }
  if (several && options.row_slice_threshold.has_value() &&
      elements < *options.row_slice_threshold) {
    choice.mode = choice.slices > 1 ? TableMode::kColumns : TableMode::kWhole;
  }
  return choice;
}

Sharding ShardingLabel(const ProblemTable& table, bool one_server, bool columns_cut,
                       bool slices_whole) {
  if (table.mode == TableMode::kDataParallel) return Sharding::kDataParallel;
  const bool by_rows = table.mode == TableMode::kRows || table.mode == TableMode::kRowsOnHost;
  if (table.constrained && !(columns_cut && by_rows)) {
    for (const auto& [sharding, mode] : kPreference) {
      if (mode == table.mode) return sharding;
    }
  }
  if (one_server) return Sharding::kTableWise;
  if (!columns_cut) return Sharding::kRowWise;
  return slices_whole ? Sharding::kColumnWise : Sharding::kGrid;
}

}  // namespace hotbed
