#include "planner/sources/check_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/plan_names.h"

namespace hotbed {
namespace {

constexpr char kOtherStrategies[] = "; strategy cost keeps to it";

PlanError Broken(const PlacedTable& table, const std::string& message) {
  PlanError error{PlanErrorKind::kStrictConstraints,
                  absl::StrCat("table '", table.name, "': ", message, kOtherStrategies)};
  error.table = table.name;
  return error;
}

template <typename T>
bool Allows(const std::vector<T>& allowed, T value) {
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

std::optional<PlanError> CheckConstraint(const TableConstraint& constraint,
                                         const PlacedTable& table, const PlannerOutput& plan) {
  if (!Allows(constraint.sharding, table.sharding)) {
    return Broken(
        table, absl::StrCat("strategy ", plan.strategy, " makes it ", ShardingName(table.sharding),
                            ", which its constraint does not allow"));
  }
  for (const PlacedRange& range : table.ranges) {
    if (!Allows(constraint.servers, range.server)) {
      return Broken(
          table, absl::StrCat("strategy ", plan.strategy, " places it on server '",
                              plan.servers[range.server].name, "', which its pins do not allow"));
    }
    const uint32_t columns = range.column_limit - range.column_first;
    if (table.sharding == Sharding::kColumnWise && columns < constraint.columns_min.value_or(1)) {
      return Broken(
          table, absl::StrCat("strategy ", plan.strategy, " gives server '",
                              plan.servers[range.server].name, "' ", columns,
                              " of its columns, fewer than columns_min ", *constraint.columns_min));
    }
  }
  return std::nullopt;
}

std::optional<PlanError> CheckCapacity(const PlannerInput& input, const PlannerOutput& plan) {
  uint64_t most = 0;
  size_t worst = 0;
  for (size_t s = 0; s < plan.servers.size(); ++s) {
    const uint64_t limit = input.topology.servers[s].host_bytes;
    const uint64_t bytes = plan.servers[s].bytes.host;
    if (bytes > limit && bytes - limit > most) {
      most = bytes - limit;
      worst = s;
    }
  }
  if (most == 0) return std::nullopt;
  const PlacedTable* largest = nullptr;
  uint64_t largest_bytes = 0;
  for (const PlacedTable& table : plan.tables) {
    uint64_t bytes = 0;
    for (const PlacedRange& range : table.ranges) {
      if (range.server == worst) bytes += range.bytes;
    }
    if (bytes > largest_bytes) {
      largest_bytes = bytes;
      largest = &table;
    }
  }
  const uint64_t limit = input.topology.servers[worst].host_bytes;
  PlanError error{
      PlanErrorKind::kInsufficientStorage,
      absl::StrCat(
          "server '", plan.servers[worst].name, "' would hold ", plan.servers[worst].bytes.host,
          " bytes, ", most, " above its host_bytes of ", limit, "; its largest table there is '",
          largest->name, "' with ", largest_bytes,
          " bytes. More host_bytes or more servers help, as do lower column_slice_threshold "
          "and row_slice_threshold; strategy cost places by capacity")};
  error.table = largest->name;
  error.limit = limit;
  error.missing_bytes = most;
  return error;
}

}  // namespace

std::optional<PlanError> CheckSourcePlan(const PlannerInput& input, const PlannerOutput& plan) {
  for (size_t t = 0; t < input.tables.size(); ++t) {
    if (input.tables[t].copies == 1) continue;
    return Broken(plan.tables[t],
                  absl::StrCat("copies is ", input.tables[t].copies, ", and strategy ",
                               plan.strategy, " makes no backups"));
  }
  for (const TableConstraint& constraint : input.options.constraints) {
    if (auto error = CheckConstraint(constraint, plan.tables[constraint.table], plan)) return error;
  }
  return CheckCapacity(input, plan);
}

}  // namespace hotbed
