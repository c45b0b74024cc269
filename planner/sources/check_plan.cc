#include "planner/sources/check_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/model/plan_names.h"

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
    return Broken(table,
                  absl::StrCat("strategy ", plan.strategy, " makes it ", PlanWord(table.sharding),
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

// The first of the tables with the most bytes on a server.
const PlacedTable& LargestOn(const PlannerOutput& plan, size_t server, uint64_t* largest_bytes) {
  const PlacedTable* largest = &plan.tables[0];
  *largest_bytes = 0;
  for (const PlacedTable& table : plan.tables) {
    uint64_t bytes = 0;
    for (const PlacedRange& range : table.ranges) {
      if (range.server == server) bytes += range.bytes;
    }
    if (bytes > *largest_bytes) {
      *largest_bytes = bytes;
      largest = &table;
    }
  }
  return *largest;
}

PlanError TooFull(const PlannerOutput& plan, size_t server, const char* tier, uint64_t bytes,
                  uint64_t limit) {
  uint64_t table_bytes = 0;
  const PlacedTable& largest = LargestOn(plan, server, &table_bytes);
  PlanError error{
      PlanErrorKind::kInsufficientStorage,
      absl::StrCat("server '", plan.servers[server].name, "' would hold ", bytes, " bytes, ",
                   bytes - limit, " above its ", tier, " of ", limit,
                   "; its largest table there is '", largest.name, "' with ", table_bytes,
                   " bytes. More ", tier,
                   " or more servers help, as do lower "
                   "column_slice_threshold and row_slice_threshold; strategy cost places by "
                   "capacity")};
  error.table = largest.name;
  error.limit = limit;
  error.missing_bytes = bytes - limit;
  return error;
}

std::optional<PlanError> CheckCapacity(const PlannerInput& input, const PlannerOutput& plan) {
  std::optional<PlanError> worst;
  for (size_t s = 0; s < plan.servers.size(); ++s) {
    const InputServer& limits = input.topology.servers[s];
    const TierBytes& bytes = plan.servers[s].bytes;
    const auto check = [&](const char* tier, uint64_t used, uint64_t limit) {
      if (used <= limit || (worst && used - limit <= *worst->missing_bytes)) return;
      worst = TooFull(plan, s, tier, used, limit);
    };
    check("device_bytes", bytes.device, limits.device_bytes);
    check("host_bytes", bytes.host, limits.host_bytes);
  }
  return worst;
}

}  // namespace

std::optional<PlanError> CheckSourcePlan(const PlannerInput& input, const PlannerOutput& plan) {
  for (size_t t = 0; t < input.tables.size(); ++t) {
    if (input.tables[t].replicas == 1) continue;
    return Broken(plan.tables[t],
                  absl::StrCat("replicas is ", input.tables[t].replicas, ", and strategy ",
                               plan.strategy, " makes no backups"));
  }
  for (const TableConstraint& constraint : input.options.constraints) {
    if (auto error = CheckConstraint(constraint, plan.tables[constraint.table], plan)) return error;
  }
  return CheckCapacity(input, plan);
}

}  // namespace hotbed
